/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * struct sched_ext_ops and what its functions receive. types.h is generated from the BTF of the
 * kernel for which the module is built: see Kbuild.
 */
#ifndef _XK_SCHED_OPS_H
#define _XK_SCHED_OPS_H

#include <linux/sched.h>
#include <linux/sched/ext.h>
#include <linux/types.h>

struct cgroup;
struct scx_cgroup_init_args;
struct scx_cmask;
struct scx_cpu_acquire_args;
struct scx_cpu_release_args;
struct scx_dump_ctx;
struct scx_exit_info;
struct scx_exit_task_args;
struct scx_init_task_args;
struct scx_sub_attach_args;
struct scx_sub_detach_args;

#include "ext/types.h"

#ifndef XK_EXT_SUB_SCHEDULERS
/* Linux 6.12 always asks the scheduler where to queue tasks that must not migrate. */
#define SCX_OPS_ENQ_MIGRATION_DISABLED	0
#endif

#endif /* _XK_SCHED_OPS_H */
