/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Loads an object without a heap and without loops, which is the argument, and attaches it to lo. */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "check.h"

static void send_to_self(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && sendto(fd, "x", 1, 0, (void *)&to, sizeof(to)) == 1);
	close(fd);
}

int main(int argc, char **argv)
{
	struct xk_flex_options options = { .heap_bytes = 1 << 20 };
	const char *no_heap = "the extension has no heap", *no_look = "no loop of it looks";
	volatile __u64 *packets;
	struct xk_flex_ended ended;
	uint64_t count = 7;

	CHECK(argc == 2);
	FAILS_NULL(xk_flex_load(argv[1], &options), EOPNOTSUPP, "no heap that could be limited");
	CHECK((flex = xk_flex_load(argv[1], NULL)));
	FAILS_NULL(xk_flex_map(flex), EOPNOTSUPP, no_heap);
	FAILS_NULL(xk_flex_alloc(flex, 8), EOPNOTSUPP, no_heap);
	FAILS(xk_flex_serve(flex, 0), EOPNOTSUPP, no_heap);
	FAILS(xk_flex_break_dead_locks(flex, NULL, NULL), EOPNOTSUPP, no_heap);
	FAILS(xk_flex_terminate(flex, true), EOPNOTSUPP, no_look);
	FAILS(xk_flex_set_deadline(flex, 0), EOPNOTSUPP, no_look);
	CHECK(!xk_flex_count_ended(flex, &count) && count == 0);
	CHECK(xk_flex_take_ended(flex, &ended, 1) == 0);
	CHECK((packets = xk_flex_variable(flex, "packets", sizeof(*packets))) && *packets == 0);
	FAILS(xk_flex_attach(flex, NULL), ENOEXEC, "pass (section xdp) is not attached");
	send_to_self();
	CHECK(*packets == 0);
	CHECK(!xk_flex_attach(flex, "lo"));
	send_to_self();
	/* The kernel may answer that nobody listens. */
	WAIT_FOR(*packets >= 1);
	*packets = 1000;
	send_to_self();
	WAIT_FOR(*packets > 1000);
	xk_flex_close(flex);
	printf("plain: done\n");
	return 0;
}
