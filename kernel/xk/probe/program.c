// SPDX-License-Identifier: GPL-2.0-only
/* The programs of an attachment, and what must be done to run each of them. */
#include <linux/bpf.h>
#include <linux/err.h>
#include <linux/slab.h>

#include "base/lock.h"
#include "policy/policy.h"
#include "probe/program.h"
#include "probe/reads.h"

static int take(struct xk_probe_program *program, int fd, struct xk_error *error)
{
	struct bpf_prog *found = xk_probe_program_get(fd, error);

	if (IS_ERR(found))
		return PTR_ERR(found);
	program->program = found;
	program->needs_context = xk_program_needs_context(found);
	program->needs_kprobes = xk_program_asks_function(found);
	program->reads_all = program->needs_context || xk_program_reads_all(found);
	/* Kernels that check RCU need to be told about a reader. */
	program->is_plain = found->jited && !program->needs_context &&
			    !IS_ENABLED(CONFIG_PROVE_RCU);
	return 0;
}

int xk_probe_programs_take(struct xk_attachment *attachment, const s32 *descriptors, u32 nr,
			   struct xk_error *error)
{
	u32 i;
	int ret = 0;

	lockdep_assert_held(&xk_lock);
	attachment->programs = kcalloc(max(nr, 1U), sizeof(*attachment->programs), GFP_KERNEL);
	if (!attachment->programs)
		return -ENOMEM;
	attachment->nr_programs = nr;
	if (!nr)
		attachment->programs[0].is_plain = true;
	for (i = 0; i < nr && !ret; i++)
		ret = take(&attachment->programs[i], descriptors[i], error);
	return ret;
}

void xk_probe_programs_free(struct xk_attachment *attachment)
{
	u32 i;

	for (i = 0; i < attachment->nr_programs; i++)
		if (attachment->programs[i].program)
			bpf_prog_put(attachment->programs[i].program);
	kfree(attachment->programs);
	attachment->programs = NULL;
	attachment->nr_programs = 0;
}
