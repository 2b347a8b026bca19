// SPDX-License-Identifier: GPL-2.0-only
/* A table, a list and locks that programs in C use, too. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "xk_flex.bpf.h"
#include "../c/shared.h"

char _license[] SEC("license") = "GPL";

XK_HEAP(8192);

volatile struct asked asked;
struct answered answered;
struct shared __heap *shared;
struct xk_hash __heap *hash;
struct xk_list __heap *list;
struct xk_lock __heap *lock;
const volatile __u32 version = 7;
volatile __u64 turns;

static __always_inline int prepare(void)
{
	if (!shared)
		shared = xk_calloc(1, sizeof(*shared));
	if (!hash)
		hash = xk_hash_new(4);
	if (!list)
		list = xk_calloc(1, sizeof(*list));
	if (shared)
		lock = &shared->lock;
	return shared && hash && list;
}

static __always_inline int get(__u64 key)
{
	struct xk_item __heap *item = xk_hash_find(hash, key);

	answered.value = item ? item->value : 0;
	return !!item;
}

static __always_inline int count(void)
{
	xk_lock(&shared->lock);
	shared->counter++;
	xk_unlock(&shared->lock);
	return 1;
}

SEC("fentry/__x64_sys_getpgid")
int BPF_PROG(on_getpgid, struct pt_regs *regs)
{
	__u64 operation = BPF_CORE_READ(regs, di), key = asked.key, value = asked.value;
	int done = 0;

	XK_USE_HEAP();
	if (operation < PREPARE || operation > LOAD)
		return 0;
	answered.done = 0;
	answered.runs++;
	switch (operation) {
	case PREPARE:
		done = prepare();
		break;
	case SET:
		done = xk_hash_set(hash, key, value);
		break;
	case GET:
		done = get(key);
		break;
	case REMOVE:
		done = xk_hash_remove(hash, key);
		break;
	case PUSH:
		done = xk_list_push(list, key, value);
		break;
	case TAKE:
		answered.value = (__u64)xk_malloc(key);
		done = !!answered.value;
		break;
	case COUNT:
		done = count();
		break;
	case ENDLESS:
		while (turns != ~0ULL)
			turns++;	/* endless */
		break;
	case LOAD:
		answered.value = *(volatile __u64 __heap *)key;	/* loads */
		done = 1;
		break;
	}
	answered.done = done;
	return version - 7;
}
