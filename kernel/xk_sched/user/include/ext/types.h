/* SPDX-License-Identifier: GPL-2.0-only */
/* What class/ uses of sched_ext. For the module, this is generated. */
#ifndef _XK_USER_TYPES_H
#define _XK_USER_TYPES_H

#define SCX_DEQ_SLEEP 1

struct scx_init_task_args {
	bool fork;
};

#endif /* _XK_USER_TYPES_H */
