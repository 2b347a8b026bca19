// SPDX-License-Identifier: GPL-2.0-only
/* Recordings of user space: one at a time, which belongs to a descriptor. */
#include <linux/cpumask.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>

#include "base/error.h"
#include "control/record.h"
#include "event/recording.h"
#include "policy/list.h"

static struct xk_recording recording;
static struct file *owner;	/* NULL: there is none */
static bool running;
/* Of all. Taken before the lock of the policies. */
static DEFINE_MUTEX(recording_lock);

static int refuse(const struct xk_sched_recording *request, struct xk_error *error)
{
	if (owner)
		return xk_refuse(error, -EBUSY, "there is another recording");
	if (nr_cpu_ids > XK_SCHED_RECORDING_CORES)
		return xk_refuse(error, -EOPNOTSUPP,
				 "a machine with more than %u CPUs cannot be recorded",
				 XK_SCHED_RECORDING_CORES);
	if (request->limit < PAGE_SIZE || request->limit > XK_SCHED_RECORDING_LIMIT)
		return xk_refuse(error, -EINVAL, "invalid limit: a recording has 4 KiB to 1 GiB");
	if (strnlen(request->policy, XK_SCHED_NAME_LEN) == XK_SCHED_NAME_LEN)
		return xk_refuse(error, -EINVAL, "the name of the policy does not end");
	return 0;
}

static int start(const char *name, struct xk_error *error)
{
	struct xk_sched_policy *policy = xk_policy_find(name);

	if (!policy)
		return xk_refuse(error, -ENOENT,
				 "no policy is called %s: load its module; 'xk sched list' shows those that are loaded",
				 name);
	if (policy->events->core_entry || policy->events->core_exit)
		return xk_refuse(error, -EOPNOTSUPP,
				 "policy %s has core_entry or core_exit, which have no order among other events",
				 name);
	if (!xk_recording_start(&recording, policy))
		return xk_refuse(error, -EBUSY,
				 "policy %s has had threads, and what it remembers of them is not known: remove its module and load it again",
				 name);
	return 0;
}

static void write_head(const char *policy)
{
	struct xk_sched_recording_head head = {
		.record_size = sizeof(struct xk_sched_record),
		.nr_cores = nr_cpu_ids,
		.possible = cpumask_bits(cpu_possible_mask)[0],
		.online = cpumask_bits(cpu_online_mask)[0],
	};

	memcpy(head.magic, XK_SCHED_RECORDING_MAGIC, sizeof(head.magic));
	strscpy(head.policy, policy);
	strscpy(head.release, init_utsname()->release);
	memcpy(recording.buffer, &head, sizeof(head));
	recording.used = sizeof(head);
	recording.complete = sizeof(head);
}

int xk_record_start(struct file *file, const struct xk_sched_recording *request,
		    struct xk_error *error)
{
	int ret;

	mutex_lock(&recording_lock);
	ret = refuse(request, error);
	if (ret)
		goto unlock;
	recording = (struct xk_recording){
		.buffer = vzalloc(request->limit),
		.size = request->limit,
	};
	ret = recording.buffer ? 0 : xk_refuse(error, -ENOMEM, "no memory for %llu bytes",
					       request->limit);
	if (ret)
		goto unlock;
	write_head(request->policy);
	mutex_lock(&xk_policies_lock);
	ret = start(request->policy, error);
	mutex_unlock(&xk_policies_lock);
	if (ret) {
		vfree(recording.buffer);
		goto unlock;
	}
	owner = file;
	running = true;
unlock:
	mutex_unlock(&recording_lock);
	return ret;
}

int xk_record_stop(struct file *file, struct xk_sched_recording *request, struct xk_error *error)
{
	int ret = 0;

	mutex_lock(&recording_lock);
	if (owner == file) {
		xk_recording_stop();
		running = false;
		request->bytes = recording.complete;
		request->missed = recording.missed;
	} else {
		ret = xk_refuse(error, -EINVAL, "this descriptor has no recording");
	}
	mutex_unlock(&recording_lock);
	return ret;
}

ssize_t xk_record_read(struct file *file, char __user *buffer, size_t size, loff_t *at)
{
	ssize_t ret = -EINVAL;

	mutex_lock(&recording_lock);
	if (owner == file && !running)
		ret = simple_read_from_buffer(buffer, size, at, recording.buffer,
					      recording.complete);
	mutex_unlock(&recording_lock);
	return ret;
}

void xk_record_release(struct file *file)
{
	mutex_lock(&recording_lock);
	if (owner == file) {
		if (running)
			xk_recording_stop();
		vfree(recording.buffer);
		owner = NULL;
	}
	mutex_unlock(&recording_lock);
}
