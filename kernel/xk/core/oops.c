// SPDX-License-Identifier: GPL-2.0-only
/*
 * An oops and a panic report the changed constants. No lock can be taken in that context, and the
 * list of tunes may be inconsistent. So the report prints a copy of the list in static memory.
 * There are two copies: the unused one is filled, and then used.
 *
 * The kernel is also tainted until it is rebooted (TAINT_USER, "U": a request of user space),
 * because effects of another value may show later. Independently of changes, an out-of-tree module
 * taints the kernel as well.
 */
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/panic.h>
#include <linux/panic_notifier.h>
#include <linux/printk.h>
#include <linux/string.h>

#include "core/oops.h"
#include "model/tune.h"

/* This many constants are printed with name and value; of the others, only their number. */
#define MAX_CHANGED 16

struct changed {
	char name[XK_NAME_LEN];
	s64 value;
	s64 other;		/* during a transition: the other value; else the same */
	s64 default_value;
	bool policy;
};

struct list_of_changed {
	unsigned int nr;	/* may be more than MAX_CHANGED */
	struct changed changed[MAX_CHANGED];
};

static struct list_of_changed copies[2];
static const struct list_of_changed *in_use = &copies[0];

/* What threads may use: one value, or two during a transition. */
static struct changed look_for_change(const struct xk_tune *tune)
{
	const struct xk_values *other = tune->other ?: tune->values;
	struct changed changed = {
		.value = tune->values->value,
		.default_value = tune->default_value,
	};

	changed.other = other->value;
	changed.policy = tune->values->policy || other->policy;
	strscpy(changed.name, tune->name);
	return changed;
}

/* Under xk_lock: before values come into force, and after they were replaced. */
void xk_oops_refresh(void)
{
	struct list_of_changed *spare = in_use == &copies[0] ? &copies[1] : &copies[0];
	struct xk_tune *tune;
	unsigned int nr = 0;

	list_for_each_entry(tune, &xk_tunes, list) {
		struct changed changed = look_for_change(tune);

		if (changed.value == changed.default_value &&
		    changed.other == changed.default_value && !changed.policy)
			continue;
		if (nr < MAX_CHANGED)
			spare->changed[nr] = changed;
		nr++;
	}
	spare->nr = nr;
	/* The copy is complete before an oops can find it. */
	smp_store_release(&in_use, spare);
	if (nr)
		add_taint(TAINT_USER, LOCKDEP_STILL_OK);
}

static void print_one(const struct changed *changed)
{
	if (changed->policy)
		pr_alert("xk: %s is decided by a policy, %lld by default\n", changed->name,
			 changed->default_value);
	else if (changed->value == changed->other)
		pr_alert("xk: %s is %lld, %lld by default\n", changed->name, changed->value,
			 changed->default_value);
	else
		pr_alert("xk: %s is %lld or %lld, in transition, %lld by default\n", changed->name,
			 changed->value, changed->other, changed->default_value);
}

static void print(void)
{
	/* Pairs with the store in xk_oops_refresh(). */
	const struct list_of_changed *list = smp_load_acquire(&in_use);
	unsigned int i, nr = READ_ONCE(list->nr);

	for (i = 0; i < min(nr, MAX_CHANGED); i++)
		print_one(&list->changed[i]);
	if (nr > MAX_CHANGED)
		pr_alert("xk: and %u more changed constants\n",
			 nr - MAX_CHANGED);
}

/* Also called for each breakpoint without another owner, so it must not hit a breakpoint itself. */
static int on_die(struct notifier_block *block, unsigned long event, void *data)
{
	if (event == DIE_OOPS)
		print();
	return NOTIFY_DONE;
}

NOKPROBE_SYMBOL(on_die);

static int on_panic(struct notifier_block *block, unsigned long event, void *data)
{
	print();
	return NOTIFY_DONE;
}

static struct notifier_block die_notifier = { .notifier_call = on_die };
static struct notifier_block panic_notifier = { .notifier_call = on_panic };

int xk_oops_init(void)
{
	int ret = register_die_notifier(&die_notifier);

	if (ret)
		return ret;
	ret = atomic_notifier_chain_register(&panic_notifier_list, &panic_notifier);
	if (ret)
		unregister_die_notifier(&die_notifier);
	return ret;
}

void xk_oops_exit(void)
{
	atomic_notifier_chain_unregister(&panic_notifier_list, &panic_notifier);
	unregister_die_notifier(&die_notifier);
}
