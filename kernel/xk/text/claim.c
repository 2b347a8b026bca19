// SPDX-License-Identifier: GPL-2.0-only
/* Claims, ordered by address. They do not overlap. */
#include <linux/lockdep.h>
#include <linux/xarray.h>

#include "base/lock.h"
#include "text/claim.h"

static struct rb_root claims = RB_ROOT;
/* By address. */
static DEFINE_XARRAY(relays);

static struct xk_claim *claim_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct xk_claim, node);
}

struct xk_claim *xk_claim_find(unsigned long start, unsigned long end)
{
	struct rb_node *node = claims.rb_node;
	struct xk_claim *first = NULL;

	lockdep_assert_held(&xk_lock);
	while (node) {
		struct xk_claim *claim = claim_of(node);

		if (claim->address + claim->len <= start) {
			node = node->rb_right;
		} else {
			if (claim->address < end)
				first = claim;
			node = node->rb_left;
		}
	}
	return first;
}

static bool is_less(struct rb_node *a, const struct rb_node *b)
{
	return claim_of(a)->address < rb_entry(b, struct xk_claim, node)->address;
}

void xk_claim_add(struct xk_claim *claim)
{
	lockdep_assert_held(&xk_lock);
	rb_add(&claim->node, &claims, is_less);
}

void xk_claim_remove(struct xk_claim *claim)
{
	lockdep_assert_held(&xk_lock);
	rb_erase(&claim->node, &claims);
}

bool xk_claim_begins(unsigned long address)
{
	const struct xk_claim *claim = xk_claim_find(address, address + 1);

	return claim && claim->written && claim->address == address;
}

bool xk_claim_covers(unsigned long address)
{
	const struct xk_claim *claim = xk_claim_find(address, address + 1);

	return claim && claim->written;
}

void xk_claims_undo(u8 *view, unsigned long start, u32 len)
{
	struct xk_claim *claim = xk_claim_find(start, start + len);
	unsigned int i;

	for (; claim && claim->address < start + len; claim = claim_of(rb_next(&claim->node)))
		for (i = 0; claim->written && i < claim->len; i++)
			if (claim->address + i - start < len)
				view[claim->address + i - start] = claim->bytes[i];
}

bool xk_relay_add(unsigned long address)
{
	lockdep_assert_held(&xk_lock);
	return !xa_is_err(xa_store(&relays, address, xa_mk_value(1), GFP_KERNEL));
}

void xk_relay_remove(unsigned long address)
{
	lockdep_assert_held(&xk_lock);
	xa_erase(&relays, address);
}

bool notrace xk_is_relay(unsigned long address)
{
	return xa_load(&relays, address);
}
