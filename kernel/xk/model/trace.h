/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tracepoints of xk.ko: /sys/kernel/tracing/events/xk. There is none for executions that
 * kprobes miss: kprobes count these without calling xk.ko, and xk status shows the number.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM xk

#if !defined(_XK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XK_TRACE_H

#include <linux/tracepoint.h>

#include "model/tune.h"

#define show_mode(mode) \
	__print_symbolic(mode, { XK_MODE_NOW, "now" }, { XK_MODE_TASK, "task" }, \
			 { XK_MODE_GLOBAL, "global" })

DECLARE_EVENT_CLASS(xk_tune,
	TP_PROTO(const struct xk_tune *tune),
	TP_ARGS(tune),
	TP_STRUCT__entry(
		__string(name, tune->name)
		__field(u32, id)
		__field(unsigned int, sites)
		__field(unsigned int, scopes)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->id = tune->id;
		__entry->sites = tune->nr_sites;
		__entry->scopes = tune->nr_scopes;
	),
	TP_printk("%s tune=%u sites=%u scopes=%u", __get_str(name), __entry->id,
		  __entry->sites, __entry->scopes)
);

DEFINE_EVENT(xk_tune, xk_load, TP_PROTO(const struct xk_tune *tune), TP_ARGS(tune));
DEFINE_EVENT(xk_tune, xk_unload, TP_PROTO(const struct xk_tune *tune), TP_ARGS(tune));

/* One event per tune of the transition. */
DECLARE_EVENT_CLASS(xk_transition,
	TP_PROTO(const struct xk_tune *tune, u32 mode, unsigned int stops, unsigned int inside,
		 s64 value),
	TP_ARGS(tune, mode, stops, inside, value),
	TP_STRUCT__entry(
		__string(name, tune->name)
		__field(u32, id)
		__field(u32, mode)
		__field(s64, in_force)
		__field(s64, value)
		__field(unsigned int, stops)
		__field(unsigned int, inside)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->id = tune->id;
		__entry->mode = mode;
		__entry->in_force = tune->values->value;
		__entry->value = value;
		__entry->stops = stops;
		__entry->inside = inside;
	),
	TP_printk("%s tune=%u mode=%s in_force=%lld value=%lld stops=%u inside=%u",
		  __get_str(name), __entry->id, show_mode(__entry->mode), __entry->in_force,
		  __entry->value, __entry->stops, __entry->inside)
);

#define DEFINE_TRANSITION_EVENT(name) \
DEFINE_EVENT(xk_transition, name, \
	TP_PROTO(const struct xk_tune *tune, u32 mode, unsigned int stops, unsigned int inside, \
		 s64 value), \
	TP_ARGS(tune, mode, stops, inside, value))

/* The transition begins. `value` is its target; in_force is still the old value. */
DEFINE_TRANSITION_EVENT(xk_transition_start);
/* `value` is in force for all threads except those that are inside. */
DEFINE_TRANSITION_EVENT(xk_flip);
/* All threads use `value`. */
DEFINE_TRANSITION_EVENT(xk_transition_finish);
/* The transition was given up. The old value stays in force, or comes back into force. */
DEFINE_TRANSITION_EVENT(xk_transition_abort);

/* The update could not access memory, so the default was used. */
TRACE_EVENT(xk_fault,
	TP_PROTO(const struct xk_live_site *site),
	TP_ARGS(site),
	TP_STRUCT__entry(
		__string(symbol, site->place.symbol)
		__field(u32, offset)
	),
	TP_fast_assign(
		__assign_str(symbol);
		__entry->offset = site->offset;
	),
	TP_printk("%s+0x%x", __get_str(symbol), __entry->offset)
);

/* All places of the attachment are probed. */
TRACE_EVENT(xk_probe_attach,
	TP_PROTO(const char *name, u32 id, unsigned int programs, unsigned int places,
		 unsigned int jumps, unsigned int stops),
	TP_ARGS(name, id, programs, places, jumps, stops),
	TP_STRUCT__entry(
		__string(name, name)
		__field(u32, id)
		__field(unsigned int, programs)
		__field(unsigned int, places)
		__field(unsigned int, jumps)
		__field(unsigned int, stops)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->id = id;
		__entry->programs = programs;
		__entry->places = places;
		__entry->jumps = jumps;
		__entry->stops = stops;
	),
	TP_printk("%s probe=%u programs=%u places=%u jumps=%u stops=%u", __get_str(name),
		  __entry->id, __entry->programs, __entry->places, __entry->jumps,
		  __entry->stops)
);

/* No place of the attachment is probed any more: detached, its lease or its owner has ended. */
TRACE_EVENT(xk_probe_detach,
	TP_PROTO(const char *name, u32 id, unsigned int stops),
	TP_ARGS(name, id, stops),
	TP_STRUCT__entry(
		__string(name, name)
		__field(u32, id)
		__field(unsigned int, stops)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->id = id;
		__entry->stops = stops;
	),
	TP_printk("%s probe=%u stops=%u", __get_str(name), __entry->id, __entry->stops)
);

#endif /* _XK_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH model
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
