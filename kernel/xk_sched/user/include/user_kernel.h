/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What policies and the core use of the kernel, for user space. One thread executes all cores, so
 * locks are not needed. All headers <linux/..> of a policy lead here: see Makefile.
 */
#ifndef _XK_USER_KERNEL_H
#define _XK_USER_KERNEL_H

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <asm/types.h>
#include <sys/types.h>

typedef __s8 s8;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#define __user
#define __percpu
#define __init
#define __exit
#undef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#define __printf(a, b) __attribute__((__format__(__printf__, a, b)))
#define __noreturn __attribute__((__noreturn__))
#define fallthrough __attribute__((__fallthrough__))
#define likely(x) (x)
#define unlikely(x) (x)
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define smp_store_release(pointer, value) WRITE_ONCE(*(pointer), value)
#define BIT(nr) (1UL << (nr))
#define BITS_PER_LONG 64
#define static_assert _Static_assert
#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))
#define WARN_ON_ONCE(condition) (condition)

#define min(a, b) ({ \
	__typeof__(a) left_ = (a); \
	__typeof__(b) right_ = (b); \
	left_ < right_ ? left_ : right_; \
})
#define max(a, b) ({ \
	__typeof__(a) left_ = (a); \
	__typeof__(b) right_ = (b); \
	left_ > right_ ? left_ : right_; \
})
#define min_t(type, a, b) min((type)(a), (type)(b))
#define max_t(type, a, b) max((type)(a), (type)(b))
#define clamp(value, low, high) min(max(value, low), high)

#define USEC_PER_MSEC 1000L
#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L

static inline u32 __ffs(u32 word)
{
	return __builtin_ctz(word);
}

static inline bool is_power_of_2(u64 word)
{
	return word && !(word & (word - 1));
}

#define for_each_set_bit(bit, words, size)			\
	for ((bit) = 0; (bit) < (size); (bit)++)		\
		if (*(words) & BIT(bit))

/* As strscpy() to an array. */
static inline void xk_user_copy(char *to, const char *from, size_t size)
{
	size_t length = strnlen(from, size - 1);

	memcpy(to, from, length);
	to[length] = '\0';
}

#define strscpy(to, from) xk_user_copy(to, from, sizeof(to))

#define ERR_PTR(error) ((void *)(long)(error))
#define pr_err(...) fprintf(stderr, __VA_ARGS__)
#define pr_warn(...) fprintf(stderr, __VA_ARGS__)

/* Modules. A policy's is the program. */
struct module;

#define THIS_MODULE ((struct module *)&xk_user_init)
#define EXPORT_SYMBOL_GPL(name) static_assert(sizeof(&(name)) > 0, "a symbol")
#define MODULE_LICENSE(text) static_assert(sizeof(text) > 0, "a license")
#define MODULE_DESCRIPTION(text) static_assert(sizeof(text) > 0, "a description")
#define MODULE_PARM_DESC(name, text) static_assert(sizeof(text) > 0, "a description")

extern int (*const xk_user_init)(void);

#define module_init(function) int (*const xk_user_init)(void) = function
#define module_exit(function) void (*const xk_user_exit)(void) = function
#define module_driver(driver, register, unregister)	\
	static int xk_user_register(void)		\
	{						\
		return register(&(driver));		\
	}						\
	module_init(xk_user_register)

void xk_user_parameter(const char *name, const char *type, void *variable);

#define module_param(name, type, mode)						\
	static void __attribute__((__constructor__)) xk_user_param_##name(void)	\
	{									\
		xk_user_parameter(#name, #type, &(name));			\
	}									\
	static_assert(mode >= 0, "a mode")

extern char __data_start[], _end[];

static inline bool within_module_core(unsigned long address, const struct module *module)
{
	return address >= (unsigned long)__data_start && address < (unsigned long)_end;
}

/* Memory of each core: an offset into its copy of the section. */
#define DECLARE_PER_CPU(type, name) extern __typeof__(type) name
#define DECLARE_PER_CPU_ALIGNED DECLARE_PER_CPU
#define DEFINE_PER_CPU(type, name) \
	__typeof__(type) name __attribute__((__section__("percpu")))
#define DEFINE_PER_CPU_ALIGNED DEFINE_PER_CPU

extern char __start_percpu[], __stop_percpu[];

void *xk_user_percpu(const void *pointer, int core);
void *__alloc_percpu(size_t size, size_t alignment);

#define alloc_percpu(type) __alloc_percpu(sizeof(type), __alignof__(type))
#define free_percpu(pointer) ((void)(pointer))
#define per_cpu_ptr(pointer, core) \
	((__typeof__(*(pointer)) *)xk_user_percpu(pointer, core))
#define this_cpu_ptr(pointer) per_cpu_ptr(pointer, xk_user_core)
#define __this_cpu_read(variable) (*this_cpu_ptr(&(variable)))
#define __this_cpu_write(variable, value) (*this_cpu_ptr(&(variable)) = (value))

/* The core that executes, and its task; one does nothing. */
extern int xk_user_core;
extern struct task_struct *xk_user_current[], xk_user_idle;

#define smp_processor_id() xk_user_core
#define current (xk_user_current[xk_user_core] ?: &xk_user_idle)
#define preempt_count() 0
#define irqs_disabled() true
#define jiffies 0ul
#define CONFIG_PREEMPT_COUNT 1

typedef struct {
	int counter;
} atomic_t;

#define atomic_read(atomic) ((atomic)->counter)
#define atomic_set(atomic, value) ((atomic)->counter = (value))
#define atomic_inc(atomic) ((atomic)->counter++)
#define atomic_dec(atomic) ((atomic)->counter--)

/* Locks. Whether another core has the lock is decided by whoever made it up. */
typedef struct {
	int unused;
} raw_spinlock_t;

struct mutex {
	int unused;
};

bool xk_user_trylock(void);

#define DEFINE_MUTEX(name) struct mutex name
#define DEFINE_RAW_SPINLOCK(name) raw_spinlock_t name
#define raw_spin_lock_init(lock) ((void)(lock))
#define raw_spin_lock(lock) ((void)(lock))
#define raw_spin_unlock(lock) ((void)(lock))
#define raw_spin_lock_irqsave(lock, flags) ((void)(lock), (flags) = 0)
#define raw_spin_unlock_irqrestore(lock, flags) ((void)(flags))
#define raw_spin_trylock(lock) xk_user_trylock()
#define lockdep_assert_held(lock) ((void)(lock))
#define mutex_lock(lock) ((void)(lock))
#define mutex_unlock(lock) ((void)(lock))
#define synchronize_rcu() ((void)0)
#define kick_all_cpus_sync() ((void)0)
#define raw_spin_lock_irq(lock) ((void)(lock))
#define raw_spin_unlock_irq(lock) ((void)(lock))
#define xchg(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_RELAXED)

/* Nobody looks at counters. */
#define DECLARE_STATIC_KEY_FALSE(name) extern const bool name
#define DEFINE_STATIC_KEY_FALSE(name) const bool name = false
#define static_branch_unlikely(key) (*(key))
#define static_branch_enable(key) ((void)(key))
#define static_branch_disable(key) ((void)(key))
#define ktime_get_mono_fast_ns() 0ull
#define fls64(word) ((word) ? 64 - __builtin_clzll(word) : 0)

struct irq_work {
	int unused;
};

struct work_struct {
	int unused;
};

struct delayed_work {
	struct work_struct work;
};

#define irq_work_queue(work) ((void)(work))

#define GFP_KERNEL 0
#define kzalloc(size, flags) calloc(1, size)

/* For policies that make mistakes. */
#define kfree(pointer) free(pointer)
#define cpu_relax() ((void)0)
#define msleep(time) abort()
#define DECLARE_DELAYED_WORK(name, function) \
	struct delayed_work name; \
	static_assert(sizeof(&(function)) > 0, "a function")
#define to_delayed_work(pointer) container_of(pointer, struct delayed_work, work)
#define schedule_delayed_work(work, delay) ((void)(work))
#define cancel_delayed_work_sync(work) ((void)(work))

#include "cpumask.h"
#include "list.h"
#include "task.h"
#include "tree.h"

#endif /* _XK_USER_KERNEL_H */
