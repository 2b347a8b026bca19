// SPDX-License-Identifier: GPL-2.0-only
/*
 * xk.ko changes performance constants of the running kernel through updates that were proved in
 * user space and are checked here. This file contains initialisation and exit, and the notifiers
 * for other modules.
 */
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>

#include "backend/list.h"
#include "base/compat.h"
#include "base/deadline.h"
#include "base/lock.h"
#include "base/requires.h"
#include "control/device.h"
#include "control/signature.h"
#include "core/lease.h"
#include "core/load.h"
#include "core/oops.h"
#include "core/restore.h"
#include "model/backend.h"
#include "ops/memory.h"
#include "policy/policy.h"
#include "probe/attach.h"
#include "stream/stream.h"
#include "text/internal.h"
#include "text/poke.h"
#include "text/stop_budget.h"
#include "transition/exiting.h"
#include "transition/unload.h"

static int module_coming(struct notifier_block *block, unsigned long event, void *data)
{
	/*
	 * Called again when the module is live: while it was coming, but not in the list of modules
	 * yet, a tune may have been loaded that now waits for it.
	 */
	if (event == MODULE_STATE_COMING || event == MODULE_STATE_LIVE) {
		xk_tune_module_coming(data);
		xk_probes_module_coming(data);
	}
	return NOTIFY_DONE;
}

static int module_going(struct notifier_block *block, unsigned long event, void *data)
{
	if (event == MODULE_STATE_GOING) {
		xk_probes_module_going(data);
		xk_tune_module_going(data);
	}
	return NOTIFY_DONE;
}

/*
 * After the kernel has patched the module (static calls, jump labels), and after kprobes know where
 * probes are forbidden in it.
 */
static struct notifier_block xk_coming_notifier = {
	.notifier_call = module_coming,
	.priority = -1,
};

/* Before the notifier of kprobes, which drops the probes in the text of the module. */
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
	xk_leases_init(xk_unload_start);
	xk_deadlines_init(xk_unlock_restored);
	xk_stop_budget_init();
	xk_workqueue = alloc_workqueue("xk", WQ_UNBOUND, 0);
	if (!xk_workqueue)
		return -ENOMEM;
	ret = xk_exiting_init();
	if (ret)
		goto destroy;
	ret = xk_policy_init();
	if (ret)
		goto exiting;
	xk_internal_init();
	if (xk_internal_missing())
		pr_warn("xk: kprobes only, no text is changed: this kernel lacks %s\n",
			xk_internal_missing());
	ret = xk_backends_init(xk_backend_list);
	if (ret)
		goto exiting;
	ret = xk_stream_init();
	if (ret)
		goto backends;
	ret = xk_signature_init();
	if (ret)
		goto backends;
	ret = register_notifiers();
	if (ret)
		goto signature;
	ret = xk_oops_init();
	if (ret)
		goto unregister;
	ret = xk_device_init();
	if (ret)
		goto oops;
	return 0;
oops:
	xk_oops_exit();
unregister:
	unregister_notifiers();
signature:
	xk_signature_exit();
backends:
	xk_backends_exit();
exiting:
	xk_exiting_exit();
destroy:
	destroy_workqueue(xk_workqueue);
	return ret;
}

static void __exit xk_exit(void)
{
	/* Open descriptors hold a reference to the module, so all tunes left are detached. */
	xk_device_exit();
	xk_probes_exit();
	xk_unload_all();
	xk_deadlines_exit();
	xk_oops_exit();
	unregister_notifiers();
	xk_backends_exit();
	xk_exiting_exit();
	/* Wait for versions of values that are being freed, and then for their policies. */
#ifdef CONFIG_TASKS_RCU
	rcu_barrier_tasks();
#endif
	rcu_barrier();
	destroy_workqueue(xk_workqueue);
	rcu_barrier();
	xk_signature_exit();
}

module_init(xk_init);
module_exit(xk_exit);

MODULE_LICENSE("GPL");
/* for bpf_link_get_from_fd() */
COMPAT_IMPORT_NS(BPF_INTERNAL);
MODULE_VERSION(XK_VERSION_STRING);
MODULE_DESCRIPTION("Performance constants of the running kernel, changed through proved probes");
