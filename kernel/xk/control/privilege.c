// SPDX-License-Identifier: GPL-2.0-only
/*
 * Permissions for changes. Every call that changes something checks them, not open(): a descriptor
 * can be passed on, and its holder may have dropped capabilities of the opener. Calls that only
 * read are not checked. Shared with xk_tunable.ko: uses only error.c of xk.ko.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/security.h>

#include "base/error.h"
#include "control/privilege.h"

/*
 * Lockdown has no reason of its own for what these modules do. Of the class `integrity`,
 * LOCKDOWN_DEV_MEM is the closest: a device through which root changes kernel memory.
 * LOCKDOWN_KPROBES is of the class `confidentiality`, and concerns what probes can read.
 */
#define LOCKDOWN_REASON LOCKDOWN_DEV_MEM

bool xk_locked_down(void)
{
	return security_locked_down(LOCKDOWN_REASON);
}

/* A return to the default needs only the descriptor and the capability. */
int xk_may_go_back(const struct file *caller, struct xk_error *error)
{
	if (!(caller->f_mode & FMODE_WRITE))
		return xk_refuse(error, -EACCES,
				 "/dev/%pD is open for reading only: to make changes, open it for reading and writing",
				 caller);
	if (!capable(CAP_SYS_ADMIN))
		return xk_refuse(error, -EACCES,
				 "process %d lacks CAP_SYS_ADMIN, which it needs itself to change anything through /dev/%pD: run it with sudo",
				 task_tgid_nr(current), caller);
	return 0;
}

/* `vouched`: a signature covers every possible effect, so lockdown does not forbid it. */
int xk_may_change(const struct file *caller, bool vouched, struct xk_error *error)
{
	int ret = xk_may_go_back(caller, error);

	if (ret)
		return ret;
	if (!vouched && xk_locked_down())
		return xk_refuse(error, -EACCES,
				 "the kernel is locked down (/sys/kernel/security/lockdown): values can be read and reverted to their defaults, not changed; boot without lockdown= and with Secure Boot off");
	return 0;
}
