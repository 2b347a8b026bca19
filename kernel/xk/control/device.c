// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/xk. A request of user space is copied, checked for permission (privilege.c), and passed on.
 * Results, and the reason of a refusal, are copied back.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/lock.h"
#include "control/device.h"
#include "control/info.h"
#include "control/privilege.h"
#include "control/probes.h"
#include "control/read_table.h"
#include "control/signature.h"
#include "core/lease.h"
#include "core/load.h"
#include "core/table.h"
#include "policy/policy.h"
#include "probe/attach.h"
#include "text/stop_budget.h"
#include "transition/exiting.h"
#include "transition/ignore.h"
#include "transition/request.h"
#include "transition/unload.h"
#include "uapi/xk_probe.h"

static_assert(XK_ERROR_LEN == XK_ERROR_TEXT);

/* Maximum size in bytes of a report on blocking threads. */
#define MAX_REPORT 16384U

/* The same reason for any lack of memory. */
static void explain_no_memory(long ret, struct xk_error *error)
{
	if (ret == -ENOMEM)
		xk_refuse(error, ret, "no memory: nothing has changed, and nothing is left behind");
}

static long ioctl_version(void __user *arg)
{
	struct xk_version version = {
		.abi = XK_ABI_VERSION,
		.flags = xk_signed_only() ? XK_VERSION_SIGNED : 0,
		.anchor = (unsigned long)_printk,
	};

	strscpy(version.module, XK_VERSION_STRING);
	return copy_to_user(arg, &version, sizeof(version)) ? -EFAULT : 0;
}

static long load_table(struct file *file, struct xk_load *load, struct xk_error *error)
{
	struct xk_request request = {};
	long ret = xk_request_read(&request, load, error);

	if (!ret) {
		xk_exiting_wait();
		ret = xk_tune_load(file, &request, load, error);
	}
	xk_request_free(&request);
	return ret;
}

static long ioctl_load(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_load load;
	long ret;

	if (copy_from_user(&load, arg, sizeof(load)))
		return -EFAULT;
	if (load.size != sizeof(load) || load.abi != XK_ABI_VERSION)
		return -EPROTO;
	load.id = 0;
	ret = xk_may_change(file, xk_signed_only(), &error);
	if (!ret)
		ret = load_table(file, &load, &error);
	explain_no_memory(ret, &error);
	memcpy(load.error, error.text, sizeof(load.error));
	/* If the copy fails, user space does not know the tune. It ends with the descriptor. */
	return copy_to_user(arg, &load, sizeof(load)) ? -EFAULT : ret;
}

static int check_transition(const struct xk_transition *request, struct xk_error *error)
{
	if (request->pad)
		return xk_refuse(error, -EINVAL, "pad is not 0");
	if (request->mode > XK_MODE_GLOBAL)
		return xk_refuse(error, -EINVAL, "unknown mode %u", request->mode);
	if (request->timeout_ms > XK_MAX_TIMEOUT_MS)
		return xk_refuse(error, -EINVAL,
				 "a timeout of %u ms exceeds the maximum of %u ms",
				 request->timeout_ms, XK_MAX_TIMEOUT_MS);
	if (!request->nr_changes || request->nr_changes > XK_MAX_CHANGES)
		return xk_refuse(error, -EINVAL, "%u changes; 1 to %u are possible",
				 request->nr_changes, XK_MAX_CHANGES);
	if (!request->report != !request->report_len)
		return xk_refuse(error, -EINVAL, "%u bytes for a report at %#llx",
				 request->report_len, request->report);
	return 0;
}

/* Whether all changes return to the default, which is always allowed. */
static bool only_unloads(const struct xk_change *changes, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (!(changes[i].flags & XK_CHANGE_UNLOAD))
			return false;
	return true;
}

/* Makes the transition with a copy of the changes and a buffer for the report. */
static long transition(struct file *file, struct xk_transition *request,
		       struct xk_error *error)
{
	void __user *user_report = u64_to_user_ptr(request->report);
	struct xk_change *changes;
	char *report = NULL;
	long ret;

	ret = xk_may_go_back(file, error);
	if (ret)
		return ret;
	changes = memdup_array_user(u64_to_user_ptr(request->changes), request->nr_changes,
				    sizeof(*changes));
	if (IS_ERR(changes))
		return xk_refuse(error, PTR_ERR(changes), "the changes cannot be read");
	if (!only_unloads(changes, request->nr_changes))
		ret = xk_may_change(file, xk_signed_only(), error);
	request->report_len = min(request->report_len, MAX_REPORT);
	if (!ret && user_report) {
		report = kvzalloc(request->report_len, GFP_KERNEL);
		if (!report)
			ret = -ENOMEM;
	}
	if (!ret)
		ret = xk_transition(file, request, changes, report, error);
	if (report && copy_to_user(user_report, report, strlen(report) + 1))
		ret = -EFAULT;
	kvfree(report);
	kfree(changes);
	return ret;
}

static long ioctl_transition(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_transition request;
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	/* Do not write to a structure of another size. */
	if (request.size != sizeof(request))
		return -EINVAL;
	request.outcome = XK_OUTCOME_UNCHANGED;
	request.stops = 0;
	ret = check_transition(&request, &error);
	if (!ret)
		ret = transition(file, &request, &error);
	explain_no_memory(ret, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_lease(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_lease lease;
	long ret;

	if (copy_from_user(&lease, arg, sizeof(lease)))
		return -EFAULT;
	if (lease.pad)
		return -EINVAL;
	ret = xk_may_change(file, xk_signed_only(), &error);
	if (!ret)
		ret = xk_lease_set(file, lease.id, lease.ns, &error);
	memcpy(lease.error, error.text, sizeof(lease.error));
	return copy_to_user(arg, &lease, sizeof(lease)) ? -EFAULT : ret;
}

static long ioctl_detach(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_detach detach;
	long ret;

	if (copy_from_user(&detach, arg, sizeof(detach)))
		return -EFAULT;
	if (detach.pad)
		return -EINVAL;
	ret = xk_may_change(file, xk_signed_only(), &error);
	if (!ret)
		ret = xk_tune_detach(file, detach.id, &error);
	memcpy(detach.error, error.text, sizeof(detach.error));
	return copy_to_user(arg, &detach, sizeof(detach)) ? -EFAULT : ret;
}

static long ioctl_ignore(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_ignore ignore;
	long ret;

	if (copy_from_user(&ignore, arg, sizeof(ignore)))
		return -EFAULT;
	/* Allowed under lockdown: without it, a tune that returns to the default could not end. */
	ret = xk_may_go_back(file, &error);
	if (!ret)
		ret = xk_ignore(file, ignore.id, ignore.thread, &error);
	memcpy(ignore.error, error.text, sizeof(ignore.error));
	return copy_to_user(arg, &ignore, sizeof(ignore)) ? -EFAULT : ret;
}

static long ioctl_report(void __user *arg)
{
	struct xk_report report;
	char *text;
	long ret;

	if (copy_from_user(&report, arg, sizeof(report)))
		return -EFAULT;
	if (!report.len)
		return -EINVAL;
	report.len = min(report.len, MAX_REPORT);
	text = kvzalloc(report.len, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	ret = xk_transition_report(report.id, text, report.len);
	if (!ret && copy_to_user(u64_to_user_ptr(report.text), text, strlen(text) + 1))
		ret = -EFAULT;
	kvfree(text);
	return ret;
}

static long ioctl_policy(struct file *file, void __user *arg)
{
	struct xk_error error = {};
	struct xk_policy request;
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret && xk_signed_only())
		ret = xk_refuse(&error, -EKEYREJECTED,
				"xk.ko was loaded with require_signed=1: no signature covers the program of a policy");
	if (!ret)
		ret = xk_policy_load(file, &request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_policy_info(void __user *arg)
{
	struct xk_policy_info *info = memdup_user(arg, sizeof(*info));
	long ret;

	if (IS_ERR(info))
		return PTR_ERR(info);
	ret = xk_policy_info(info);
	if (!ret && copy_to_user(arg, info, sizeof(*info)))
		ret = -EFAULT;
	kfree(info);
	return ret;
}

static long ioctl_tune_info(void __user *arg)
{
	struct xk_tune_info info;
	long ret;

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	ret = xk_tune_info(&info);
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		return -EFAULT;
	return ret;
}

static long ioctl_tune_values(void __user *arg)
{
	struct xk_tune_values request;
	s64 *values;
	u32 room;
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	room = min_t(u32, request.nr_values, XK_MAX_VALUES);
	values = kvcalloc(room, sizeof(*values), GFP_KERNEL);
	if (!values)
		return -ENOMEM;
	request.nr_values = room;
	ret = xk_tune_values(request.id, values, &request.nr_values);
	if (!ret && (copy_to_user(u64_to_user_ptr(request.values), values,
				  min(room, request.nr_values) * sizeof(*values)) ||
		     copy_to_user(arg, &request, sizeof(request))))
		ret = -EFAULT;
	kvfree(values);
	return ret;
}

static long ioctl_stop_info(void __user *arg)
{
	struct xk_stop_info info;

	mutex_lock(&xk_lock);
	xk_stop_budget_describe(&info);
	mutex_unlock(&xk_lock);
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long ioctl_site_info(void __user *arg)
{
	struct xk_site_info info;
	long ret;

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	ret = xk_tune_site_info(&info);
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		return -EFAULT;
	return ret;
}

static long xk_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *arg = (void __user *)argument;

	switch (command) {
	case XK_IOC_VERSION:
		return ioctl_version(arg);
	case XK_IOC_LOAD:
		return ioctl_load(file, arg);
	case XK_IOC_TRANSITION:
		return ioctl_transition(file, arg);
	case XK_IOC_LEASE:
		return ioctl_lease(file, arg);
	case XK_IOC_DETACH:
		return ioctl_detach(file, arg);
	case XK_IOC_TUNE_INFO:
		return ioctl_tune_info(arg);
	case XK_IOC_SITE_INFO:
		return ioctl_site_info(arg);
	case XK_IOC_STOP_INFO:
		return ioctl_stop_info(arg);
	case XK_IOC_REPORT:
		return ioctl_report(arg);
	case XK_IOC_POLICY:
		return ioctl_policy(file, arg);
	case XK_IOC_POLICY_INFO:
		return ioctl_policy_info(arg);
	case XK_IOC_IGNORE:
		return ioctl_ignore(file, arg);
	case XK_IOC_TUNE_VALUES:
		return ioctl_tune_values(arg);
	case XK_IOC_PROBE_ATTACH:
		return xk_ioctl_probe_attach(file, arg);
	case XK_IOC_PROBE_DETACH:
		return xk_ioctl_probe_detach(file, arg);
	case XK_IOC_PROBE_LEASE:
		return xk_ioctl_probe_lease(file, arg);
	case XK_IOC_PROBE_INFO:
		return xk_ioctl_probe_info(arg);
	case XK_IOC_PROBE_PLACES:
		return xk_ioctl_probe_places(arg);
	default:
		return -ENOTTY;
	}
}

/* Also for reading, because the results contain kernel addresses. See xk_may_change(). */
static int xk_open(struct inode *inode, struct file *file)
{
	return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static int xk_release(struct inode *inode, struct file *file)
{
	xk_probes_release(file);
	xk_unload_owned(file);
	return 0;
}

static const struct file_operations xk_fops = {
	.owner = THIS_MODULE,
	.open = xk_open,
	.release = xk_release,
	.unlocked_ioctl = xk_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice xk_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "xk",
	.mode = 0600,
	.fops = &xk_fops,
};

int xk_device_init(void)
{
	return misc_register(&xk_device);
}

void xk_device_exit(void)
{
	misc_deregister(&xk_device);
}
