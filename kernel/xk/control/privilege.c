// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who may change something. The question is asked of every call that changes, not
 * of open(): a descriptor can be passed on, and its holder may have given up what
 * the opener could do. What only reads is not asked. Shared with xk_tunable.ko: needs
 * nothing of xk.ko but error.c.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/security.h>

#include "base/error.h"
#include "control/privilege.h"

/*
 * Lockdown has no reason of its own for what these modules do. Of the class `integrity`,
 * LOCKDOWN_DEV_MEM is the nearest: a device through which root changes the memory of
 * the kernel. LOCKDOWN_KPROBES is of the class `confidentiality`, and is about what
 * probes can read.
 */
#define LOCKDOWN_REASON LOCKDOWN_DEV_MEM

bool xk_locked_down(void)
{
	return security_locked_down(LOCKDOWN_REASON);
}

/* Going back to the default needs the descriptor and the capability, and no more. */
int xk_may_go_back(const struct file *caller, struct xk_error *error)
{
	if (!(caller->f_mode & FMODE_WRITE))
		return xk_refuse(error, -EACCES,
				 "the descriptor of /dev/%pD is open for reading only, and nothing is changed through it: open it for reading and writing",
				 caller);
	if (!capable(CAP_SYS_ADMIN))
		return xk_refuse(error, -EACCES,
				 "process %d has no CAP_SYS_ADMIN, whoever opened /dev/%pD: run it with sudo",
				 task_tgid_nr(current), caller);
	return 0;
}

/* `vouched`: a signature covers what can follow, so that lockdown is not in the way. */
int xk_may_change(const struct file *caller, bool vouched, struct xk_error *error)
{
	int ret = xk_may_go_back(caller, error);

	if (ret)
		return ret;
	if (!vouched && xk_locked_down())
		return xk_refuse(error, -EACCES,
				 "the kernel is locked down (/sys/kernel/security/lockdown): values can be read and put back, not changed; boot without lockdown= and with Secure Boot off");
	return 0;
}
