// SPDX-License-Identifier: GPL-2.0-only
/* The requests of /dev/xk about probes. */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "control/privilege.h"
#include "control/probes.h"
#include "control/signature.h"
#include "probe/attach.h"

/* Places that one request about them can return. */
#define MAX_INFOS 4096

static const char NO_MEMORY[] = "no memory";

static int check_attach(struct xk_probe_attach *request, struct xk_error *error)
{
	if (request->flags & ~XK_PROBE_JUMPS_ONLY)
		return xk_refuse(error, -EINVAL, "unknown flags %#x", request->flags);
	if (!request->nr_places || request->nr_places > XK_MAX_PROBE_PLACES)
		return xk_refuse(error, -EINVAL, "%u places; 1 to %u are possible",
				 request->nr_places, XK_MAX_PROBE_PLACES);
	if (request->pad || request->nr_functions > XK_MAX_PROBE_FUNCTIONS)
		return xk_refuse(error, -EINVAL, "%u functions; at most %u are possible",
				 request->nr_functions, XK_MAX_PROBE_FUNCTIONS);
	if (request->nr_programs > XK_MAX_PROBE_PROGRAMS)
		return xk_refuse(error, -EINVAL, "%u programs; at most %u are possible",
				 request->nr_programs, XK_MAX_PROBE_PROGRAMS);
	if (strnlen(request->name, XK_NAME_LEN) == XK_NAME_LEN)
		return xk_refuse(error, -EINVAL, "the name has no end");
	return 0;
}

static int check_places(struct xk_probe_attach *request, const struct xk_probe_place *places,
			struct xk_error *error)
{
	u32 i;

	for (i = 0; i < request->nr_places; i++) {
		const struct xk_probe_place *place = &places[i];

		request->refused = i;
		if (memchr_inv(place->pad, 0, sizeof(place->pad)))
			return xk_refuse(error, -EINVAL, "place %u: pad is not 0", i);
		if (i && place->address <= places[i - 1].address)
			return xk_refuse(error, -EINVAL,
					 "place %u: its address is not above that of place %u", i,
					 i - 1);
		if (place->window > XK_MAX_WINDOW || place->window_lead > XK_MAX_WINDOW)
			return xk_refuse(error, -EINVAL,
					 "place %u: a window has at most %u bytes", i,
					 XK_MAX_WINDOW);
		if (place->host_window > XK_MAX_WINDOW ||
		    (place->host_window ? place->window >= XK_JUMP_LEN : place->host))
			return xk_refuse(error, -EINVAL,
					 "place %u: only a window of fewer than %u bytes has a host",
					 i, XK_JUMP_LEN);
		if (place->program && place->program >= request->nr_programs)
			return xk_refuse(error, -EINVAL, "place %u: program %u of %u", i,
					 place->program, request->nr_programs);
	}
	return 0;
}

/* The places and programs are in the kernel. */
static long attach_places(struct file *file, struct xk_probe_attach *request,
			  const struct xk_probe_place *places, const s32 *programs,
			  struct xk_error *error)
{
	struct xk_probed_function *functions;
	int ret = check_places(request, places, error);

	if (ret)
		return ret;
	functions = xk_probed_functions_read(request, error);
	if (IS_ERR(functions))
		return PTR_ERR(functions);
	return xk_probe_attach(file, request, places, programs, functions, error);
}

static long attach(struct file *file, struct xk_probe_attach *request, struct xk_error *error)
{
	struct xk_probe_place *places;
	s32 *programs;
	long ret;

	ret = xk_may_change(file, false, error);
	if (!ret && xk_signed_only())
		ret = xk_refuse(error, -EKEYREJECTED,
				"xk.ko was loaded with require_signed=1: no signature covers the program of a probe");
	if (!ret)
		ret = check_attach(request, error);
	if (ret)
		return ret;
	places = vmemdup_array_user(u64_to_user_ptr(request->places), request->nr_places,
				    sizeof(*places));
	if (IS_ERR(places))
		return xk_refuse(error, PTR_ERR(places), "the places cannot be read");
	programs = memdup_array_user(u64_to_user_ptr(request->programs), request->nr_programs,
				     sizeof(*programs));
	if (IS_ERR(programs)) {
		ret = xk_refuse(error, PTR_ERR(programs), "the programs cannot be read");
	} else {
		ret = attach_places(file, request, places, programs, error);
		kfree(programs);
	}
	kvfree(places);
	return ret;
}

long xk_ioctl_probe_attach(struct file *file, void __user *arg)
{
	struct xk_probe_attach request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.size != sizeof(request))
		return -EINVAL;
	request.id = 0;
	request.nr_jumps = 0;
	request.stops = 0;
	request.refused = request.nr_places;
	ret = attach(file, &request, &error);
	if (ret == -ENOMEM && !error.text[0])
		xk_refuse(&error, ret, NO_MEMORY);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

long xk_ioctl_probe_detach(struct file *file, void __user *arg)
{
	struct xk_probe_detach request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	ret = xk_may_go_back(file, &error);
	if (!ret)
		ret = xk_probe_detach(file, &request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

static int lease(struct file *file, const struct xk_probe_lease *request, struct xk_error *error)
{
	int ret = xk_may_change(file, false, error);

	if (!ret && request->flags & ~XK_PROBE_KEEP)
		ret = xk_refuse(error, -EINVAL, "unknown flags %#x", request->flags);
	return ret ?: xk_probe_lease(file, request, error);
}

long xk_ioctl_probe_lease(struct file *file, void __user *arg)
{
	struct xk_probe_lease request;
	struct xk_error error = {};
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	ret = lease(file, &request, &error);
	memcpy(request.error, error.text, sizeof(request.error));
	return copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : ret;
}

long xk_ioctl_probe_info(void __user *arg)
{
	struct xk_probe_info info;
	long ret;

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	ret = xk_probe_info(&info);
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		return -EFAULT;
	return ret;
}

long xk_ioctl_probe_places(void __user *arg)
{
	struct xk_probe_place_info *infos;
	struct xk_probe_places request;
	long ret;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.pad)
		return -EINVAL;
	request.nr = min_t(u32, request.nr, MAX_INFOS);
	infos = kvcalloc(request.nr, sizeof(*infos), GFP_KERNEL);
	if (!infos)
		return -ENOMEM;
	ret = xk_probe_places(&request, infos);
	if (!ret && (copy_to_user(u64_to_user_ptr(request.places), infos,
				  request.nr * sizeof(*infos)) ||
		     copy_to_user(arg, &request, sizeof(request))))
		ret = -EFAULT;
	kvfree(infos);
	return ret;
}
