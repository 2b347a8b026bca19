/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For developers of other modules: describes parameters of a module, and what shows
 * whether they are set well, so that `xk tune` finds them beside all other knobs. See
 * docs/module-api.md, and kernel/tunable_test for an example.
 *
 * Descriptions are static: no call, and no symbol of xk_tunable.ko. The module loads and
 * works without xk_tunable.ko, and in any order. Each description is also an entry of the
 * module's __param section, which leads xk_tunable.ko to it. (It is no parameter that
 * insmod takes.)
 *
 *	XK_TUNABLE(queue, depth, .steps = XK_TUNABLE_EXPONENTIAL, .min = 1, .max = 64,
 *		   .step = 2, .default_value = 4, .get = get_depth, .set = set_depth);
 *	XK_TARGET(queue, served, .get = get_served, .flags = XK_METER_RATE);
 *
 * Getters and setters may sleep. They are called between the end of the module's init
 * and the beginning of its exit only, in process context, those of one parameter one
 * after the other, and never to find out something about a value: what set() has not
 * refused must be what get() says afterwards.
 */
#ifndef _XK_TUNABLE_H
#define _XK_TUNABLE_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

#define XK_TUNABLE_MAGIC 0x786b7475
/* Raised by one whenever a structure below, or what it means, changes. */
#define XK_TUNABLE_API 1

/* What its entry in __param is called: this, and its name. */
#define XK_TUNABLE_PREFIX "xk_tunable_"

enum xk_tunable_record {
	XK_TUNABLE_PARAMETER = 1,	/* struct xk_tunable */
	XK_TUNABLE_METER = 2,		/* struct xk_meter */
};

/*
 * Names are letters, digits and `_`, up to 63; those of parameters are different
 * within a module, and those of meters.
 */
struct xk_tunable_head {
	u32 magic;
	u16 api;
	u16 record;		/* enum xk_tunable_record */
	u32 size;		/* of the structure that begins here */
	const char *subsystem;
	const char *name;
};

/* How a search goes through the values from min to max. */
enum xk_tunable_steps {
	XK_TUNABLE_LINEAR = 0,		/* adds step, which is 1 or more */
	XK_TUNABLE_EXPONENTIAL = 1,	/* multiplies by step, which is 2 or more */
	XK_TUNABLE_CHOICE = 2,		/* values are the numbers of `choices`, from 0 on */
};

/* A value that was proved better goes, when the tuner ends. It stays otherwise. */
#define XK_TUNABLE_REVERT BIT(0)

struct xk_tunable {
	struct xk_tunable_head head;
	u32 steps;		/* enum xk_tunable_steps */
	u32 flags;		/* XK_TUNABLE_REVERT */
	s64 min;
	s64 max;
	s64 step;
	s64 default_value;
	const char *const *choices;	/* words: names that begin with a letter, up to 31 */
	u32 nr_choices;		/* 2 to 16 */
	u32 settle_ms;		/* until the module is used to another value */
	/* The only one, of the same subsystem, that this depends on; or NULL. */
	const char *only_if;
	s64 only_if_value;	/* with another value of it, this makes no difference */
	int (*get)(const struct xk_tunable *tunable, s64 *value);
	int (*set)(const struct xk_tunable *tunable, s64 value);
	void *data;		/* theirs */
};

enum xk_meter_role {
	XK_METER_SENSOR = 1,		/* tells workloads apart */
	XK_METER_TARGET = 2,		/* is optimised */
	XK_METER_BOTTLENECK = 3,	/* shows whether the subsystem holds the work up */
};

/* Of a target: its growth per second counts, not the number at the end of a window. */
#define XK_METER_RATE BIT(0)
/* Of a target: less is better. */
#define XK_METER_MINIMISE BIT(1)
/* Of a sensor or bottleneck test: it is divided by what `per` grows by, not by seconds. */
#define XK_METER_PER BIT(2)

/* `of` and `per` only grow, but for a target without XK_METER_RATE. */
struct xk_meter {
	struct xk_tunable_head head;
	u32 role;		/* enum xk_meter_role */
	u32 flags;		/* XK_METER_* */
	/*
	 * In thousandths. Of a sensor: by what share of the larger two readings may
	 * differ and still be alike. Of a bottleneck test: the subsystem holds the work
	 * up from this reading on. Of a target: 0.
	 */
	u64 limit;
	int (*get)(const struct xk_meter *meter, u64 *of, u64 *per);
	void *data;		/* its own */
};

/* Nobody sets an entry of __param that is none. */
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

/* A parameter of a subsystem; what follows are fields of struct xk_tunable. */
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

/* The same in their roles; what follows are fields of struct xk_meter. */
#define XK_SENSOR(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_SENSOR, __VA_ARGS__)
#define XK_TARGET(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_TARGET, __VA_ARGS__)
#define XK_BOTTLENECK(subsystem, ident, ...) \
	XK_METER(subsystem, ident, .role = XK_METER_BOTTLENECK, __VA_ARGS__)

/* The two functions of a parameter that is a variable, and that takes effect by itself. */
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
