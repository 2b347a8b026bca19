// SPDX-License-Identifier: GPL-2.0-only
/* Leases: a tune with a time limit is unloaded when that ends, even if no process is left. */
#include <linux/err.h>
#include <linux/time64.h>

#include "core/lease.h"

/* Delay until the next attempt to unload a tune for which there was no memory. */
#define RETRY_NS (100 * NSEC_PER_MSEC)

static void (*on_expiry)(struct xk_tune *tune);

static void lease_passed(struct xk_deadline *lease)
{
	struct xk_tune *tune = container_of(lease, struct xk_tune, lease);

	if (!tune->doomed)
		pr_info("xk: %s: its lease has expired\n", tune->name);
	on_expiry(tune);
}

int xk_lease_set(struct file *caller, u32 id, u64 ns, struct xk_error *error)
{
	struct xk_tune *tune;
	int ret;

	mutex_lock(&xk_lock);
	tune = xk_tune_find_owned(caller, id, error);
	if (IS_ERR(tune))
		ret = PTR_ERR(tune);
	else if (tune->doomed)
		ret = xk_refuse(error, -EBUSY, "%s: is being unloaded", tune->name);
	else
		ret = xk_deadline_set(&tune->lease, ns);
	mutex_unlock(&xk_lock);
	return ret;
}

void xk_lease_retry(struct xk_tune *tune)
{
	xk_deadline_set(&tune->lease, RETRY_NS);
}

void xk_lease_create(struct xk_tune *tune)
{
	xk_deadline_init(&tune->lease, lease_passed);
}

void xk_leases_init(void (*expired)(struct xk_tune *tune))
{
	on_expiry = expired;
}
