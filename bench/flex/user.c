// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data structures of bpf/flex in a process, for comparison with extensions. Prints what
 * /proc/xk_flexbench shows, as often as its argument says.
 */
#include <stdio.h>
#include <time.h>

#include "operations.h"

static __u64 now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int argc, char **argv)
{
	static struct xk_bench bench;
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	if (!xk_bench_begin(&bench))
		return 1;
	for (int round = 0; round < rounds; round++) {
		for (int number = 0; number < XK_BENCH_OPERATIONS; number++) {
			__u64 turns = xk_bench_operations[number].turns, start = now();

			for (__u64 turn = 0; turn < turns; turn++)
				xk_bench_operations[number].turn(&bench, turn);
			printf("%s %s %llu %llu\n", xk_bench_operations[number].structure,
			       xk_bench_operations[number].operation, turns, now() - start);
		}
	}
	return 0;
}
