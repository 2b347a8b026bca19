// SPDX-License-Identifier: GPL-2.0-only
/* Waits, without xk_lock, until the kernel has restored bytes. */
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

/* kprobes restore a jump asynchronously, which takes a few grace periods. */
#define RESTORE_TIMEOUT (5 * HZ)

/* A place at which the kernel will restore the original bytes. */
struct restoring {
	struct list_head list;
	unsigned long address;
	u8 original;
	char symbol[XK_SYMBOL_LEN];
	u32 offset;
};

/* Protected by xk_lock. xk_unlock_restored() takes the entries off and waits without the lock. */
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
			pr_warn("xk: %s+0x%x: original bytes not restored yet: another kprobe was registered here, or kprobes are slow\n",
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

/* Without memory there is no wait. The kernel restores the bytes in any case. */
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
