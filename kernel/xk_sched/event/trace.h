/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tracepoints of xk_sched.ko: /sys/kernel/tracing/events/xk_sched. In an event, they are used
 * while context->changing is set, so that no event is left in a tracer.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM xk_sched

#if !defined(_XK_SCHED_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XK_SCHED_TRACE_H

#include <linux/tracepoint.h>

#include "event/context.h"
#include "uapi/xk_sched.h"

#define show_state(state) \
	__print_symbolic(state, { XK_NOT_QUEUED, "NOT_QUEUED" }, { XK_READY, "READY" }, \
			 { XK_READY_TICK, "READY_TICK" }, { XK_RUNNING, "RUNNING" }, \
			 { XK_BLOCKED, "BLOCKED" }, { XK_MIGRATING, "MIGRATING" }, \
			 { XK_TERMINATED, "TERMINATED" })

#define show_event(event) \
	__print_symbolic(event, { XK_NO_EVENT, "kernel" }, { XK_NEW_PLACE, "new_place" }, \
			 { XK_UNBLOCK_PLACE, "unblock_place" }, { XK_TICK, "tick" }, \
			 { XK_YIELD, "yield" }, { XK_BLOCK, "block" }, \
			 { XK_TERMINATE, "terminate" }, { XK_SCHEDULE, "schedule" })

/* A policy changes the state of a thread, or the kernel takes the thread out of its queue. */
TRACE_EVENT(xk_sched_change,
	TP_PROTO(const struct xk_thread *thread, enum xk_event event, enum xk_state to),
	TP_ARGS(thread, event, to),
	TP_STRUCT__entry(
		__string(policy, thread->policy->name)
		__array(char, comm, TASK_COMM_LEN)
		__field(pid_t, pid)
		__field(int, core)
		__field(u8, event)
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		__assign_str(policy);
		memcpy(__entry->comm, thread->task->comm, TASK_COMM_LEN);
		__entry->pid = thread->task->pid;
		__entry->core = thread->core;
		__entry->event = event;
		__entry->from = thread->state;
		__entry->to = to;
	),
	TP_printk("policy=%s comm=%s pid=%d event=%s core=%d %s -> %s", __get_str(policy),
		  __entry->comm, __entry->pid, show_event(__entry->event), __entry->core,
		  show_state(__entry->from), show_state(__entry->to))
);

/* A ready thread goes to another core: it is stolen, or the CPUs of its policy have changed. */
TRACE_EVENT(xk_sched_move,
	TP_PROTO(const struct xk_thread *thread, int to),
	TP_ARGS(thread, to),
	TP_STRUCT__entry(
		__string(policy, thread->policy->name)
		__array(char, comm, TASK_COMM_LEN)
		__field(pid_t, pid)
		__field(int, from)
		__field(int, to)
	),
	TP_fast_assign(
		__assign_str(policy);
		memcpy(__entry->comm, thread->task->comm, TASK_COMM_LEN);
		__entry->pid = thread->task->pid;
		__entry->from = thread->core;
		__entry->to = to;
	),
	TP_printk("policy=%s comm=%s pid=%d core=%d -> %d", __get_str(policy), __entry->comm,
		  __entry->pid, __entry->from, __entry->to)
);

TRACE_EVENT(xk_sched_eject,
	TP_PROTO(const struct xk_sched_report *report),
	TP_ARGS(report),
	TP_STRUCT__entry(
		__string(policy, report->policy)
		__string(event, report->event)
		__string(text, report->text)
		__field(pid_t, pid)
		__field(int, core)
	),
	TP_fast_assign(
		__assign_str(policy);
		__assign_str(event);
		__assign_str(text);
		__entry->pid = report->pid;
		__entry->core = report->core;
	),
	TP_printk("policy=%s event=%s pid=%d core=%d: %s", __get_str(policy), __get_str(event),
		  __entry->pid, __entry->core, __get_str(text))
);

#endif /* _XK_SCHED_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH event
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
