// SPDX-License-Identifier: GPL-2.0-only
/*
 * The analysed bytes of a function, and a mask of those that must equal the running ones. Sites and
 * scopes of a tune in the same function share them.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core/analysed.h"
#include "core/table.h"

static void free_analysed(struct xk_analysed *analysed)
{
	kvfree(analysed->bytes);
	kvfree(analysed->mask);
	kfree(analysed);
}

static struct xk_analysed *copy_analysed(const struct xk_request *request, u64 bytes,
					 u64 mask, u32 len)
{
	const void *from_bytes = xk_request_at(request, bytes, len);
	const void *from_mask = xk_request_at(request, mask, len);
	struct xk_analysed *analysed;

	if (!from_bytes || !from_mask)
		return ERR_PTR(-EINVAL);
	analysed = kzalloc(sizeof(*analysed), GFP_KERNEL);
	if (!analysed)
		return ERR_PTR(-ENOMEM);
	analysed->bytes = kvmalloc(len, GFP_KERNEL);
	analysed->mask = kvmalloc(len, GFP_KERNEL);
	if (!analysed->bytes || !analysed->mask) {
		free_analysed(analysed);
		return ERR_PTR(-ENOMEM);
	}
	memcpy(analysed->bytes, from_bytes, len);
	memcpy(analysed->mask, from_mask, len);
	analysed->users = 1;
	analysed->bytes_at = bytes;
	analysed->mask_at = mask;
	analysed->len = len;
	return analysed;
}

static bool came_from(const struct xk_analysed *analysed, u64 bytes, u64 mask, u32 len)
{
	return analysed && analysed->bytes_at == bytes && analysed->mask_at == mask &&
	       analysed->len == len;
}

struct xk_analysed *xk_analysed_get(struct xk_tune *tune, const struct xk_request *request,
				    u64 bytes, u64 mask, u32 len)
{
	struct xk_analysed *analysed = NULL;
	unsigned int i;

	for (i = 0; i < tune->nr_sites && !analysed; i++)
		if (came_from(tune->sites[i].place.analysed, bytes, mask, len))
			analysed = tune->sites[i].place.analysed;
	for (i = 0; i < tune->nr_scopes && !analysed; i++)
		if (came_from(tune->scopes[i].place.analysed, bytes, mask, len))
			analysed = tune->scopes[i].place.analysed;
	if (!analysed)
		return copy_analysed(request, bytes, mask, len);
	analysed->users++;
	return analysed;
}

void xk_analysed_put(struct xk_analysed *analysed)
{
	if (analysed && !--analysed->users)
		free_analysed(analysed);
}

int xk_place_name(struct xk_place *place, const char *symbol, const char *module,
		  const char *what, unsigned int index, struct xk_error *error)
{
	if (strnlen(symbol, XK_SYMBOL_LEN) == XK_SYMBOL_LEN || !symbol[0] ||
	    strnlen(module, XK_MODULE_LEN) == XK_MODULE_LEN)
		return xk_refuse(error, -EINVAL, "%s %u: a name is empty or not terminated",
				 what, index);
	strscpy(place->symbol, symbol);
	strscpy(place->module, module);
	return 0;
}
