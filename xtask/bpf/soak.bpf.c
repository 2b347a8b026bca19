// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policies that use a map of every type that a program of type kprobe can use, for
 * `cargo xtask soak`. A process changes the same maps meanwhile. Every activation gets
 * another value, so that two decisions in one would be seen.
 *
 * Left out: program arrays, since xk.ko refuses tail calls; storage of sockets, inodes
 * and cgroups, whose owners such a program cannot name; arenas, which are for programs
 * that may sleep; maps of devices, sockets and processors, which are for packets; and
 * struct_ops.
 */
#include "xk.bpf.h"

#define ENTRIES 64

struct event {
	u64 value;
	u32 thread;
	u32 processor;
};

#define MAP(name, map_type, entries, key_type, value_type)	\
	struct {						\
		__uint(type, map_type);				\
		__uint(max_entries, entries);			\
		__type(key, key_type);				\
		__type(value, value_type);			\
	} name SEC(".maps")

MAP(hash, BPF_MAP_TYPE_HASH, ENTRIES, u32, u64);
MAP(array, BPF_MAP_TYPE_ARRAY, ENTRIES, u32, u64);
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, ENTRIES, u32, u64);
MAP(percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, ENTRIES, u32, u64);
MAP(lru_hash, BPF_MAP_TYPE_LRU_HASH, ENTRIES, u32, u64);
MAP(lru_percpu_hash, BPF_MAP_TYPE_LRU_PERCPU_HASH, ENTRIES, u32, u64);

/* Its entries are taken and given back while programs run. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ENTRIES);
	__type(key, u32);
	__type(value, u64);
} sparse_hash SEC(".maps");

struct prefix {
	u32 bits;
	u32 thread;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ENTRIES);
	__type(key, struct prefix);
	__type(value, u64);
} lpm_trie SEC(".maps");

#define VALUES(name, map_type)			\
	struct {				\
		__uint(type, map_type);		\
		__uint(max_entries, ENTRIES);	\
		__type(value, u64);		\
	} name SEC(".maps")

VALUES(queue, BPF_MAP_TYPE_QUEUE);
VALUES(stack, BPF_MAP_TYPE_STACK);
VALUES(bloom_filter, BPF_MAP_TYPE_BLOOM_FILTER);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16384);
} ringbuf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} user_ringbuf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} perf_event_array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 32 * sizeof(u64));
} stack_trace SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} cgroup_array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} task_storage SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
};

struct inner inner_a SEC(".maps"), inner_b SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct inner);
} array_of_maps SEC(".maps") = { .values = { &inner_a, &inner_b } };

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct inner);
} hash_of_maps SEC(".maps") = { .values = { &inner_a, &inner_b } };

/* In an array that the process maps. */
u64 decisions;
/* Not on the stack: Linux 7.3 forgets what such a call reads there. */
u64 wanted;

/* No two that follow each other are equal, and none is the default or the value beneath. */
static __always_inline u64 another(void)
{
	return 1000 + (__sync_fetch_and_add(&decisions, 1) & 0xffff);
}

static __always_inline void count_in(void *map, u32 key)
{
	u64 *count = bpf_map_lookup_elem(map, &key), one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(map, &key, &one, BPF_ANY);
}

static __always_inline u32 slot(void)
{
	return (u32)bpf_get_current_pid_tgid() & (ENTRIES - 1);
}

/* Tables by key. */
XK_TUNE(soak_tables, "RECURSE")
{
	struct prefix prefix = { 32, bpf_get_current_pid_tgid() };
	u32 key = slot(), inner_key = key & 3, outer_key = key & 1;
	u64 value = another();
	void *inner;

	count_in(&hash, key);
	count_in(&array, key);
	count_in(&percpu_hash, key);
	count_in(&percpu_array, key);
	count_in(&lru_hash, prefix.thread + (u32)value);
	count_in(&lru_percpu_hash, prefix.thread + (u32)value);
	count_in(&sparse_hash, key);
	if (value & 1)
		bpf_map_delete_elem(&sparse_hash, &key);
	bpf_map_update_elem(&lpm_trie, &prefix, &value, BPF_ANY);
	bpf_map_lookup_elem(&lpm_trie, &prefix);
	if (!(value & 3))
		bpf_map_delete_elem(&lpm_trie, &prefix);
	inner = bpf_map_lookup_elem(&array_of_maps, &outer_key);
	if (inner)
		count_in(inner, inner_key);
	inner = bpf_map_lookup_elem(&hash_of_maps, &outer_key);
	if (inner)
		count_in(inner, inner_key);
	xk_set(xk_ctx, value);
	return 0;
}

static long received(struct bpf_dynptr *sample, void *context)
{
	u64 value = 0;

	bpf_dynptr_read(&value, sizeof(value), sample, 0, 0);
	*(u64 *)context += value;
	return 0;
}

/* Streams. */
XK_TUNE(soak_streams, "AGREE")
{
	u64 value = another(), popped = 0, sum = 0;
	struct event event = { value, bpf_get_current_pid_tgid(), bpf_get_smp_processor_id() };

	bpf_map_push_elem(&queue, &value, BPF_EXIST);
	if (value & 1)
		bpf_map_pop_elem(&queue, &popped);
	bpf_map_push_elem(&stack, &value, BPF_EXIST);
	if (value & 1)
		bpf_map_pop_elem(&stack, &popped);
	bpf_map_push_elem(&bloom_filter, &value, BPF_ANY);
	bpf_map_peek_elem(&bloom_filter, &wanted);
	bpf_ringbuf_output(&ringbuf, &event, sizeof(event), 0);
	bpf_user_ringbuf_drain(&user_ringbuf, received, &sum, 0);
	bpf_perf_event_output(ctx, &perf_event_array, BPF_F_CURRENT_CPU, &event, sizeof(event));
	xk_set(xk_ctx, value);
	return 0;
}

/* What belongs to a thread; it sleeps meanwhile. */
XK_TUNE(soak_threads, "SLEEP")
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 value = another();
	u64 *count;

	count = bpf_task_storage_get(&task_storage, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (count)
		(*count)++;
	if (!(value & 7))
		bpf_task_storage_delete(&task_storage, task);
	bpf_get_stackid(ctx, &stack_trace, BPF_F_REUSE_STACKID);
	if (bpf_current_task_under_cgroup(&cgroup_array, 0) == 1)
		count_in(&hash, slot());
	xk_set(xk_ctx, value);
	return 0;
}
