// SPDX-License-Identifier: GPL-2.0-only
/*
 * xk_sched.ko: schedulers as modules. It registers one scheduler with sched_ext, for threads of the
 * class SCHED_EXT only, and lets policies, which are modules, decide for the threads that chose
 * them: docs/sched.md. The module and xk.ko are independent of each other.
 */
#include <linux/module.h>

#include "base/error.h"
#include "class/class.h"
#include "control/device.h"
#include "event/escape.h"
#include "event/watch.h"
#include "ext/kernel.h"
#include "model/core.h"
#include "model/thread.h"
#include "policy/cpus.h"
#include "policy/eject.h"
#include "policy/starved.h"

static int start(struct xk_error *error)
{
	int ret = xk_ext_init(error);

	if (ret)
		return ret;
	ret = xk_threads_init();
	if (ret)
		return ret;
	ret = xk_eject_init();
	if (ret)
		goto threads;
	ret = xk_escape_init(error);
	if (ret)
		goto eject;
	ret = xk_watch_init(error);
	if (ret)
		goto escape;
	ret = xk_class_start(error);
	if (ret)
		goto watch;
	xk_starved_init();
	ret = xk_sched_device_init();
	if (!ret)
		return 0;
	xk_starved_exit();
	xk_class_stop();
watch:
	xk_watch_exit();
escape:
	xk_escape_exit();
eject:
	xk_eject_exit();
threads:
	xk_threads_exit();
	return ret;
}

static int __init xk_sched_init(void)
{
	struct xk_error error = {};
	int ret;

	xk_cores_init();
	xk_displace_init();
	ret = start(&error);
	if (ret)
		pr_err("xk_sched: not started (%d): %s\n", ret,
		       *error.text ? error.text : "no memory");
	return ret;
}

/* Policies use our symbols, so none is left. */
static void __exit xk_sched_exit(void)
{
	xk_sched_device_exit();
	xk_starved_exit();
	xk_eject_strays();
	xk_class_stop();
	xk_displace_exit();
	xk_watch_exit();
	xk_escape_exit();
	xk_eject_exit();
	xk_threads_exit();
}

module_init(xk_sched_init);
module_exit(xk_sched_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION(XK_SCHED_MODULE_VERSION);
MODULE_DESCRIPTION("Schedulers as modules, on sched_ext");
