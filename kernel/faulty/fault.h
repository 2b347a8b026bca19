/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before every file of xk.ko. Each function that allocates memory or pins a thread first
 * calls faulty_now(). Allocations, references and their releases are counted.
 */
#ifndef _XK_FAULTY_H
#define _XK_FAULTY_H

#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "base/compat.h"

bool faulty_now(void);
void faulty_took(int number);
void faulty_waited(void);

/* The result of a function that returns a pointer, or `failure` instead. */
#define faulty_or(call, failure)						\
({									\
	typeof(call) faulty_result = faulty_now() ? (failure) : (call);	\
	faulty_took(!IS_ERR_OR_NULL((void *)(unsigned long)faulty_result)); \
	faulty_result;							\
})

#undef kmalloc
#define kmalloc(...) faulty_or(alloc_hooks(kmalloc_noprof(__VA_ARGS__)), NULL)
#undef kzalloc
#define kzalloc(...) faulty_or(alloc_hooks(kzalloc_noprof(__VA_ARGS__)), NULL)
#undef kvmalloc
#define kvmalloc(size, flags) faulty_or(kvmalloc_node(size, flags, NUMA_NO_NODE), NULL)
#undef kvzalloc
#define kvzalloc(size, flags) kvmalloc(size, (flags) | __GFP_ZERO)
#undef kvmalloc_array
#define kvmalloc_array(...) faulty_or(alloc_hooks(kvmalloc_array_noprof(__VA_ARGS__)), NULL)
#undef kvcalloc
#define kvcalloc(...) faulty_or(alloc_hooks(kvcalloc_noprof(__VA_ARGS__)), NULL)
#define kmemdup_array(...) faulty_or(kmemdup_array(__VA_ARGS__), NULL)
#undef alloc_percpu
#define alloc_percpu(type)						\
	((typeof(type) __percpu *)__alloc_percpu(sizeof(type), __alignof__(type)))
#undef __alloc_percpu
#define __alloc_percpu(size, align)					\
	faulty_or(alloc_hooks(pcpu_alloc_noprof(size, align, false, GFP_KERNEL)), NULL)

#define memdup_user(...) faulty_or(memdup_user(__VA_ARGS__), ERR_PTR(-ENOMEM))
#define vmemdup_user(...) faulty_or(vmemdup_user(__VA_ARGS__), ERR_PTR(-ENOMEM))
#define memdup_array_user(...) faulty_or(memdup_array_user(__VA_ARGS__), ERR_PTR(-ENOMEM))
#define vmemdup_array_user(...) faulty_or(vmemdup_array_user(__VA_ARGS__), ERR_PTR(-ENOMEM))

#define vmap(...) faulty_or(vmap(__VA_ARGS__), NULL)

/* These allocate memory that only they release, so it is not counted. */
#undef alloc_workqueue
#define alloc_workqueue(...) (faulty_now() ? NULL : compat_alloc_workqueue(__VA_ARGS__))
#define register_kprobe(kprobe) (faulty_now() ? -ENOMEM : register_kprobe(kprobe))

static inline void faulty_kfree(const void *pointer)
{
	faulty_took(-!!pointer);
	kfree(pointer);
}

static inline void faulty_kvfree(const void *pointer)
{
	faulty_took(-!!pointer);
	kvfree(pointer);
}

static inline void faulty_free_percpu(void __percpu *pointer)
{
	faulty_took(-!!(unsigned long)pointer);
	free_percpu(pointer);
}

static inline void faulty_vunmap(const void *address)
{
	faulty_took(-!!address);
	vunmap(address);
}

#define vunmap(address) faulty_vunmap(address)
#define kfree(pointer) faulty_kfree(pointer)
#define kvfree(pointer) faulty_kvfree(pointer)
#define free_percpu(pointer) faulty_free_percpu(pointer)
#undef kvfree_rcu
#define kvfree_rcu(pointer, head) ({ faulty_took(-1); kvfree_rcu_arg_2(pointer, head); })

/* Counts executions of the path for the case that there is no memory for a stop. */
#define synchronize_rcu() ({ synchronize_rcu(); faulty_waited(); })

/* Not memory, but references can leak as easily. */
#define get_task_struct(task) ({ faulty_took(1); get_task_struct(task); })
#define get_pid_task(pid, type)						\
({									\
	struct task_struct *faulty_task = get_pid_task(pid, type);	\
	faulty_took(!!faulty_task);					\
	faulty_task;							\
})
#define put_task_struct(task) ({ faulty_took(-1); put_task_struct(task); })

#endif /* _XK_FAULTY_H */
