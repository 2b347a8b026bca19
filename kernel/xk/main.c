// SPDX-License-Identifier: GPL-2.0-only
/*
 * xk.ko: changes performance constants of the running kernel through probes
 * whose effects were proved in user space and are checked here. This file is
 * the door: /dev/xk, its ioctls, and the module's own life.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/uaccess.h>

#include "memory.h"
#include "xk.h"

int xk_refuse(struct xk_error *error, int ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return ret;
}

static long ioctl_version(void __user *arg)
{
	struct xk_version version = { .abi = XK_ABI_VERSION };

	strscpy(version.module, XK_VERSION_STRING);
	return copy_to_user(arg, &version, sizeof(version)) ? -EFAULT : 0;
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
	ret = xk_tune_load(file, &load, &error);
	memcpy(load.error, error.text, sizeof(load.error));
	if (copy_to_user(arg, &load, sizeof(load))) {
		if (!ret)
			xk_tune_unload(file, load.id);
		return -EFAULT;
	}
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
	struct xk_set set;
	u32 id;

	switch (command) {
	case XK_IOC_VERSION:
		return ioctl_version(arg);
	case XK_IOC_LOAD:
		return ioctl_load(file, arg);
	case XK_IOC_SET:
		if (copy_from_user(&set, arg, sizeof(set)))
			return -EFAULT;
		return set.pad ? -EINVAL : xk_tune_set(file, set.id, set.value);
	case XK_IOC_UNLOAD:
		return get_user(id, (u32 __user *)arg) ? -EFAULT : xk_tune_unload(file, id);
	case XK_IOC_DETACH:
		return get_user(id, (u32 __user *)arg) ? -EFAULT : xk_tune_detach(file, id);
	case XK_IOC_TUNE_INFO:
		return ioctl_tune_info(arg);
	case XK_IOC_SITE_INFO:
		return ioctl_site_info(arg);
	default:
		return -ENOTTY;
	}
}

static int xk_open(struct inode *inode, struct file *file)
{
	return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static int xk_release(struct inode *inode, struct file *file)
{
	xk_tune_release(file);
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

static int module_coming(struct notifier_block *block, unsigned long event, void *data)
{
	/*
	 * When it is initialised, again: while it was coming, but was not listed
	 * yet, a tune may have been loaded that now waits for it.
	 */
	if (event == MODULE_STATE_COMING || event == MODULE_STATE_LIVE)
		xk_tune_module_coming(data);
	return NOTIFY_DONE;
}

static int module_going(struct notifier_block *block, unsigned long event, void *data)
{
	if (event == MODULE_STATE_GOING)
		xk_tune_module_going(data);
	return NOTIFY_DONE;
}

/*
 * After the kernel has patched the module (static calls, jump labels) and after
 * kprobes know where probes are forbidden in it.
 */
static struct notifier_block xk_coming_notifier = {
	.notifier_call = module_coming,
	.priority = -1,
};

/* Before kprobes' own, which gives up the probes in the module's text. */
static struct notifier_block xk_going_notifier = {
	.notifier_call = module_going,
	.priority = 1,
};

static int register_notifiers(void)
{
	int ret = register_module_notifier(&xk_coming_notifier);

	if (ret)
		return ret;
	ret = register_module_notifier(&xk_going_notifier);
	if (ret)
		unregister_module_notifier(&xk_coming_notifier);
	return ret;
}

static void unregister_notifiers(void)
{
	unregister_module_notifier(&xk_going_notifier);
	unregister_module_notifier(&xk_coming_notifier);
}

static int __init xk_init(void)
{
	int ret;

	xk_memory_init();
	ret = register_notifiers();
	if (ret)
		return ret;
	ret = misc_register(&xk_device);
	if (ret)
		unregister_notifiers();
	return ret;
}

static void __exit xk_exit(void)
{
	/* Open descriptors hold the module; what is left was detached. */
	misc_deregister(&xk_device);
	unregister_notifiers();
	xk_tune_unload_all();
}

module_init(xk_init);
module_exit(xk_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION(XK_VERSION_STRING);
MODULE_DESCRIPTION("Performance constants of the running kernel, changed through proved probes");
