// SPDX-License-Identifier: GPL-2.0-only
/* Leases of attachments, and attachments that are kept without a descriptor. */
#include <linux/err.h>
#include <linux/printk.h>

#include "base/lock.h"
#include "probe/attach.h"

static void lease_passed(struct xk_deadline *lease)
{
	struct xk_attachment *attachment = container_of(lease, struct xk_attachment, lease);

	pr_info("xk: probes %u (%s): their lease has expired\n", attachment->id,
		attachment->name);
	xk_attachment_destroy(attachment);
}

void xk_attachment_lease_create(struct xk_attachment *attachment)
{
	xk_deadline_init(&attachment->lease, lease_passed);
}

int xk_probe_lease(const struct file *caller, const struct xk_probe_lease *request,
		   struct xk_error *error)
{
	struct xk_attachment *attachment;
	int ret;

	mutex_lock(&xk_lock);
	attachment = xk_attachment_find_owned(caller, request->id, error);
	if (IS_ERR(attachment)) {
		ret = PTR_ERR(attachment);
	} else {
		ret = xk_deadline_set(&attachment->lease, request->ns);
		if (ret)
			xk_refuse(error, ret, "a lease of %llu ns is too long", request->ns);
		else if (request->flags & XK_PROBE_KEEP)
			attachment->owner = NULL;
	}
	mutex_unlock(&xk_lock);
	return ret;
}
