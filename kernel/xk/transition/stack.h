/* SPDX-License-Identifier: GPL-2.0-only */
/* Where threads stand; stack.c. */
#ifndef _XK_STACK_H
#define _XK_STACK_H

#include <linux/sched.h>
#include <linux/types.h>

#define XK_STACK_DEPTH 24

/* One function on a stack. */
struct xk_frame {
	unsigned long address;		/* where it goes on */
	bool interrupted;		/* not in a call */
	bool calls_interrupted;		/* what it called was interrupted */
	bool in_stub;			/* of ours: see entry.S */
};

/* What was seen of a thread, for people. */
struct xk_blocker {
	pid_t pid;
	char comm[TASK_COMM_LEN];
	bool unreliable;		/* its stack could not be read to the end */
	bool stands;			/* a frame is what was looked for */
	unsigned int nr;
	unsigned long stack[XK_STACK_DEPTH];
};

/* Whether a frame is what is looked for. */
struct xk_look {
	bool (*stands)(const struct xk_frame *frame, void *data);
	void *data;
};

/*
 * Threads that were looked at without a stop, each with a reference, ascending by
 * address. None of them was inside, and none runs as long as its number of switches
 * is the same.
 */
struct xk_outside {
	unsigned int nr;
	unsigned int capacity;
	struct xk_outside_thread {
		struct task_struct *task;
		unsigned long switches;
	} at[] __counted_by(capacity);
};

/*
 * Whether a thread that does not run is inside, or may be since its stack cannot be
 * read. `seen` says where it is.
 */
bool xk_stack_look(struct task_struct *task, const struct xk_look *look,
		   struct xk_blocker *seen);

/* The same in a stop, where that is counted. */
bool xk_stack_look_stopped(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen);

/* The same while the machine goes on: true if it does not run, and is inside. */
bool xk_stack_look_running(struct task_struct *task, const struct xk_look *look,
			   struct xk_blocker *seen);

enum xk_stack_read {
	XK_STACK_READ,
	XK_STACK_UNREADABLE,
	XK_STACK_RUNS,		/* now, or while it was looked at */
};

/* Likewise: whether its stack can be read. */
enum xk_stack_read xk_stack_read_running(struct task_struct *task, const struct xk_look *look,
					 struct xk_blocker *seen);

/* A thread that is switched out; one without a stack has exited. */
bool xk_has_stack(const struct task_struct *task);

/*
 * Every thread, also those that exit. In a stop, or under rcu_read_lock(). False: of
 * those that exit, there may be more.
 */
bool xk_visit_threads(void (*visit)(struct task_struct *task, void *data), void *data);

/* At this moment; without `task` of all threads. May sleep. */
unsigned int xk_count_threads(void);

/*
 * Looks at all threads that are switched out while others go on running. NULL without
 * memory. `before` is what an earlier look with the same question found, or NULL; it is
 * freed. `inside` is called for each that was inside, unless it is NULL.
 */
struct xk_outside *xk_look_at_all(const struct xk_look *look, struct xk_outside *before,
				  void (*inside)(struct task_struct *task,
						 const struct xk_blocker *seen, void *data),
				  void *data);
void xk_outside_free(struct xk_outside *outside);

/* In a stop: it was outside, and has not run since. */
bool xk_is_outside(const struct xk_outside *outside, const struct task_struct *task);

#endif /* _XK_STACK_H */
