// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds the descriptions in another module, and checks them before anything of them is used. Input
 * is a module. Output is its valid parameters and meters. Each invalid one is refused separately,
 * with its reason in the kernel's log.
 *
 * The descriptions are found by their entries in the __param section of the module. Of all sections
 * that a module can add to, this is the only one whose bounds struct module always contains,
 * whatever symbols the module was stripped of. Names of sections are private to the kernel, and
 * nothing defines __start_ and __stop_ symbols in a module.
 */
#include <linux/ctype.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "tunable.h"
#include "uapi/xk_parameter.h"

#define PREFIX_LEN (sizeof(XK_TUNABLE_PREFIX) - 1)

static_assert((int)XK_TUNABLE_LINEAR == (int)XK_PARAMETER_LINEAR);
static_assert((int)XK_TUNABLE_EXPONENTIAL == (int)XK_PARAMETER_EXPONENTIAL);
static_assert((int)XK_TUNABLE_CHOICE == (int)XK_PARAMETER_CHOICE);

bool xk_tunable_accepts(const struct xk_tunable *tunable, s64 value)
{
	if (tunable->steps == XK_TUNABLE_CHOICE)
		return value >= 0 && value < tunable->nr_choices;
	return value >= tunable->min && value <= tunable->max;
}

/* Bytes from there to the end of the module's read-only data; 0 if it does not lie there. */
static size_t left_in_rodata(const struct module *module, const void *pointer)
{
	const struct module_memory *memory = &module->mem[MOD_RODATA];
	unsigned long address = (unsigned long)pointer, start = (unsigned long)memory->base;

	if (address < start || address - start >= memory->size)
		return 0;
	return memory->size - (address - start);
}

/* Checked data must not change later, so it must be read-only. */
static bool is_constant(const struct module *module, const void *pointer, size_t size,
			size_t alignment)
{
	return IS_ALIGNED((unsigned long)pointer, alignment) &&
	       left_in_rodata(module, pointer) >= size;
}

static bool is_code(const struct module *module, const void *function)
{
	return within_module_mem_type((unsigned long)function, module, MOD_TEXT);
}

/* Checks a name of less than `size` characters. Returns NULL, or what is wrong with it. */
static const char *check_name(const struct module *module, const char *name, size_t size)
{
	size_t left = left_in_rodata(module, name), len, i;

	if (!left)
		return "does not lie in the module's read-only data";
	len = strnlen(name, min(left, size));
	if (!len || len == min(left, size))
		return "is empty, or too long";
	for (i = 0; i < len; i++)
		if (!isalnum(name[i]) && name[i] != '_')
			return "is not made of letters, digits and _";
	return NULL;
}

static const char *check_head(const struct module *module, const struct xk_tunable_head *head)
{
	if (!is_constant(module, head, sizeof(*head), __alignof__(*head)))
		return "the description does not lie in the module's read-only data";
	if (head->magic != XK_TUNABLE_MAGIC)
		return "it is no description";
	if (head->api != XK_TUNABLE_API)
		return "it is of another version of xk_tunable.h: build both from one release";
	if (head->record != XK_TUNABLE_PARAMETER && head->record != XK_TUNABLE_METER)
		return "it is neither a parameter nor a meter";
	if (head->size != (head->record == XK_TUNABLE_PARAMETER ? sizeof(struct xk_tunable) :
								  sizeof(struct xk_meter)))
		return "it has another size than xk_tunable.h says";
	if (!is_constant(module, head, head->size, __alignof__(struct xk_tunable)))
		return "the description is not whole";
	if (check_name(module, head->name, XK_PARAMETER_LEN))
		return "its name is no name";
	if (check_name(module, head->subsystem, XK_PARAMETER_LEN))
		return "the name of its subsystem is none";
	return NULL;
}

static const char *check_choices(const struct module *module, const struct xk_tunable *is)
{
	unsigned int i, k;

	if (is->nr_choices < 2 || is->nr_choices > XK_MAX_CHOICES)
		return "it has less than 2 choices, or more than 16";
	if (!is_constant(module, is->choices, is->nr_choices * sizeof(*is->choices),
			 __alignof__(*is->choices)))
		return "its choices do not lie in the module's read-only data";
	for (i = 0; i < is->nr_choices; i++) {
		if (check_name(module, is->choices[i], XK_CHOICE_LEN) ||
		    !isalpha(is->choices[i][0]))
			return "a choice is no name that begins with a letter";
		for (k = 0; k < i; k++)
			if (!strcmp(is->choices[i], is->choices[k]))
				return "two of its choices are the same";
	}
	return NULL;
}

static const char *check_values(const struct module *module, const struct xk_tunable *is)
{
	const char *wrong = NULL;

	switch (is->steps) {
	case XK_TUNABLE_LINEAR:
		if (is->step < 1)
			return "linear steps add 1 or more";
		break;
	case XK_TUNABLE_EXPONENTIAL:
		if (is->step < 2 || is->min < 0)
			return "exponential steps multiply by 2 or more, and do not start below 0";
		break;
	case XK_TUNABLE_CHOICE:
		wrong = check_choices(module, is);
		break;
	default:
		return "it is unknown how to step through its values";
	}
	if (wrong)
		return wrong;
	if (is->steps != XK_TUNABLE_CHOICE && is->min > is->max)
		return "its min is greater than its max";
	if (!xk_tunable_accepts(is, is->default_value))
		return "its default is not among its values";
	return NULL;
}

static const char *check_parameter(const struct module *module, const struct xk_tunable *is)
{
	if (is->flags & ~XK_TUNABLE_REVERT)
		return "it has unknown flags";
	if (!is_code(module, is->get) || !is_code(module, is->set))
		return "its get() or set() is no function of the module";
	if (is->only_if && check_name(module, is->only_if, XK_PARAMETER_LEN))
		return "its only_if is no name";
	return check_values(module, is);
}

static const char *check_meter(const struct module *module, const struct xk_meter *is)
{
	u32 flags = is->role == XK_METER_TARGET ? XK_METER_RATE | XK_METER_MINIMISE : XK_METER_PER;

	if (is->role < XK_METER_SENSOR || is->role > XK_METER_BOTTLENECK)
		return "it is neither sensor nor target nor bottleneck test";
	if (is->flags & ~flags)
		return "it has flags that are unknown, or not for its role";
	if (is->role == XK_METER_SENSOR && is->limit > 1000)
		return "its limit is no share: more than 1000 thousandths";
	if (is->role == XK_METER_BOTTLENECK && !is->limit)
		return "every reading would be beyond its limit of 0";
	if (is->role == XK_METER_TARGET && is->limit)
		return "a target has no limit";
	if (!is_code(module, is->get))
		return "its get() is no function of the module";
	return NULL;
}

static const struct xk_live_tunable *find_parameter(const struct list_head *parameters,
						    const char *name)
{
	const struct xk_live_tunable *known;

	list_for_each_entry(known, parameters, list)
		if (!strcmp(known->is->head.name, name))
			return known;
	return NULL;
}

static const char *add_parameter(const struct module *module, const struct xk_tunable *is,
				 struct list_head *parameters)
{
	const char *wrong = check_parameter(module, is);
	struct xk_live_tunable *live;

	if (wrong)
		return wrong;
	if (find_parameter(parameters, is->head.name))
		return "another parameter of the module has its name";
	live = kzalloc(sizeof(*live), GFP_KERNEL);
	if (!live)
		return "no memory";
	live->is = is;
	mutex_init(&live->call);
	list_add_tail(&live->list, parameters);
	return NULL;
}

static const char *add_meter(const struct module *module, const struct xk_meter *is,
			     struct list_head *meters)
{
	const char *wrong = check_meter(module, is);
	struct xk_live_meter *live;

	if (wrong)
		return wrong;
	list_for_each_entry(live, meters, list) {
		if (!strcmp(live->is->head.name, is->head.name))
			return "another meter of the module has its name";
		if (is->role != XK_METER_SENSOR && live->is->role == is->role &&
		    !strcmp(live->is->head.subsystem, is->head.subsystem))
			return "its subsystem has another one in this role";
	}
	live = kzalloc(sizeof(*live), GFP_KERNEL);
	if (!live)
		return "no memory";
	live->is = is;
	list_add_tail(&live->list, meters);
	return NULL;
}

static const char *check_guard(const struct xk_tunable *is, const struct list_head *parameters)
{
	const struct xk_live_tunable *guard;

	if (!is->only_if)
		return NULL;
	guard = find_parameter(parameters, is->only_if);
	if (!guard || guard->is == is || strcmp(guard->is->head.subsystem, is->head.subsystem))
		return "its only_if is no other parameter of its subsystem";
	if (!xk_tunable_accepts(guard->is, is->only_if_value))
		return "its only_if_value is none of that parameter";
	return NULL;
}

static void complain(const struct module *module, const char *name, const char *wrong)
{
	pr_warn("xk: %s: %s is refused: %s\n", module->name, name, wrong);
}

/* Repeats until no parameter depends on a refused one. */
static void check_guards(const struct module *module, struct list_head *parameters)
{
	struct xk_live_tunable *live;
	const char *wrong;
again:
	list_for_each_entry(live, parameters, list) {
		wrong = check_guard(live->is, parameters);
		if (!wrong)
			continue;
		complain(module, live->is->head.name, wrong);
		list_del(&live->list);
		kfree(live);
		goto again;
	}
}

void xk_tunables_find(const struct module *module, struct list_head *parameters,
		      struct list_head *meters)
{
	unsigned int i;

	for (i = 0; i < module->num_kp; i++) {
		const struct kernel_param *entry = &module->kp[i];
		const struct xk_tunable_head *head = entry->arg;
		const char *wrong;

		if (strncmp(entry->name, XK_TUNABLE_PREFIX, PREFIX_LEN) || entry->perm)
			continue;
		wrong = check_head(module, head);
		if (!wrong && head->record == XK_TUNABLE_PARAMETER)
			wrong = add_parameter(module, entry->arg, parameters);
		else if (!wrong)
			wrong = add_meter(module, entry->arg, meters);
		if (wrong)
			complain(module, entry->name + PREFIX_LEN, wrong);
	}
	check_guards(module, parameters);
}
