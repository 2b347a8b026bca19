// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the analysis saw of a function: its bytes, and which of them must be the
 * running ones. Sites and scopes of a tune that lie in one function share it.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "table.h"
#include "xk.h"

static void free_text(struct xk_text *text)
{
	kvfree(text->bytes);
	kvfree(text->mask);
	kfree(text);
}

static struct xk_text *copy_text(const struct xk_request *request, u64 bytes, u64 mask, u32 len)
{
	const void *from_bytes = xk_request_at(request, bytes, len);
	const void *from_mask = xk_request_at(request, mask, len);
	struct xk_text *text;

	if (!from_bytes || !from_mask)
		return ERR_PTR(-EINVAL);
	text = kzalloc(sizeof(*text), GFP_KERNEL);
	if (!text)
		return ERR_PTR(-ENOMEM);
	text->bytes = kvmalloc(len, GFP_KERNEL);
	text->mask = kvmalloc(len, GFP_KERNEL);
	if (!text->bytes || !text->mask) {
		free_text(text);
		return ERR_PTR(-ENOMEM);
	}
	memcpy(text->bytes, from_bytes, len);
	memcpy(text->mask, from_mask, len);
	text->users = 1;
	text->bytes_at = bytes;
	text->mask_at = mask;
	text->len = len;
	return text;
}

static bool came_from(const struct xk_text *text, u64 bytes, u64 mask, u32 len)
{
	return text && text->bytes_at == bytes && text->mask_at == mask && text->len == len;
}

/* Copied once if the table has it once. */
struct xk_text *xk_text_get(struct xk_tune *tune, const struct xk_request *request, u64 bytes,
			    u64 mask, u32 len)
{
	struct xk_text *text = NULL;
	unsigned int i;

	for (i = 0; i < tune->nr_sites && !text; i++)
		if (came_from(tune->sites[i].place.text, bytes, mask, len))
			text = tune->sites[i].place.text;
	for (i = 0; i < tune->nr_scopes && !text; i++)
		if (came_from(tune->scopes[i].place.text, bytes, mask, len))
			text = tune->scopes[i].place.text;
	if (!text)
		return copy_text(request, bytes, mask, len);
	text->users++;
	return text;
}

void xk_text_put(struct xk_text *text)
{
	if (text && !--text->users)
		free_text(text);
}

/* Takes the names over. `what` and `index` name the thing in the refusal. */
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
