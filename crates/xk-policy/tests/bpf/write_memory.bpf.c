// SPDX-License-Identifier: GPL-2.0-only
#include "xk.bpf.h"

XK_TUNE(writes, "HOLD")
{
	struct task_struct *task = bpf_get_current_task_btf();

	task->pid = 77;
	return 0;
}
