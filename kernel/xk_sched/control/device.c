// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/xk_sched. A request of user space is copied, checked for permission
 * (xk/control/privilege.c), and passed on. Results, and the reason of a refusal, are copied back.
 */
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/error.h"
#include "class/class.h"
#include "control/cpus.h"
#include "control/device.h"
#include "control/privilege.h"
#include "control/record.h"
#include "control/stats.h"
#include "event/report.h"
#include "policy/choose.h"
#include "policy/list.h"
#include "policy/replace.h"
#include "policy/share.h"

static_assert(XK_SCHED_TEXT_LEN == XK_ERROR_TEXT);

static long ioctl_version(void __user *arg)
{
	struct xk_sched_version version = { .abi = XK_SCHED_ABI_VERSION };

	strscpy(version.module, XK_SCHED_MODULE_VERSION);
	return copy_to_user(arg, &version, sizeof(version)) ? -EFAULT : 0;
}

static long ioctl_status(void __user *arg)
{
	struct xk_sched_status status = { .nr_ejected = xk_reports() };
	unsigned int id;

	status.active = xk_class_is_active(status.reason);
	mutex_lock(&xk_policies_lock);
	for (id = 0; id < XK_MAX_POLICIES; id++) {
		if (!xk_policies[id])
			continue;
		status.nr_policies++;
		status.nr_threads += READ_ONCE(xk_policies[id]->nr_threads);
	}
	mutex_unlock(&xk_policies_lock);
	return copy_to_user(arg, &status, sizeof(status)) ? -EFAULT : 0;
}

static void describe(struct xk_sched_policy *policy, struct xk_sched_policy_info *info)
{
	struct xk_policy_core *own;
	int cpu;

	info->live = READ_ONCE(policy->live);
	info->nr_threads = READ_ONCE(policy->nr_threads);
	info->nr_overdue = READ_ONCE(policy->nr_overdue);
	info->slice_ns = policy->slice_ns;
	info->weight = READ_ONCE(policy->weight);
	strscpy(info->name, policy->name);
	xk_policy_describe_cpus(policy, info);
	for_each_possible_cpu(cpu) {
		own = per_cpu_ptr(policy->cores, cpu);
		info->nr_ready += READ_ONCE(own->nr_ready);
		info->nr_switches += READ_ONCE(own->nr_switches);
	}
}

static long ioctl_policy(void __user *arg)
{
	struct xk_sched_policy_info info = {};
	unsigned int id, index = 0;
	long ret = -ENOENT;

	if (copy_from_user(&info.index, arg, sizeof(info.index)))
		return -EFAULT;
	mutex_lock(&xk_policies_lock);
	for (id = 0; id < XK_MAX_POLICIES; id++) {
		if (!xk_policies[id] || index++ != info.index)
			continue;
		describe(xk_policies[id], &info);
		ret = 0;
		break;
	}
	mutex_unlock(&xk_policies_lock);
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		ret = -EFAULT;
	return ret;
}

static long ioctl_report(void __user *arg)
{
	struct xk_sched_report report = {};
	long ret;

	if (copy_from_user(&report.index, arg, sizeof(report.index)))
		return -EFAULT;
	ret = xk_report_read(report.index, &report);
	if (!ret && copy_to_user(arg, &report, sizeof(report)))
		ret = -EFAULT;
	return ret;
}

static long ioctl_stats(struct file *file, void __user *arg)
{
	struct xk_sched_stats stats = {};
	long ret;

	if (copy_from_user(&stats.index, arg, sizeof(stats.index)))
		return -EFAULT;
	ret = xk_stats_read(file, &stats);
	if (!ret && copy_to_user(arg, &stats, sizeof(stats)))
		ret = -EFAULT;
	return ret;
}

static long ioctl_dump(void __user *arg)
{
	struct xk_sched_dump request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_stats_dump(&request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_choose(struct file *file, void __user *arg)
{
	struct xk_sched_choice choice;
	struct xk_error error = {};
	char reason[XK_SCHED_TEXT_LEN];
	long ret;

	if (copy_from_user(&choice, arg, sizeof(choice)))
		return -EFAULT;
	if (choice.size != sizeof(choice))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret && !xk_class_is_active(reason))
		ret = xk_refuse(&error, -ENODEV,
				"%.150s: remove the policies' modules and xk_sched, and load them again",
				reason);
	if (!ret)
		ret = xk_choose(&choice, &error);
	memcpy(choice.error, error.text, sizeof(choice.error));
	return copy_to_user(arg, &choice, sizeof(choice)) ? -EFAULT : ret;
}

static long ioctl_weight(struct file *file, void __user *arg)
{
	struct xk_sched_weight request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret)
		ret = xk_policy_set_weight(request.policy, request.weight, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_cpus(struct file *file, void __user *arg)
{
	struct xk_sched_cpus request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret)
		ret = xk_policy_set_cpus(&request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_replace(struct file *file, void __user *arg)
{
	struct xk_sched_replacement request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret)
		ret = xk_policy_replace(&request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long ioctl_record(struct file *file, void __user *arg, bool end)
{
	struct xk_sched_recording request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret && end)
		ret = xk_record_stop(file, &request, &error);
	else if (!ret)
		ret = xk_record_start(file, &request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static long xk_sched_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *arg = (void __user *)argument;

	switch (command) {
	case XK_IOC_SCHED_VERSION:
		return ioctl_version(arg);
	case XK_IOC_SCHED_STATUS:
		return ioctl_status(arg);
	case XK_IOC_SCHED_POLICY:
		return ioctl_policy(arg);
	case XK_IOC_SCHED_REPORT:
		return ioctl_report(arg);
	case XK_IOC_SCHED_STATS:
		return ioctl_stats(file, arg);
	case XK_IOC_SCHED_DUMP:
		return ioctl_dump(arg);
	case XK_IOC_SCHED_CHOOSE:
		return ioctl_choose(file, arg);
	case XK_IOC_SCHED_WEIGHT:
		return ioctl_weight(file, arg);
	case XK_IOC_SCHED_CPUS:
		return ioctl_cpus(file, arg);
	case XK_IOC_SCHED_REPLACE:
		return ioctl_replace(file, arg);
	case XK_IOC_SCHED_RECORD:
		return ioctl_record(file, arg, false);
	case XK_IOC_SCHED_RECORD_END:
		return ioctl_record(file, arg, true);
	default:
		return -ENOTTY;
	}
}

static int xk_sched_open(struct inode *inode, struct file *file)
{
	/* Set if the descriptor counts. */
	file->private_data = NULL;
	return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static int xk_sched_release(struct inode *inode, struct file *file)
{
	xk_record_release(file);
	xk_stats_release(file);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = xk_sched_open,
	.release = xk_sched_release,
	.read = xk_record_read,
	.unlocked_ioctl = xk_sched_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "xk_sched",
	.mode = 0600,
	.fops = &operations,
};

int xk_sched_device_init(void)
{
	return misc_register(&device);
}

void xk_sched_device_exit(void)
{
	misc_deregister(&device);
}
