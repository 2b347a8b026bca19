// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policies of tunes: created by user space, kept as long as a version of the tune's values uses
 * them, and described. The program, links and probes of a policy are released with it, no matter
 * how the tune ends.
 */
#include <linux/bpf.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "model/backend.h"
#include "policy/policy.h"

int __init xk_policy_init(void)
{
	return xk_program_init();
}

struct xk_live_policy *xk_policy_get(struct xk_live_policy *policy)
{
	if (policy)
		refcount_inc(&policy->users);
	return policy;
}

static void free_policy(struct work_struct *work)
{
	struct xk_live_policy *policy = container_of(work, struct xk_live_policy, free);
	unsigned int i;

	xk_activation_destroy(policy);
	for (i = 0; i < policy->nr_links; i++)
		bpf_link_put(policy->links[i]);
	kfree(policy->links);
	for (i = 0; i < policy->nr_sites; i++)
		free_percpu(policy->sites[i].cpus);
	if (policy->program)
		bpf_prog_put(policy->program);
	kvfree(policy);
}

/* In any context: the last user may be a version that is freed after a grace period. */
void xk_policy_put(struct xk_live_policy *policy)
{
	if (policy && refcount_dec_and_test(&policy->users))
		queue_work(xk_workqueue, &policy->free);
}

/* The code of a site that is not armed differs, or will differ, from the previous code. */
void xk_policy_forget(struct xk_live_policy *policy, const struct xk_live_site *site)
{
	const struct xk_policy_site *decided = &policy->sites[site->index];
	int cpu;

	for_each_possible_cpu(cpu) {
		struct xk_policy_cpu *to = per_cpu_ptr(decided->cpus, cpu);

		xk_policy_fill(to, site->tune->default_value);
		to->once = decided->once;
		to->plain = !decided->once && site->native.kind == XK_NATIVE_VALUE;
	}
}

static void forget_all(struct xk_live_policy *policy, const struct xk_tune *tune)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++)
		xk_policy_forget(policy, &tune->sites[i]);
}

static int create_site(struct xk_policy_site *site, const struct xk_live_site *live,
		       const struct bpf_prog *program)
{
	int cpu;

	site->cpus = alloc_percpu(struct xk_policy_cpu);
	if (!site->cpus)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct xk_policy_cpu *to = per_cpu_ptr(site->cpus, cpu);

		to->site = live;
		to->counters = live->counters;
		to->program = program;
		to->func = program->bpf_func;
		to->insns = program->insnsi;
	}
	return 0;
}

/* The links stay attached as long as the policy exists. */
static int take_links(struct xk_live_policy *policy, const s32 *fds, unsigned int nr,
		      struct xk_error *error)
{
	struct bpf_link *link;
	unsigned int i;

	policy->links = kcalloc(nr, sizeof(*policy->links), GFP_KERNEL);
	if (!policy->links)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		link = bpf_link_get_from_fd(fds[i]);
		if (PTR_ERR(link) == -EBADF)
			return xk_refuse(error, -EBADF, "link %u is no descriptor", i);
		if (IS_ERR(link))
			return xk_refuse(error, PTR_ERR(link), "descriptor %d is no BPF link",
					 fds[i]);
		policy->links[policy->nr_links++] = link;
	}
	return 0;
}

static int fill_policy(struct xk_live_policy *policy, const struct xk_tune *tune,
		       const struct xk_policy *request, const struct xk_policy_lists *lists,
		       struct xk_error *error)
{
	unsigned int i;
	int ret = 0;

	policy->program = xk_program_get(request->program, error);
	if (IS_ERR(policy->program)) {
		ret = PTR_ERR(policy->program);
		policy->program = NULL;
	}
	for (i = 0; i < policy->nr_sites && !ret; i++)
		ret = create_site(&policy->sites[i], &tune->sites[i], policy->program);
	if (!ret)
		ret = take_links(policy, lists->links, request->nr_links, error);
	if (!ret)
		ret = xk_activation_create(policy, tune, request, lists, error);
	if (!ret)
		ret = xk_activation_arm(policy, tune, error);
	if (!ret)
		forget_all(policy, tune);
	return ret;
}

static struct xk_live_policy *create_policy(const struct xk_tune *tune,
					    const struct xk_policy *request,
					    const struct xk_policy_lists *lists,
					    struct xk_error *error)
{
	struct xk_live_policy *policy;
	int ret;

	policy = kvzalloc(struct_size(policy, sites, tune->nr_sites), GFP_KERNEL);
	if (!policy)
		return ERR_PTR(-ENOMEM);
	policy->nr_sites = tune->nr_sites;
	refcount_set(&policy->users, 1);
	INIT_WORK(&policy->free, free_policy);
	ret = fill_policy(policy, tune, request, lists, error);
	if (!ret)
		return policy;
	xk_policy_put(policy);
	return ERR_PTR(ret);
}

/* An object, or an instruction that holds a value, has one value for all executions. */
static int check_sites(const struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i;

	for (i = 0; i < tune->nr_sites; i++) {
		const struct xk_live_site *site = &tune->sites[i];

		if (site->in_data)
			return xk_refuse(error, -EOPNOTSUPP,
					 "%s+0x%x is an object in memory, which has one value for all executions",
					 site->place.symbol, site->offset);
		/* A waiting site would use a patch, too, when its module is loaded. */
		if (tune->traits & XK_BACKEND_SHARED)
			return xk_refuse(error, -EOPNOTSUPP,
					 "%s+0x%x uses the patch backend, which runs no policy",
					 site->place.symbol, site->offset);
	}
	return 0;
}

static int replace(struct xk_tune *tune, const struct xk_policy *request,
		   const struct xk_policy_lists *lists, struct xk_error *error)
{
	struct xk_live_policy *policy = NULL, *before = tune->policy;
	int ret;

	if (tune->transition)
		return xk_refuse(error, -EBUSY, "it is in transition: see xk status");
	if (request->program != -1) {
		ret = check_sites(tune, error);
		if (ret)
			return ret;
		policy = create_policy(tune, request, lists, error);
		if (IS_ERR(policy))
			return PTR_ERR(policy);
	}
	tune->policy = policy;
	xk_policy_put(before);
	return 0;
}

static int copy_list(void *list, u64 user, u32 nr, size_t size)
{
	void *copy = nr ? memdup_array_user(u64_to_user_ptr(user), nr, size) : NULL;

	if (IS_ERR(copy))
		return PTR_ERR(copy);
	*(void **)list = copy;
	return 0;
}

static int copy_lists(struct xk_policy_lists *lists, const struct xk_policy *request,
		      struct xk_error *error)
{
	int ret;

	if (request->nr_links > XK_MAX_LINKS)
		return xk_refuse(error, -EINVAL, "%u links; up to %u are possible",
				 request->nr_links, XK_MAX_LINKS);
	if (request->nr_scopes > XK_MAX_SCOPES || request->nr_sites > XK_MAX_SITES)
		return xk_refuse(error, -EINVAL,
				 "decide once: invalid number of scopes (%u) or sites (%u)",
				 request->nr_scopes, request->nr_sites);
	ret = copy_list(&lists->links, request->links, request->nr_links, sizeof(*lists->links));
	if (!ret)
		ret = copy_list(&lists->scopes, request->scopes, request->nr_scopes,
				sizeof(*lists->scopes));
	if (!ret)
		ret = copy_list(&lists->sites, request->sites, request->nr_sites,
				sizeof(*lists->sites));
	return ret;
}

static void free_lists(struct xk_policy_lists *lists)
{
	kfree(lists->links);
	kfree(lists->scopes);
	kfree(lists->sites);
}

static int load_copied(struct file *caller, struct xk_policy *request,
		       const struct xk_policy_lists *lists, struct xk_error *error)
{
	struct xk_tune *tune;
	int ret;

	mutex_lock(&xk_lock);
	tune = xk_tune_find_owned(caller, request->id, error);
	if (IS_ERR(tune))
		ret = PTR_ERR(tune);
	else
		ret = replace(tune, request, lists, error);
	mutex_unlock(&xk_lock);
	return ret;
}

int xk_policy_load(struct file *caller, struct xk_policy *request, struct xk_error *error)
{
	struct xk_policy_lists lists = {};
	int ret = copy_lists(&lists, request, error);

	if (!ret)
		ret = load_copied(caller, request, &lists, error);
	free_lists(&lists);
	return ret;
}

static void sum(const struct xk_policy_site *site, struct xk_policy_info *info)
{
	unsigned int i;
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct xk_policy_cpu *from = per_cpu_ptr(site->cpus, cpu);

		info->runs += READ_ONCE(from->count.kept);
		info->refused += READ_ONCE(from->count.refused);
		info->skipped += READ_ONCE(from->count.skipped);
		info->reused += READ_ONCE(from->count.reused);
		info->unseen += READ_ONCE(from->count.unseen);
		for (i = 0; i < XK_POLICY_BUCKETS; i++) {
			u64 times = READ_ONCE(from->histogram[i]);

			info->histogram[i] += times;
			info->chosen += times;
			if (times)
				info->last = READ_ONCE(from->value);
		}
	}
	/* The program ran for each decision, except those that were reused. */
	info->runs += info->chosen;
	info->runs -= min(info->runs, info->reused);
}

/* The policy in force, or the one for the next transition. */
static const struct xk_live_policy *policy_of(const struct xk_tune *tune)
{
	return tune->values->policy ?: tune->policy;
}

int xk_policy_info(struct xk_policy_info *info)
{
	u32 id = info->id, index = info->index;
	const struct xk_live_policy *policy;
	struct xk_tune *tune;
	int ret = -ENOENT;

	memset(info, 0, sizeof(*info));
	info->id = id;
	info->index = index;
	mutex_lock(&xk_lock);
	tune = xk_tune_find(id);
	policy = tune ? policy_of(tune) : NULL;
	if (policy && index < policy->nr_sites) {
		info->program = policy->program->aux->id;
		info->nr_links = policy->nr_links;
		sum(&policy->sites[index], info);
		ret = 0;
	}
	mutex_unlock(&xk_lock);
	return ret;
}

static void arm_again(struct xk_live_policy *policy, const struct xk_tune *tune)
{
	struct xk_error error = {};

	if (policy && xk_activation_arm(policy, tune, &error))
		pr_warn("xk: %s: the policy is not used there: %s\n", tune->name, error.text);
}

/* A module cannot be refused: activations that are not tracked use the value beneath. */
void xk_policy_module_coming(struct xk_tune *tune)
{
	/* A policy that waits for its transition. Others are reset when their sites are filled. */
	if (tune->policy && tune->policy != tune->values->policy && !tune->transition)
		forget_all(tune->policy, tune);
	arm_again(tune->policy, tune);
	if (tune->values->policy != tune->policy)
		arm_again(tune->values->policy, tune);
}

void xk_policy_module_going(struct xk_tune *tune, const struct module *module)
{
	if (tune->policy)
		xk_activation_await_module(tune->policy, tune, module);
	if (tune->values->policy && tune->values->policy != tune->policy)
		xk_activation_await_module(tune->values->policy, tune, module);
}
