// SPDX-License-Identifier: GPL-2.0-only
/* The scheduler of sched_ext that all policies share. */
#include <linux/compiler.h>
#include <linux/mutex.h>
#include <linux/string.h>

#include "base/error.h"
#include "class/class.h"
#include "ext/kernel.h"
#include "uapi/xk_sched.h"

static bool active;
static char why[XK_SCHED_TEXT_LEN];
/* Of both. */
static DEFINE_MUTEX(why_lock);

static s32 started(void)
{
	WRITE_ONCE(active, true);
	return 0;
}

/* All threads have left the class. May sleep. */
static void ended(struct scx_exit_info *info)
{
	mutex_lock(&why_lock);
	WRITE_ONCE(active, false);
	snprintf(why, sizeof(why), "sched_ext has removed it: %s%s%s", info->reason,
		 info->msg && *info->msg ? ": " : "", info->msg ?: "");
	mutex_unlock(&why_lock);
}

static struct sched_ext_ops operations = {
	.select_cpu = xk_class_select_cpu,
	.enqueue = xk_class_enqueue,
	.dequeue = xk_class_dequeue,
	.dispatch = xk_class_dispatch,
	.tick = xk_class_tick,
	.yield = xk_class_yield,
	.quiescent = xk_class_quiescent,
	.init_task = xk_class_init_task,
	.exit_task = xk_class_exit_task,
	.enable = xk_class_enable,
	.disable = xk_class_disable,
	.cpu_online = xk_class_cpu_online,
	.cpu_offline = xk_class_cpu_offline,
	.init = started,
	.exit = ended,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	/* What a registration by eBPF would fill in. */
	.exit_dump_len = 32768,
	.timeout_ms = 30000,
	.name = "xk_sched",
};

int xk_class_start(struct xk_error *error)
{
	int ret = xk_ext_register(&operations);

	if (ret == -EBUSY)
		return xk_refuse(error, ret,
				 "another scheduler is active: /sys/kernel/sched_ext/root/ops names it");
	if (ret)
		return xk_refuse(error, ret, "sched_ext refuses the scheduler (%d)", ret);
	if (READ_ONCE(active))
		return 0;
	/* Registering succeeds, too, if a callback failed: `exit` was called. */
	xk_ext_unregister(&operations, true);
	return xk_refuse(error, -EIO, "%s", why);
}

void xk_class_stop(void)
{
	xk_ext_unregister(&operations, !READ_ONCE(active));
}

bool xk_class_is_active(char *reason)
{
	bool is;

	mutex_lock(&why_lock);
	is = active;
	strscpy(reason, why, XK_SCHED_TEXT_LEN);
	mutex_unlock(&why_lock);
	return is;
}
