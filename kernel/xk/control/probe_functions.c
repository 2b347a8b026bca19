// SPDX-License-Identifier: GPL-2.0-only
/* The functions of a request for probes: copied from user space, and checked. */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "control/probes.h"
#include "core/analysed.h"
#include "probe/attach.h"

/* Bytes of all functions together. */
#define MAX_BYTES (16 << 20)

static int check(const struct xk_probe_function *from, const struct xk_probe_function *before,
		 u32 index, struct xk_error *error)
{
	if (from->pad)
		return xk_refuse(error, -EINVAL, "function %u: pad is not 0", index);
	if (before && from->address <= before->address)
		return xk_refuse(error, -EINVAL,
				 "function %u: its address is not above that of function %u",
				 index, index - 1);
	if (!from->text_len || from->text_len > XK_MAX_TEXT)
		return xk_refuse(error, -EINVAL, "function %u: %u bytes; 1 to %u are possible",
				 index, from->text_len, XK_MAX_TEXT);
	if (!from->module[0])
		return xk_refuse(error, -EINVAL, "function %u: it is not in a module", index);
	return 0;
}

static u8 *copy_bytes(u64 from, u32 len)
{
	return vmemdup_user(u64_to_user_ptr(from), len);
}

static int copy(struct xk_probed_function *to, const struct xk_probe_function *from, u32 index,
		struct xk_error *error)
{
	struct xk_analysed *analysed = &to->analysed;
	int ret = xk_place_name(&to->place, from->symbol, from->module, "function", index, error);

	if (ret)
		return ret;
	to->requested = from->address;
	to->place.analysed = analysed;
	analysed->len = from->text_len;
	analysed->bytes = copy_bytes(from->text, from->text_len);
	analysed->mask = copy_bytes(from->mask, from->text_len);
	if (IS_ERR(analysed->bytes))
		ret = PTR_ERR(analysed->bytes);
	else if (IS_ERR(analysed->mask))
		ret = PTR_ERR(analysed->mask);
	if (!ret)
		return 0;
	if (IS_ERR(analysed->bytes))
		analysed->bytes = NULL;
	if (IS_ERR(analysed->mask))
		analysed->mask = NULL;
	return xk_refuse(error, ret, "function %u: its bytes cannot be copied", index);
}

static int copy_all(struct xk_probed_function *to, const struct xk_probe_function *from, u32 nr,
		    struct xk_error *error)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		int ret = check(&from[i], i ? &from[i - 1] : NULL, i, error);

		bytes += from[i].text_len;
		if (!ret && bytes > MAX_BYTES)
			ret = xk_refuse(error, -EINVAL, "more than %u bytes of functions",
					MAX_BYTES);
		if (!ret)
			ret = copy(&to[i], &from[i], i, error);
		if (ret)
			return ret;
	}
	return 0;
}

struct xk_probed_function *xk_probed_functions_read(const struct xk_probe_attach *request,
						    struct xk_error *error)
{
	struct xk_probed_function *functions;
	struct xk_probe_function *from;
	u32 nr = request->nr_functions;
	int ret;

	if (!nr)
		return NULL;
	from = vmemdup_array_user(u64_to_user_ptr(request->functions), nr, sizeof(*from));
	if (IS_ERR(from)) {
		xk_refuse(error, PTR_ERR(from), "the functions cannot be read");
		return ERR_CAST(from);
	}
	functions = kvcalloc(nr, sizeof(*functions), GFP_KERNEL);
	ret = functions ? copy_all(functions, from, nr, error) : -ENOMEM;
	kvfree(from);
	if (!ret)
		return functions;
	xk_probed_functions_free(functions, nr);
	return ERR_PTR(ret);
}
