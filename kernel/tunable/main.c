// SPDX-License-Identifier: GPL-2.0-only
/*
 * xk_tunable.ko: parameters and meters that other modules describe (xk_tunable.h), for `xk tune`.
 * This file contains initialisation and exit, and the notifier for other modules. The module and
 * xk.ko are independent of each other.
 */
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "tunable.h"

static int module_changes(struct notifier_block *block, unsigned long event, void *data)
{
	if (event == MODULE_STATE_LIVE)
		xk_tunables_module_live(data);
	else if (event == MODULE_STATE_GOING)
		xk_tunables_forget(data);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = {
	.notifier_call = module_changes,
};

/*
 * Looks at loaded modules. Modules that are loaded later are reported by the notifier. The kernel
 * exports no list of modules; they are found in /sys/module, as by user space.
 */
static void look_at_loaded(void)
{
	struct kset *kset = THIS_MODULE->mkobj.kobj.kset;
	struct kobject *kobject, **kobjects;
	unsigned int i, nr = 0, nr_found = 0;
	struct module *module;

	spin_lock(&kset->list_lock);
	list_for_each_entry(kobject, &kset->list, entry)
		nr++;
	spin_unlock(&kset->list_lock);
	kobjects = kvmalloc_array(nr, sizeof(*kobjects), GFP_KERNEL);
	if (!kobjects) {
		pr_warn("xk: no memory to search the loaded modules for parameters\n");
		return;
	}
	spin_lock(&kset->list_lock);
	list_for_each_entry(kobject, &kset->list, entry)
		if (nr_found < nr && kobject_get_unless_zero(kobject))
			kobjects[nr_found++] = kobject;
	spin_unlock(&kset->list_lock);
	for (i = 0; i < nr_found; i++) {
		/* A part of vmlinux with parameters has an entry, too. */
		module = container_of(kobjects[i], struct module_kobject, kobj)->mod;
		if (module)
			xk_tunables_module_live(module);
		kobject_put(kobjects[i]);
	}
	kvfree(kobjects);
}

static int __init xk_tunable_init(void)
{
	int ret = xk_tunables_lease_init();

	if (ret)
		return ret;
	ret = register_module_notifier(&notifier);
	if (ret)
		goto lease;
	look_at_loaded();
	ret = xk_tunable_device_init();
	if (ret)
		goto unregister;
	return 0;
unregister:
	unregister_module_notifier(&notifier);
	xk_tunables_forget(NULL);
lease:
	xk_tunables_lease_exit();
	return ret;
}

static void __exit xk_tunable_exit(void)
{
	/* Open descriptors hold a reference to the module. */
	xk_tunable_device_exit();
	xk_tunables_lease_exit();
	unregister_module_notifier(&notifier);
	xk_tunables_forget(NULL);
}

module_init(xk_tunable_init);
module_exit(xk_tunable_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION(XK_TUNABLE_VERSION);
MODULE_DESCRIPTION("Parameters and meters that other modules describe, for xk tune");
