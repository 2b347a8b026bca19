// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data structures of bpf/flex in a process: executes the operations that come on its standard
 * input, and answers on its standard output.
 */
#include <unistd.h>

#include "structures.h"

#define MOST	512

static struct xk_structures all;

static void execute(const struct xk_structures_asked *asked,
		    struct xk_structures_answered *answered)
{
	if (asked->operation == XK_WHERE) {
		answered->done = 1;
		answered->answer = (unsigned long)&all;
		return;
	}
	answered->done = xk_structures_turn(&all, asked->operation, asked->key, asked->value);
	answered->answer = all.answer;
}

static struct xk_structures_asked asked[MOST];
static struct xk_structures_answered answered[MOST];

#ifdef XK_STRUCTURES_SCARCE
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

/* Every fifth time, there is no memory for an item. The linker puts it in the place of malloc(). */
void *__wrap_malloc(size_t size)
{
	static __u64 number;

	/* The structures themselves come first. */
	return ++number <= 20 || number % 5 ? __real_malloc(size) : NULL;
}
#endif

int main(void)
{
	size_t have = 0;

	for (;;) {
		ssize_t more = read(0, (char *)asked + have, sizeof(asked) - have);
		size_t number, bytes;

		if (more <= 0)
			return more < 0;
		have += more;
		number = have / sizeof(asked[0]);
		bytes = number * sizeof(answered[0]);
		for (size_t at = 0; at < number; at++)
			execute(&asked[at], &answered[at]);
		for (size_t done = 0; done < bytes;) {
			ssize_t written = write(1, (char *)answered + done, bytes - done);

			if (written < 0)
				return 1;
			done += written;
		}
		/* The beginning of the next one. */
		have -= number * sizeof(asked[0]);
		for (size_t at = 0; at < have; at++)
			((char *)asked)[at] = ((char *)asked)[number * sizeof(asked[0]) + at];
	}
}
