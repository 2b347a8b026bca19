// SPDX-License-Identifier: GPL-2.0-only
/* Makes allocations fail on request of a test, and counts what xk.ko holds. */
#include <linux/module.h>
#include <linux/spinlock.h>

#include "fault.h"

static DEFINE_SPINLOCK(lock);

static int after;
module_param(after, int, 0644);
MODULE_PARM_DESC(after, "number of the allocation that fails, counted from now; 0: none");

static bool lasting;
module_param(lasting, bool, 0644);
MODULE_PARM_DESC(lasting, "... and all that follow it");

static int failed;
module_param(failed, int, 0644);
MODULE_PARM_DESC(failed, "allocations that were made to fail");

static int taken;
module_param(taken, int, 0444);
MODULE_PARM_DESC(taken, "pieces of memory and threads that are held now");

static int waited;
module_param(waited, int, 0444);
MODULE_PARM_DESC(waited, "number of waits for handlers without a stop");

void faulty_waited(void)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	waited++;
	spin_unlock_irqrestore(&lock, flags);
}

bool faulty_now(void)
{
	bool fails = false;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	if (after > 0) {
		fails = after == 1;
		if (!fails || !lasting)
			after--;
		failed += fails;
	}
	spin_unlock_irqrestore(&lock, flags);
	return fails;
}

void faulty_took(int number)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	taken += number;
	spin_unlock_irqrestore(&lock, flags);
}
