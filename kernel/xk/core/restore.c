// SPDX-License-Identifier: GPL-2.0-only
/* Waits, without xk_lock, until the kernel has put bytes back. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "core/restore.h"
#include "model/tune.h"

#define INT3 0xcc
#define JMP32 0xe9

/* The optimiser of kprobes restores a jump asynchronously; it needs a few grace periods. */
#define RESTORE_TIMEOUT (5 * HZ)

/* Where the kernel is about to put the original bytes back. */
struct restoring {
	struct list_head list;
	unsigned long address;
	u8 original;
	char symbol[XK_SYMBOL_LEN];
	u32 offset;
};

/* Under xk_lock; somebody waits for them without it. */
static LIST_HEAD(restoring);

static bool is_restored(const struct restoring *what)
{
	u8 byte;

	return copy_from_kernel_nofault(&byte, (void *)what->address, 1) ||
	       (byte != JMP32 && byte != INT3) || byte == what->original;
}

static void wait_restored(const struct restoring *what)
{
	unsigned long deadline = jiffies + RESTORE_TIMEOUT;

	while (!is_restored(what)) {
		if (time_after(jiffies, deadline)) {
			pr_warn("xk: %s+0x%x: still patched: another probe came here, or the kernel is slow\n",
				what->symbol, what->offset);
			return;
		}
		usleep_range(1000, 2000);
	}
}

void xk_unlock_restored(void)
{
	struct restoring *what, *next;
	LIST_HEAD(mine);

	list_splice_init(&restoring, &mine);
	mutex_unlock(&xk_lock);
	list_for_each_entry_safe(what, next, &mine, list) {
		wait_restored(what);
		kfree(what);
	}
}

/* Without memory nobody waits: the bytes come back all the same. */
void xk_restore_note(const struct xk_live_site *site)
{
	struct restoring *what = kzalloc(sizeof(*what), GFP_KERNEL);

	lockdep_assert_held(&xk_lock);
	if (!what)
		return;
	what->address = site->address;
	what->original = site->original[0];
	what->offset = site->offset;
	strscpy(what->symbol, site->place.symbol);
	list_add_tail(&what->list, &restoring);
}
