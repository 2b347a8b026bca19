// SPDX-License-Identifier: GPL-2.0-only
/*
 * What kernel/xk/text/shape.c remembers of the decoder's answers, compared with the decoder.
 *
 * In, on standard input: bytes. At each of them, and with less room, both must find an instruction
 * of the same length with the same target, or none. Out: how many were compared, how many differ,
 * and how often the decoder was asked for the first ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/shape.h"

#define ADDRESS 0xffffffff81000000ul

static struct xk_shapes shapes;
static unsigned long compared, differences, asked;

static int decode(struct insn *insn, const void *bytes, int len)
{
	return insn_decode(insn, bytes, len, INSN_MODE_64);
}

static int decode_counted(struct insn *insn, const void *bytes, int len)
{
	asked++;
	return decode(insn, bytes, len);
}

static void compare(const __u8 *bytes, unsigned int room, unsigned long address)
{
	unsigned long target, expected_target;
	unsigned int len, expected;

	len = xk_shape_branch(&shapes, bytes, room, address, decode_counted, &target);
	expected = xk_branch(bytes, room, address, decode, &expected_target);
	compared++;
	if (len == expected && target == expected_target)
		return;
	if (differences++ < 10)
		printf("%02x %02x %02x %02x %02x %02x, room %u: %u, target %lx, instead of %u, %lx\n",
		       bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], room, len,
		       target, expected, expected_target);
}

int main(void)
{
	size_t len = 0, capacity = 1 << 26, got, at;
	__u8 *bytes = calloc(1, capacity + XK_SHAPE_READ);

	while (bytes && len < capacity && (got = fread(bytes + len, 1, capacity - len, stdin)))
		len += got;
	for (at = 0; at < len; at++) {
		compare(bytes + at, len - at, ADDRESS + at);
		if (at % 8 == 0)
			compare(bytes + at, at / 8 % 16, ADDRESS + at);
	}
	printf("compared %lu differences %lu asked %lu\n", compared, differences, asked);
	return 0;
}
