/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions whose address is taken. `xk probe run` fills these maps when a program has them.
 *
 * Include vmlinux.h and bpf/bpf_helpers.h before it.
 */
#ifndef _XK_TAKEN_BPF_H
#define _XK_TAKEN_BPF_H

/*
 * One bit for every 16 bytes of the code of vmlinux and of the modules that are loaded: a function
 * begins there, and its address is taken. `xk probe run` fills it, and sets the number of words.
 * Functions between two multiples of 16 are in the other map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} xk_taken SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} xk_taken_between SEC(".maps");

/* The address of the first bit, and the first address after the last one. */
const volatile __u64 xk_taken_start = 0;
const volatile __u64 xk_taken_end = 0;

/* Whether the address of the function at `target` is taken. */
static __always_inline bool xk_is_taken(__u64 target)
{
	__u64 distance = target - xk_taken_start;
	__u32 word = distance >> 10;
	__u64 *bits;

	if (target & 15)
		return bpf_map_lookup_elem(&xk_taken_between, &target);
	if (distance >= xk_taken_end - xk_taken_start)
		return false;
	bits = bpf_map_lookup_elem(&xk_taken, &word);
	return bits && *bits & (1ULL << ((distance >> 4) & 63));
}

#endif /* _XK_TAKEN_BPF_H */
