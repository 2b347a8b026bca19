// SPDX-License-Identifier: GPL-2.0-only
/*
 * A site of a tune: taken over from user space with every bound checked, armed
 * together with its siblings, disarmed, described.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "backend.h"
#include "xk.h"

#define MAX_INSN_LEN 15

static bool terminated(const char *text, size_t size)
{
	return strnlen(text, size) < size;
}

static int check_description(const struct xk_site *from, unsigned int index,
			     struct xk_error *error)
{
	struct xk_ops_error why;

	if (!terminated(from->symbol, sizeof(from->symbol)) || !from->symbol[0] ||
	    !terminated(from->module, sizeof(from->module)))
		return xk_refuse(error, -EINVAL,
				 "site %u: a name is empty or not terminated", index);
	if (from->flags & ~XK_SITE_STORES)
		return xk_refuse(error, -EINVAL, "site %u: unknown flags %#x", index, from->flags);
	if (from->when != XK_BEFORE && from->when != XK_AFTER)
		return xk_refuse(error, -EINVAL, "site %u: unknown moment %u", index, from->when);
	if (!from->text_len || from->text_len > XK_MAX_TEXT)
		return xk_refuse(error, -EINVAL, "site %u: %u bytes of text", index,
				 from->text_len);
	if (!from->insn_len || from->insn_len > MAX_INSN_LEN ||
	    from->offset >= from->text_len ||
	    from->insn_len > from->text_len - from->offset)
		return xk_refuse(error, -EINVAL,
				 "site %u: %u bytes at 0x%x are not an instruction of %s", index,
				 from->insn_len, from->offset, from->symbol);
	if (from->address + from->text_len < from->address)
		return xk_refuse(error, -EINVAL, "site %u: address %#llx", index, from->address);
	if (xk_ops_check(from->ops, from->nr_ops, from->nr_ivs,
			 from->flags & XK_SITE_STORES, &why))
		return xk_refuse(error, -EINVAL, "site %u, operation %d: %s (%lld)",
				 index, why.op, why.what, why.value);
	return 0;
}

static int copy_text(struct xk_live_site *site, const struct xk_site *from)
{
	site->text = vmemdup_user(u64_to_user_ptr(from->text), from->text_len);
	if (IS_ERR(site->text)) {
		int ret = PTR_ERR(site->text);

		site->text = NULL;
		return ret;
	}
	site->mask = vmemdup_user(u64_to_user_ptr(from->mask), from->text_len);
	if (IS_ERR(site->mask)) {
		int ret = PTR_ERR(site->mask);

		site->mask = NULL;
		return ret;
	}
	return 0;
}

static void free_text(struct xk_live_site *site)
{
	kvfree(site->text);
	kvfree(site->mask);
	site->text = NULL;
	site->mask = NULL;
}

int xk_site_init(struct xk_tune *tune, unsigned int index,
		 const struct xk_site __user *user, struct xk_error *error)
{
	struct xk_live_site *site = &tune->sites[index];
	struct xk_site *from;
	int ret;

	from = memdup_user(user, sizeof(*from));
	if (IS_ERR(from))
		return xk_refuse(error, PTR_ERR(from), "site %u cannot be read", index);
	ret = check_description(from, index, error);
	if (ret)
		goto out;

	site->tune = tune;
	site->values = &tune->values;
	site->values_offset = offsetof(struct xk_values, sites) +
			      index * sizeof(struct xk_site_values);
	site->backend = &xk_backend_kprobe;
	site->function = from->address;
	site->address = from->address + from->offset;
	site->offset = from->offset;
	site->insn_len = from->insn_len;
	site->when = from->when;
	site->text_len = from->text_len;
	site->nr_ivs = from->nr_ivs;
	memcpy(site->ivs, from->ivs, sizeof(site->ivs));
	strscpy(site->symbol, from->symbol);
	strscpy(site->module, from->module);
	xk_plan_build(&site->plan, from->ops, from->nr_ops);

	ret = copy_text(site, from);
	if (ret) {
		xk_refuse(error, ret, "site %u: text or mask cannot be read", index);
		goto out;
	}
	/* The kernel patches itself here: nobody knows what would be probed. */
	if (site->mask[site->offset] != 0xff) {
		ret = xk_refuse(error, -EINVAL,
				"%s+0x%x: the kernel patches this instruction itself",
				site->symbol, site->offset);
		goto out;
	}
	site->counters = alloc_percpu(struct xk_counters);
	if (!site->counters) {
		ret = -ENOMEM;
		goto out;
	}
	if (site->when == XK_AFTER && !site->backend->can_run_after)
		ret = xk_refuse(error, -EOPNOTSUPP,
				"%s+0x%x: the %s backend cannot run after an instruction",
				site->symbol, site->offset, site->backend->name);
	else
		ret = site->backend->prepare(site, error);
out:
	kfree(from);
	return ret;
}

void xk_site_destroy(struct xk_live_site *site)
{
	if (site->backend)
		site->backend->destroy(site);
	free_text(site);
	free_percpu(site->counters);
}

static bool same_place(const struct xk_live_site *a, const struct xk_live_site *b)
{
	return a->address == b->address && a->when == b->when;
}

/* All or nothing: everything is verified before anything is armed. */
int xk_sites_arm(struct xk_tune *tune, struct xk_error *error)
{
	unsigned int i, k;
	int ret;

	for (i = 0; i < tune->nr_sites; i++) {
		for (k = 0; k < i; k++)
			if (same_place(&tune->sites[i], &tune->sites[k]))
				return xk_refuse(error, -EINVAL,
						 "%s+0x%x: two sites at one instruction",
						 tune->sites[i].symbol, tune->sites[i].offset);
		ret = xk_verify_site(&tune->sites[i], error);
		if (ret)
			return ret;
	}
	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		ret = site->backend->arm(site, error);
		if (ret) {
			xk_sites_disarm(tune, NULL);
			return ret;
		}
		site->armed = true;
	}
	for (i = 0; i < tune->nr_sites; i++)
		free_text(&tune->sites[i]);
	return 0;
}

/* Disarms the sites of `module`, or all of them when it is NULL. */
void xk_sites_disarm(struct xk_tune *tune, const char *module)
{
	struct xk_live_site *sites[XK_MAX_SITES];
	unsigned int i, nr = 0;

	for (i = 0; i < tune->nr_sites; i++) {
		struct xk_live_site *site = &tune->sites[i];

		if (!site->armed || (module && strcmp(site->module, module)))
			continue;
		site->armed = false;
		sites[nr++] = site;
	}
	/* There is one backend; with more, this is one call for each. */
	if (nr)
		sites[0]->backend->disarm(sites, nr);
}

static enum xk_armed_state site_state(const struct xk_live_site *site)
{
	return site->armed ? site->backend->state(site) : XK_STATE_DISARMED;
}

bool xk_site_live(const struct xk_live_site *site)
{
	return site_state(site) != XK_STATE_DISARMED;
}

static void sum_counters(const struct xk_live_site *site, struct xk_site_info *info)
{
	int cpu;

	/* Faults first: a hit that is counted in between is not negative. */
	for_each_possible_cpu(cpu)
		info->faults += READ_ONCE(per_cpu_ptr(site->counters, cpu)->faults);
	for_each_possible_cpu(cpu)
		info->hits += READ_ONCE(per_cpu_ptr(site->counters, cpu)->hits);
	info->applied = info->hits - info->faults;
	info->missed = site->backend->missed(site);
}

void xk_site_describe(const struct xk_live_site *site, struct xk_site_info *info)
{
	info->address = site->address;
	strscpy(info->symbol, site->symbol);
	strscpy(info->module, site->module);
	info->offset = site->offset;

	switch (site_state(site)) {
	case XK_STATE_DISARMED:
		break;
	case XK_STATE_BREAKPOINT:
		info->flags |= XK_SITE_ARMED;
		break;
	case XK_STATE_JUMP:
		info->flags |= XK_SITE_ARMED | XK_SITE_OPTIMISED;
		break;
	case XK_STATE_UNKNOWN:
		info->flags |= XK_SITE_OPT_UNKNOWN;
		break;
	}
	if (site->gone)
		info->flags |= XK_SITE_GONE;
	sum_counters(site, info);
}
