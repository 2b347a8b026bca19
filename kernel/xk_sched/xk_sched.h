/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For authors of schedulers: what a policy is, what it is told, and what it may call. A policy is a
 * module that fills a struct xk_sched_policy and registers it. docs/sched.md explains it by an
 * example. xk_sched.ko calls the events, checks their effects, and ejects a policy that breaks a
 * rule: its threads go on in the fair class.
 */
#ifndef _XK_SCHED_H
#define _XK_SCHED_H

#include <linux/cpumask.h>
#include <linux/device/driver.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rbtree.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct xk_queue;
struct xk_sched_policy;

/*
 * A thread of a policy is READY in exactly one queue, or in none. READY_TICK: it runs and shall
 * stop, and will then be READY in the queue that it was given. MIGRATING: the kernel has taken it
 * out of its queue, and will place it again.
 */
enum xk_state {
	XK_NOT_QUEUED,		/* has joined the policy, and was not placed yet */
	XK_READY,
	XK_READY_TICK,
	XK_RUNNING,
	XK_BLOCKED,
	XK_MIGRATING,
	XK_TERMINATED,		/* has left the policy */
	XK_NR_STATES,
};

/* Bytes of each thread that belong to its policy. They are zero when a thread joins. */
#define XK_THREAD_DATA 128

/* Only xk_change_state() and xk_steal() change anything but `data`. */
struct xk_thread {
	struct task_struct *task;
	struct xk_sched_policy *policy;	/* NULL: none */
	enum xk_state state;
	int core;			/* whose lock protects this structure */
	struct xk_queue *queue;		/* NULL unless READY */
	u64 data[XK_THREAD_DATA / sizeof(u64)];
	/* Private to xk_sched.ko. */
	struct xk_queue *next_queue;	/* of a READY_TICK thread */
	union {
		struct list_head node;	/* in a queue */
		struct rb_node rb;
	};
	bool prepared;			/* new_prepare was called */
	bool enabled;			/* is in sched_ext's class */
	bool yielded;
	unsigned long ready_since;	/* jiffies */
	u64 nr_declined;	/* of its policy and core, when it became ready */
	u64 charged;		/* what it ran that was counted for its policy */
	u64 ready_at;		/* ns; 0: it is not ready, or that is not counted */
	int chosen_for;		/* a core, and 1; 0: unknown */
	struct list_head of_policy;
	u32 serial;		/* in its policy: 1 is the first thread that joined */
	struct xk_sched_policy *choice;	/* when it comes to sched_ext's class; xk_threads_lock */
	struct hlist_node hash;
	struct rcu_head rcu;
};

/* The policy's data of a thread, of this type. */
#define xk_thread_data(thread, type) ({					\
	static_assert(sizeof(type) <= XK_THREAD_DATA);			\
	(type *)(thread)->data;						\
})

/* Why a running thread stops while it is ready. */
enum xk_stop {
	XK_STOP_SLICE,		/* its time is over, or another thread preempts it */
	XK_STOP_YIELD,		/* sched_yield() */
};

/*
 * What happens to threads and cores. `core` is the number of a CPU. Interrupts are off and nothing
 * may sleep, except in init, exit, core_entry and core_exit. new_prepare and unblock_prepare run
 * with the thread's pi_lock only: they may look at queues, but change nothing. All others run with
 * the lock of the queues of `core`, and thread events with the run queue lock of the thread as
 * well (not for unblock_place of a thread that waited on a core which the policy has no more); they
 * may change the state of threads on this core only. Each event must leave its thread in the state
 * that is named here.
 */
struct xk_sched_events {
	int (*init)(struct xk_sched_policy *policy);
	void (*exit)(struct xk_sched_policy *policy);

	/* Return the core on which the thread shall be placed. Default: where it was last. */
	int (*new_prepare)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	int (*unblock_prepare)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	/* READY in a queue of this core. unblock_place is required, and the default of both. */
	void (*new_place)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	void (*unblock_place)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	/* After it was placed. */
	void (*new_end)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	void (*unblock_end)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	/* The thread runs: RUNNING, or READY_TICK with a queue of this core. */
	void (*tick)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	/* READY in a queue of this core. Default: unblock_place. */
	void (*yield)(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		      enum xk_stop why);
	/* BLOCKED. Default: that. */
	void (*block)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);
	/* TERMINATED: it exits, or leaves the policy. Default: that. */
	void (*terminate)(struct xk_sched_policy *policy, struct xk_thread *thread, int core);

	/* Make at most one READY thread of this core RUNNING. Required. */
	void (*schedule)(struct xk_sched_policy *policy, int core);
	/* No policy has a thread for this core: xk_steal(). */
	void (*newly_idle)(struct xk_sched_policy *policy, int core);
	void (*core_entry)(struct xk_sched_policy *policy, int core);
	void (*core_exit)(struct xk_sched_policy *policy, int core);

	/*
	 * Another policy's threads shall become this one's: `xk sched replace`. Returns 0, or an
	 * error if this one cannot. Without it, no policy can be replaced by this one. May sleep.
	 */
	int (*take_over)(struct xk_sched_policy *policy, const struct xk_sched_policy *old);
	/*
	 * All CPUs are stopped. The thread's data are still those of `old`, which had placed the
	 * thread before. It is RUNNING, BLOCKED, or MIGRATING; in the last case unblock_place
	 * follows. Default: the data are zero.
	 */
	void (*adopt)(struct xk_sched_policy *policy, struct xk_thread *thread, int core,
		      const struct xk_sched_policy *old);
};

#define XK_DEFAULT_WEIGHT 100
#define XK_MAX_WEIGHT 10000

struct xk_sched_policy {
	const char *name;		/* at most 31 characters */
	struct module *owner;
	const struct xk_sched_events *events;
	/*
	 * Of a core where several policies have threads, each gets a share in proportion to its
	 * weight. 1 to 10000; 0: 100. `xk sched weight` changes it.
	 */
	unsigned int weight;
	u64 slice_ns;			/* longest time without `yield`; 0: 20 ms; 100 us to 1 s */
	size_t core_size;		/* bytes of private data of each core */
	/*
	 * `schedule` may also be called right after a thread was placed, if no other waits for the
	 * core. The thread runs next then, whatever is placed later. Cheaper, and the same for a
	 * policy that runs threads in the order in which they come.
	 */
	bool eager;
	/* Private to xk_sched.ko. */
	int id;
	bool live;			/* false: ejected, or about to be removed */
	bool initialising;		/* `init` is being called */
	bool misplaced;			/* a queue may not live as long as the policy */
	void __percpu *core_data;
	struct xk_policy_core __percpu *cores;
	raw_spinlock_t lock;		/* of the list; taken inside of run queue locks */
	struct list_head threads;
	unsigned int nr_threads;
	u32 nr_joined;		/* since it was registered */
	u32 nr_queues;
	u64 nr_overdue;
	bool confined;			/* to some of the online CPUs: model/cpus.h */
	bool stranded;			/* none of `wanted` is online */
	struct cpumask *wanted;
	struct cpumask *cpus;		/* on which its threads may run, of those that are online */
	struct cpumask *next_cpus;
	struct irq_work ejecting;
	struct work_struct eject;
};

/* May sleep. Refuses a policy that lacks a required event, or whose name is taken. */
int xk_sched_register(struct xk_sched_policy *policy);
/* Its threads go to the fair class. No event is called after it. May sleep. */
void xk_sched_unregister(struct xk_sched_policy *policy);

/* A module that consists of one policy. */
#define module_xk_policy(policy)					\
	module_driver(policy, xk_sched_register, xk_sched_unregister)

/* The policy's private data of a core: zero at first. */
static inline void *xk_core_data(struct xk_sched_policy *policy, int core)
{
	return per_cpu_ptr(policy->core_data, core);
}

enum xk_queue_type {
	XK_FIFO,		/* in the order of insertion */
	XK_LIST,		/* ordered; equal threads in the order of insertion */
	XK_RBTREE,		/* the same, for many threads */
};

/* A queue belongs to a policy and to a core, whose lock protects it. */
struct xk_queue {
	struct xk_sched_policy *policy;
	int core;
	enum xk_queue_type type;
	unsigned int nr;
	u32 serial;		/* in its policy: 1 is the first that was initialised */
	union {
		struct list_head list;
		struct rb_root_cached tree;
	};
	/* Whether `left` runs before `right`. */
	bool (*before)(const struct xk_thread *left, const struct xk_thread *right);
};

/*
 * In `init`, for every possible CPU. `before` is needed unless the type is XK_FIFO. A queue lies in
 * xk_core_data() or in a static variable, so that it lives as long as the policy. Otherwise the
 * policy is not registered.
 */
void xk_queue_init(struct xk_queue *queue, struct xk_sched_policy *policy, int core,
		   enum xk_queue_type type,
		   bool (*before)(const struct xk_thread *left, const struct xk_thread *right));

/* The thread that is first in the queue, or NULL. */
struct xk_thread *xk_queue_first(struct xk_queue *queue);

/*
 * Changes the state of a thread, and takes it out of or puts it into a queue, as the new state
 * says. The event that is being called must allow it. Otherwise nothing changes, the policy is
 * ejected, and the result is -EINVAL. `queue` is NULL unless the state is READY or READY_TICK.
 */
int xk_change_state(struct xk_thread *thread, enum xk_state state, int core,
		    struct xk_queue *queue);

/*
 * In newly_idle: moves the first thread of the policy's queue of another core that may run on the
 * core of `to` into the queue `to`. Returns it, or NULL if there is none, or if the other core's
 * queues are locked.
 */
struct xk_thread *xk_steal(struct xk_queue *from, struct xk_queue *to);

/*
 * The online cores on which threads of the policy run: all, unless `xk sched cpus` says otherwise.
 * A thread whose affinity contains none of them runs where its affinity allows. A policy may look
 * at them, and need not: a thread is placed on one of them, whatever the policy returns.
 */
static inline const struct cpumask *xk_policy_cpus(const struct xk_sched_policy *policy)
{
	return READ_ONCE(policy->cpus);
}

/* Whether the policy's threads run on this core. */
static inline bool xk_policy_has(const struct xk_sched_policy *policy, int core)
{
	return likely(!READ_ONCE(policy->confined)) ||
	       cpumask_test_cpu(core, xk_policy_cpus(policy));
}

/* Whether the thread may run on this core, and its policy has it. In *_prepare. */
static inline bool xk_allowed(const struct xk_thread *thread, int core)
{
	return cpumask_test_cpu(core, thread->task->cpus_ptr) &&
	       xk_policy_has(thread->policy, core);
}

/*
 * In new_prepare and unblock_prepare: an idle core for the thread, of those that its policy has, or
 * the one where it was.
 */
int xk_idle_core(struct xk_thread *thread, int core);

/* In any event: the core stops the running thread of the class and calls `schedule`. */
void xk_preempt(int core);

#endif /* _XK_SCHED_H */
