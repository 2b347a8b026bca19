// SPDX-License-Identifier: GPL-2.0-only
/* Checks of instructions that are to be replaced or changed. */
#include <linux/delay.h>
#include <linux/minmax.h>

#include "backend/window.h"
#include "text/internal.h"

#define FIRST_INTERVAL_US 500
#define LAST_INTERVAL_US 100000

/* Checks only the function of the site. The analysis checked all other functions. */
const char *xk_branch_into(const struct xk_live_site *site, const struct xk_window *window,
			   const u8 *text)
{
	u32 len = site->place.analysed->len;
	unsigned long function = site->place.function;
	u32 at = 0;

	while (at < len) {
		unsigned long target;
		unsigned int size = xk_branch(text + at, len - at, function + at,
					      xk_insn_decode, &target);

		if (!size)
			return "the function contains bytes that cannot be decoded";
		if (target > window->address && target < window->address + window->len)
			return "a branch leads into these instructions";
		at += size;
	}
	return NULL;
}

bool xk_window_is_probed(const struct xk_window *window)
{
	unsigned int i;

	for (i = 0; i < window->len; i++)
		if (xk_is_probed(window->address + i))
			return true;
	return false;
}

void xk_window_wait(unsigned int attempt)
{
	unsigned int us = min(FIRST_INTERVAL_US << attempt, LAST_INTERVAL_US);

	usleep_range(us, 2 * us);
}
