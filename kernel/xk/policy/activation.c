// SPDX-License-Identifier: GPL-2.0-only
/*
 * One decision per activation. Until a function of a watched scope returns, all sites that must
 * agree use the decision made at the first of them.
 *
 * Kretprobes track activations. The kernel keeps their instances in a list of the thread, the
 * latest first. The earliest instance of this policy is the outermost activation, and stores the
 * decision. An interrupt on top of a thread is an execution of its own. An activation that no probe
 * saw start has no decision: all of its sites use the value beneath, so they agree, too.
 */
#include <linux/kprobes.h>
#include <linux/overflow.h>
#include <linux/rethook.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>

#include "policy/policy.h"

/* Simultaneous activations of one function that are tracked. */
#define MAX_ACTIVE 512

struct activation {
	u8 level;
	struct xk_decision decision;
};

/*
 * Whether a thread (0), an NMI (1), a softirq (2) or a hard interrupt (3) is running. A breakpoint
 * counts as one NMI and one interrupt, in any context. So the number of interrupts beyond the
 * number of NMIs matters.
 */
u8 notrace xk_level(const struct pt_regs *regs)
{
	unsigned int count = preempt_count();
	unsigned int nmis = (count & NMI_MASK) >> NMI_SHIFT;
	unsigned int interrupts = (count & HARDIRQ_MASK) >> HARDIRQ_SHIFT;

	if (interrupts > nmis)
		return 3;
	if (count & SOFTIRQ_OFFSET)
		return 2;
	return object_is_on_stack((void *)regs->sp) ? 0 : 1;
}

static int notrace entered(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct activation *activation = (void *)instance->data;

	activation->level = xk_level(regs);
	activation->decision.made = false;
	activation->decision.making = false;
	return 0;
}

/* Empty: the kernel removes the instance when the function returns. */
static int notrace left(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return 0;
}

NOKPROBE_SYMBOL(xk_level);
NOKPROBE_SYMBOL(entered);
NOKPROBE_SYMBOL(left);

/* Returns the decision of the outermost activation that contains this execution; or NULL. */
struct xk_decision *notrace xk_activation_find(const struct xk_live_policy *policy,
					 const struct pt_regs *regs)
{
	struct activation *outermost = NULL;
	struct llist_node *node;
	u8 here = xk_level(regs);

	for (node = current->rethooks.first; node; node = node->next) {
		struct rethook_node *hook = container_of(node, struct rethook_node, llist);
		struct kretprobe *probe;
		struct activation *activation;

		/* Cleared before a probe is freed, which then waits for a grace period. */
		if (!READ_ONCE(hook->rethook->handler))
			continue;
		probe = hook->rethook->data;
		if (probe < &policy->watches[0].probe ||
		    probe > &policy->watches[policy->nr_watches - 1].probe)
			continue;
		activation = (void *)container_of(hook, struct kretprobe_instance, node)->data;
		if (activation->level == here)
			outermost = activation;
	}
	return outermost ? &outermost->decision : NULL;
}

NOKPROBE_SYMBOL(xk_activation_find);

static int take_sites(struct xk_live_policy *policy, const u32 *sites, unsigned int nr,
		      struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (sites[i] >= policy->nr_sites)
			return xk_refuse(error, -EINVAL, "there is no site %u", sites[i]);
		policy->sites[sites[i]].once = true;
	}
	return 0;
}

int xk_activation_create(struct xk_live_policy *policy, const struct xk_tune *tune,
			 const struct xk_policy *request, const struct xk_policy_lists *lists,
		   struct xk_error *error)
{
	unsigned int i;

	if (!request->nr_scopes != !request->nr_sites || request->nr_scopes > tune->nr_scopes ||
	    request->nr_sites > tune->nr_sites)
		return xk_refuse(error, -EINVAL,
				 "decide once: invalid number of scopes (%u) or sites (%u)",
				 request->nr_scopes, request->nr_sites);
	if (!request->nr_scopes)
		return 0;
	policy->watches = kvcalloc(request->nr_scopes, sizeof(*policy->watches), GFP_KERNEL);
	if (!policy->watches)
		return -ENOMEM;
	policy->nr_watches = request->nr_scopes;
	for (i = 0; i < request->nr_scopes; i++) {
		if (lists->scopes[i] >= tune->nr_scopes)
			return xk_refuse(error, -EINVAL, "there is no scope %u", lists->scopes[i]);
		policy->watches[i].scope = lists->scopes[i];
		policy->watches[i].policy = policy;
	}
	return take_sites(policy, lists->sites, request->nr_sites, error);
}

static int arm_watch(struct xk_watch *watch, const struct xk_place *place, struct xk_error *error)
{
	int ret;

	memset(&watch->probe, 0, sizeof(watch->probe));
	watch->probe.kp.addr = (kprobe_opcode_t *)place->function;
	watch->probe.entry_handler = entered;
	watch->probe.handler = left;
	watch->probe.maxactive = MAX_ACTIVE;
	watch->probe.data_size = sizeof(struct activation);
	ret = register_kretprobe(&watch->probe);
	/*
	 * -ENOENT: its module is being removed. Returned as another error, because for the caller
	 * -ENOENT means a missing tune.
	 */
	if (ret)
		return xk_refuse(error, ret == -ENOENT ? -EAGAIN : ret,
				 "%s: its calls cannot be tracked (kretprobe: error %d): one activation could use two values",
				 place->symbol, -ret);
	watch->armed = true;
	return 0;
}

/* Only scopes whose functions are loaded. */
int xk_activation_arm(struct xk_live_policy *policy, const struct xk_tune *tune,
		      struct xk_error *error)
{
	unsigned int i;
	int ret;

	for (i = 0; i < policy->nr_watches; i++) {
		struct xk_watch *watch = &policy->watches[i];
		const struct xk_live_scope *scope = &tune->scopes[watch->scope];

		if (watch->armed || scope->phase != XK_PHASE_READY)
			continue;
		ret = arm_watch(watch, &scope->place, error);
		if (ret)
			return ret;
	}
	return 0;
}

static void disarm_watch(struct xk_watch *watch)
{
	if (!watch->armed)
		return;
	unregister_kretprobe(&watch->probe);
	watch->armed = false;
}

/* `module` is being removed: no thread is in it. */
void xk_activation_await_module(struct xk_live_policy *policy, const struct xk_tune *tune,
				const struct module *module)
{
	unsigned int i;

	for (i = 0; i < policy->nr_watches; i++)
		if (!strcmp(tune->scopes[policy->watches[i].scope].place.module, module->name))
			disarm_watch(&policy->watches[i]);
}

void xk_activation_destroy(struct xk_live_policy *policy)
{
	unsigned int i;

	for (i = 0; i < policy->nr_watches; i++)
		disarm_watch(&policy->watches[i]);
	kvfree(policy->watches);
}
