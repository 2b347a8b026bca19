// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that a tune ignores because an administrator named them. Their stacks can never be read,
 * so they would count as inside for ever. Only values change under such a thread, never
 * instructions. A thread is ignored only as long as its stack is unreadable and none of its
 * readable frames is inside.
 */
#include <linux/delay.h>
#include <linux/pid.h>
#include <linux/sched/task.h>
#include <linux/string.h>

#include "transition/ignore.h"
#include "transition/transition.h"

/*
 * The number of checks of a thread. A thread that is in a stub of xk.ko has a readable stack again
 * soon.
 */
#define LOOKS 10
#define INTERVAL_MS 20

static bool is_nowhere(const struct xk_frame *frame, void *unused)
{
	return false;
}

/* Succeeds if the stack was unreadable at every check at which the thread was not running. */
static int check_unreadable(struct task_struct *task, struct xk_error *error)
{
	static const struct xk_look look = { .stands = is_nowhere };
	unsigned int i, unreadable = 0;
	struct xk_blocker seen;

	for (i = 0; i < LOOKS; i++) {
		if (i)
			msleep(INTERVAL_MS);
		switch (xk_stack_read_running(task, &look, &seen)) {
		case XK_STACK_READ:
			return xk_refuse(error, -EINVAL,
					 "the stack of thread %d (%s) can be read: only threads with unreadable stacks can be ignored",
					 task_pid_nr(task), task->comm);
		case XK_STACK_UNREADABLE:
			unreadable++;
			break;
		case XK_STACK_RUNS:
			break;
		}
	}
	if (unreadable)
		return 0;
	return xk_refuse(error, -EAGAIN,
			 "thread %d (%s) was running at every check, so its stack could not be checked: try again",
			 task_pid_nr(task), task->comm);
}

static struct task_struct *find_thread(pid_t number)
{
	struct pid *pid = find_get_pid(number);
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);

	put_pid(pid);
	return task;
}

static bool leaves_out(const struct xk_tune *tune, const struct task_struct *task)
{
	unsigned int i;

	for (i = 0; i < tune->nr_ignored; i++)
		if (tune->ignored[i] == task)
			return true;
	return false;
}

/* Drops threads that have ended, to make room. */
static void forget_dead(struct xk_tune *tune)
{
	unsigned int i, nr = 0;

	for (i = 0; i < tune->nr_ignored; i++) {
		if (pid_alive(tune->ignored[i]))
			tune->ignored[nr++] = tune->ignored[i];
		else
			put_task_struct(tune->ignored[i]);
	}
	tune->nr_ignored = nr;
}

static int add_to(struct xk_tune *tune, struct task_struct *task, struct xk_error *error)
{
	lockdep_assert_held(&xk_lock);
	if (tune->least_mode != XK_MODE_NOW)
		return xk_refuse(error, -EKEYREJECTED,
				 "%s: the table is signed for transitions that check every thread: no thread can be ignored",
				 tune->name);
	if (tune->traits & XK_BACKEND_TEXT)
		return xk_refuse(error, -EOPNOTSUPP,
				 "%s: its instructions change, so every stack must be readable: use the backend kprobe",
				 tune->name);
	forget_dead(tune);
	if (leaves_out(tune, task))
		return 0;
	if (tune->nr_ignored == XK_MAX_IGNORED)
		return xk_refuse(error, -ENOSPC, "%s: %u threads are already ignored",
				 tune->name, XK_MAX_IGNORED);
	get_task_struct(task);
	tune->ignored[tune->nr_ignored++] = task;
	pr_warn("xk: %s: thread %d (%s) is ignored, because its stack cannot be read: it may use two different values\n",
		tune->name, task_pid_nr(task), task->comm);
	return 0;
}

int xk_ignore(struct file *caller, u32 id, pid_t number, struct xk_error *error)
{
	struct task_struct *task = find_thread(number);
	struct xk_tune *tune;
	int ret;

	if (!task)
		return xk_refuse(error, -ESRCH, "there is no thread %d", number);
	ret = check_unreadable(task, error);
	if (!ret) {
		mutex_lock(&xk_lock);
		tune = xk_tune_find_owned(caller, id, error);
		ret = IS_ERR(tune) ? PTR_ERR(tune) : add_to(tune, task, error);
		mutex_unlock(&xk_lock);
	}
	put_task_struct(task);
	return ret;
}

bool xk_is_ignored(const struct xk_live_transition *transition, const struct task_struct *task)
{
	unsigned int i;

	for (i = 0; i < transition->nr; i++)
		if (!leaves_out(transition->tunes[i], task))
			return false;
	return true;
}

unsigned int xk_ignored_describe(struct xk_tune *tune, s32 *numbers)
{
	unsigned int i;

	lockdep_assert_held(&xk_lock);
	forget_dead(tune);
	for (i = 0; i < tune->nr_ignored; i++)
		numbers[i] = task_pid_nr(tune->ignored[i]);
	return tune->nr_ignored;
}
