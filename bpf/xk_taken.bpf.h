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
 * begins there, and its address is taken. `xk probe run` sets the number of words before it loads
 * the object, and the words. A variable and not an array: it is read without a lookup. Functions
 * between two multiples of 16 are in the map.
 */
__u64 xk_taken[1] SEC(".data.xk_taken");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} xk_taken_between SEC(".maps");

/* The address of the first bit, and the number of words. */
const volatile __u64 xk_taken_start = 0;
const volatile __u64 xk_taken_words = 1;

/* Whether the address of the function at `target` is taken. */
static __always_inline bool xk_is_taken(__u64 target)
{
	__u64 distance = target - xk_taken_start, word = distance >> 10;

	if (target & 15)
		return bpf_map_lookup_elem(&xk_taken_between, &target);
	/* The verifier knows the constant, and so the bound of the register that is compared. */
	barrier_var(word);
	if (word >= xk_taken_words)
		return false;
	return ((volatile __u64 *)xk_taken)[word] & (1ULL << ((distance >> 4) & 63));
}

#endif /* _XK_TAKEN_BPF_H */
