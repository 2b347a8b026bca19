// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/xk_tunable. A request of user space is copied, checked for permission
 * (xk/control/privilege.c), and passed on. Results, and the reason of a refusal, are copied back.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/error.h"
#include "control/privilege.h"
#include "tunable.h"
#include "uapi/xk_parameter.h"

static_assert(XK_PARAMETER_ERROR_LEN == XK_ERROR_TEXT);

static long ioctl_version(void __user *arg)
{
	struct xk_parameter_version version = { .abi = XK_PARAMETER_ABI_VERSION };

	strscpy(version.module, XK_TUNABLE_VERSION);
	return copy_to_user(arg, &version, sizeof(version)) ? -EFAULT : 0;
}

static long ioctl_parameter_info(struct file *file, void __user *arg)
{
	struct xk_parameter_info *info = memdup_user(arg, sizeof(*info));
	long ret;

	if (IS_ERR(info))
		return PTR_ERR(info);
	ret = xk_parameter_info(file, info);
	if (!ret && copy_to_user(arg, info, sizeof(*info)))
		ret = -EFAULT;
	kfree(info);
	return ret;
}

static long ioctl_parameter_change(struct file *file, void __user *arg)
{
	struct xk_parameter_change change;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&change, arg, sizeof(change)))
		return -EFAULT;
	if (change.size != sizeof(change))
		return -EINVAL;
	ret = xk_may_change(file, false, &error);
	if (!ret)
		ret = xk_parameter_change(file, &change, &error);
	memcpy(change.error, error.text, sizeof(change.error));
	return copy_to_user(arg, &change, sizeof(change)) ? -EFAULT : ret;
}

static long ioctl_meter_info(void __user *arg)
{
	struct xk_meter_info info;
	long ret;

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	ret = xk_meter_info(&info);
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		return -EFAULT;
	return ret;
}

static long xk_tunable_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *arg = (void __user *)argument;

	switch (command) {
	case XK_IOC_PARAMETER_VERSION:
		return ioctl_version(arg);
	case XK_IOC_PARAMETER_INFO:
		return ioctl_parameter_info(file, arg);
	case XK_IOC_PARAMETER_CHANGE:
		return ioctl_parameter_change(file, arg);
	case XK_IOC_METER_INFO:
		return ioctl_meter_info(arg);
	default:
		return -ENOTTY;
	}
}

/* Required for reading, too: values that modules report are privileged. See xk_may_change(). */
static int xk_tunable_open(struct inode *inode, struct file *file)
{
	return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static int xk_tunable_release(struct inode *inode, struct file *file)
{
	xk_tunables_release(file);
	return 0;
}

static const struct file_operations xk_tunable_fops = {
	.owner = THIS_MODULE,
	.open = xk_tunable_open,
	.release = xk_tunable_release,
	.unlocked_ioctl = xk_tunable_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice xk_tunable_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "xk_tunable",
	.mode = 0600,
	.fops = &xk_tunable_fops,
};

int xk_tunable_device_init(void)
{
	return misc_register(&xk_tunable_device);
}

void xk_tunable_device_exit(void)
{
	misc_deregister(&xk_tunable_device);
}
