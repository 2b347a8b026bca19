/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For developers of other modules: describes the parameters of a module, and meters that show
 * whether they are set well. `xk tune` then finds them like all other knobs. See
 * docs/module-api.md, and kernel/tunable_test for an example.
 *
 * Descriptions are static. They need no call and no symbol of xk_tunable.ko. The module loads and
 * works without xk_tunable.ko, and in any order. Each description is also an entry in the __param
 * section of the module, where xk_tunable.ko finds it. (It is not a parameter for insmod.)
 *
 *	XK_TUNABLE(queue, depth, .steps = XK_TUNABLE_EXPONENTIAL, .min = 1, .max = 64,
 *		   .step = 2, .default_value = 4, .get = get_depth, .set = set_depth);
 *	XK_TARGET(queue, served, .get = get_served, .flags = XK_METER_RATE);
 *
 * Getters and setters may sleep. They are called only between the end of the module's init and the
 * start of its exit, in process context. Calls for one parameter do not overlap. A setter is never
 * called only to test a value: if set() accepts a value, get() must return it afterwards.
 */
#ifndef _XK_TUNABLE_H
#define _XK_TUNABLE_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

#define XK_TUNABLE_MAGIC 0x786b7475
/* Incremented whenever a structure below, or its meaning, changes. */
#define XK_TUNABLE_API 1

/* The name of an entry in __param: this prefix and the name. */
#define XK_TUNABLE_PREFIX "xk_tunable_"

enum xk_tunable_record {
	XK_TUNABLE_PARAMETER = 1,	/* struct xk_tunable */
	XK_TUNABLE_METER = 2,		/* struct xk_meter */
};

/*
 * Names consist of up to 63 letters, digits and `_`. The parameters of a module have different
 * names, and so have its meters.
 */
struct xk_tunable_head {
	u32 magic;
	u16 api;
	u16 record;		/* enum xk_tunable_record */
	u32 size;		/* of the structure that begins here */
	const char *subsystem;
	const char *name;
};

/* How a search steps through the values from min to max. */
enum xk_tunable_steps {
	XK_TUNABLE_LINEAR = 0,		/* adds step, which is 1 or more */
	XK_TUNABLE_EXPONENTIAL = 1,	/* multiplies by step, which is 2 or more */
	XK_TUNABLE_CHOICE = 2,		/* values are the indices of `choices`, from 0 */
};

/* A confirmed value is reverted when the tuner ends. Without this flag it stays. */
#define XK_TUNABLE_REVERT BIT(0)

struct xk_tunable {
	struct xk_tunable_head head;
	u32 steps;		/* enum xk_tunable_steps */
	u32 flags;		/* XK_TUNABLE_REVERT */
	s64 min;
	s64 max;
	s64 step;
	s64 default_value;
	const char *const *choices;	/* names that begin with a letter, up to 31 characters */
	u32 nr_choices;		/* 2 to 16 */
	u32 settle_ms;		/* settle time: how long the module takes to adapt */
	/* The one parameter of the same subsystem on which this one depends; or NULL. */
	const char *only_if;
	s64 only_if_value;	/* with another value of that one, this has no effect */
	int (*get)(const struct xk_tunable *tunable, s64 *value);
	int (*set)(const struct xk_tunable *tunable, s64 value);
	void *data;		/* for get() and set() */
};

enum xk_meter_role {
	XK_METER_SENSOR = 1,		/* identifies the workload */
	XK_METER_TARGET = 2,		/* is optimised */
	XK_METER_BOTTLENECK = 3,	/* shows whether the subsystem limits the target */
};

/* Of a target: the growth per second counts, not the number at the end of a window. */
#define XK_METER_RATE BIT(0)
/* Of a target: less is better. */
#define XK_METER_MINIMISE BIT(1)
/* Of a sensor or bottleneck test: divided by the growth of `per`, not by seconds. */
#define XK_METER_PER BIT(2)

/* `of` and `per` never decrease, except for a target without XK_METER_RATE. */
struct xk_meter {
	struct xk_tunable_head head;
	u32 role;		/* enum xk_meter_role */
	u32 flags;		/* XK_METER_* */
	/*
	 * In thousandths. Of a sensor: the relative difference up to which two readings count as
	 * alike, as a share of the larger one. Of a bottleneck test: the reading from which on the
	 * subsystem limits the target. Of a target: 0.
	 */
	u64 limit;
	int (*get)(const struct xk_meter *meter, u64 *of, u64 *per);
	void *data;		/* for get() */
};

/* The entry in __param is not a parameter and cannot be set. */
static inline int xk_tunable_no_parameter(const char *text, const struct kernel_param *entry)
{
	return -EINVAL;
}

static const struct kernel_param_ops xk_tunable_ops __maybe_unused = {
	.set = xk_tunable_no_parameter,
};

#define XK_TUNABLE_HEAD(in, of, kind, called) \
	.head = { \
		.magic = XK_TUNABLE_MAGIC, .api = XK_TUNABLE_API, .record = kind, \
		.size = sizeof(of), .subsystem = #in, .name = called, \
	}

/* Leads xk_tunable.ko to the description, which may lie in any read-only section. */
#define XK_TUNABLE_ENTRY(ident, description) \
	__module_param_call("", xk_tunable_##ident, &xk_tunable_ops, (void *)(description), \
			    0, -1, 0)

/* A parameter of a subsystem. The other arguments are fields of struct xk_tunable. */
#define XK_TUNABLE(subsystem, ident, ...) \
	static const struct xk_tunable xk_parameter_##ident __used __section("xk_tunables") = { \
		XK_TUNABLE_HEAD(subsystem, struct xk_tunable, XK_TUNABLE_PARAMETER, #ident), \
		__VA_ARGS__ \
	}; \
	XK_TUNABLE_ENTRY(ident, &xk_parameter_##ident)

#define XK_METER(subsystem, ident, ...) \
	static const struct xk_meter xk_meter_##ident __used __section("xk_tunables") = { \
		XK_TUNABLE_HEAD(subsystem, struct xk_meter, XK_TUNABLE_METER, #ident), \
		__VA_ARGS__ \
	}; \
	XK_TUNABLE_ENTRY(meter_##ident, &xk_meter_##ident)

/* Meters by role. The other arguments are fields of struct xk_meter. */
#define XK_SENSOR(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_SENSOR, __VA_ARGS__)
#define XK_TARGET(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_TARGET, __VA_ARGS__)
#define XK_BOTTLENECK(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_BOTTLENECK, __VA_ARGS__)

/* The two functions of a parameter that is a variable and takes effect without further action. */
#define XK_TUNABLE_VARIABLE(ident, variable) \
	static typeof(variable) *const ident##_variable = &(variable); \
	static int ident##_get(const struct xk_tunable *tunable, s64 *value) \
	{ \
		*value = READ_ONCE(*ident##_variable); \
		return 0; \
	} \
	static int ident##_set(const struct xk_tunable *tunable, s64 value) \
	{ \
		WRITE_ONCE(*ident##_variable, value); \
		return 0; \
	}

#endif /* _XK_TUNABLE_H */
