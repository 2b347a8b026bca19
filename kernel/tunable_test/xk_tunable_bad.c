// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptions that xk_tunable.ko must refuse, each for one reason, and some valid ones. The
 * expansion of the macros is written out, so that one field can differ.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "../tunable/xk_tunable.h"

static int value = 1;

XK_TUNABLE_VARIABLE(value, value);

static int get_meter(const struct xk_meter *meter, u64 *of, u64 *per)
{
	return 0;
}

/* Valid, unless the arguments override a field. */
#define PARAMETER(ident, ...) \
	static const struct xk_tunable ident##_parameter = { \
		XK_TUNABLE_HEAD(bad, struct xk_tunable, XK_TUNABLE_PARAMETER, #ident), \
		.min = 1, .max = 9, .step = 1, .default_value = 1, \
		.get = value_get, .set = value_set, __VA_ARGS__ \
	}; \
	XK_TUNABLE_ENTRY(ident, &ident##_parameter)

#define METER(ident, ...) \
	static const struct xk_meter ident##_meter = { \
		XK_TUNABLE_HEAD(bad, struct xk_meter, XK_TUNABLE_METER, #ident), \
		.role = XK_METER_SENSOR, .get = get_meter, __VA_ARGS__ \
	}; \
	XK_TUNABLE_ENTRY(ident, &ident##_meter)

#pragma GCC diagnostic ignored "-Woverride-init"

PARAMETER(good);
PARAMETER(magic, .head.magic = 1);
PARAMETER(api, .head.api = XK_TUNABLE_API + 1);
PARAMETER(record, .head.record = 3);
PARAMETER(bytes, .head.size = sizeof(struct xk_tunable) - 8);
PARAMETER(spaced, .head.name = "two words");
PARAMETER(unnamed, .head.name = "");
PARAMETER(endless, .head.name =
	  "a123456789b123456789c123456789d123456789e123456789f123456789g123456789");
PARAMETER(homeless, .head.subsystem = NULL);
PARAMETER(flags, .flags = 2);
PARAMETER(getless, .get = NULL);
PARAMETER(foreign, .set = (void *)kfree);
PARAMETER(inverted, .min = 10);
PARAMETER(outside, .default_value = 10);
PARAMETER(stepless, .step = 0);
PARAMETER(doubling, .steps = XK_TUNABLE_EXPONENTIAL, .step = 1);
PARAMETER(negative, .steps = XK_TUNABLE_EXPONENTIAL, .step = 2, .min = -1);
PARAMETER(steps, .steps = 3);
/* The compiler chooses which of the two comes first. */
PARAMETER(once, .head.name = "one_of_two");
PARAMETER(twice, .head.name = "one_of_two");
PARAMETER(dependent, .only_if = "nobody", .only_if_value = 1);
PARAMETER(selfish, .only_if = "selfish", .only_if_value = 1);
PARAMETER(unreachable, .only_if = "good", .only_if_value = 10);
/* What they depend on is refused, once for a reason of its own and once for this one. */
PARAMETER(second, .only_if = "outside", .only_if_value = 1);
PARAMETER(third, .only_if = "second", .only_if_value = 1);

static const char *const one[] = { "alone" };
static const char *const same[] = { "same", "same" };
static const char *const digits[] = { "one", "2" };

PARAMETER(choiceless, .steps = XK_TUNABLE_CHOICE, .nr_choices = 2, .default_value = 0);
PARAMETER(only, .steps = XK_TUNABLE_CHOICE, .choices = one, .nr_choices = 1,
	  .default_value = 0);
PARAMETER(alike, .steps = XK_TUNABLE_CHOICE, .choices = same, .nr_choices = 2,
	  .default_value = 0);
PARAMETER(numeric, .steps = XK_TUNABLE_CHOICE, .choices = digits, .nr_choices = 2,
	  .default_value = 0);

/* Checked data must not change later, and this description is writable. */
static struct xk_tunable writable = {
	XK_TUNABLE_HEAD(bad, struct xk_tunable, XK_TUNABLE_PARAMETER, "writable"),
	.min = 1, .max = 9, .step = 1, .default_value = 1, .get = value_get, .set = value_set,
};

XK_TUNABLE_ENTRY(writable, &writable);

static char name_in_data[8] = "in_data";

PARAMETER(named_in_data, .head.name = name_in_data);

XK_TUNABLE_ENTRY(nowhere, NULL);

METER(good_sensor);
METER(first_target, .role = XK_METER_TARGET);
METER(second_target, .role = XK_METER_TARGET);
METER(first_sensor, .head.name = "one_of_two");
METER(second_sensor, .head.name = "one_of_two");
METER(role, .role = 4);
METER(share, .limit = 1001);
METER(limitless, .role = XK_METER_BOTTLENECK);
METER(rated, .flags = XK_METER_RATE);
METER(limited, .role = XK_METER_TARGET, .limit = 1);
METER(foreign_meter, .get = (void *)kfree);

static int __init xk_tunable_bad_init(void)
{
	return 0;
}

static void __exit xk_tunable_bad_exit(void)
{
}

module_init(xk_tunable_bad_init);
module_exit(xk_tunable_bad_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Descriptions for xk tune that are wrong, for tests");
