// SPDX-License-Identifier: GPL-2.0-only
/* See run.h. */
#include "../memory.h"
#include "run.h"

static struct machine *current;

static u8 *memory_at(u64 address, u8 width)
{
	u64 offset = address - current->base;

	if (offset > MEMORY_SIZE - width)
		return NULL;
	return &current->memory[offset];
}

u64 xk_per_cpu_base(void)
{
	return PER_CPU_BASE;
}

void link_to(const struct machine *machine, struct xk_op *ops, unsigned int nr_ops)
{
	xk_ops_link(ops, nr_ops, machine->memory, machine->base);
}

int xk_memory_load(u64 address, u8 width, u64 *value)
{
	const u8 *from = memory_at(address, width);

	if (!from)
		return -EFAULT;
	*value = 0;
	memcpy(value, from, width);
	return 0;
}

int xk_memory_store(u64 address, u8 width, u64 value)
{
	u8 *to = memory_at(address, width);

	if (!to)
		return -EFAULT;
	memcpy(to, &value, width);
	return 0;
}

int run_as_written(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		   const u64 *ivs)
{
	current = machine;
	return xk_ops_run(ops, nr_ops, ivs, &machine->regs);
}

int run_as_planned(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		   const u64 *ivs, unsigned int *kind)
{
	u64 constants[XK_SHAPE_CONSTANTS];
	u64 frame[XK_MAX_OPS] = {};
	struct xk_plan plan;

	current = machine;
	xk_plan_build(&plan, ops, nr_ops);
	xk_plan_fill(&plan, ivs, frame);
	xk_shape_fill(&plan, frame, constants);
	*kind = plan.kind;
	switch (plan.kind) {
	case XK_PLAN_VALUE:
		xk_shape_value(&plan.shape, constants, &machine->regs);
		return 0;
	case XK_PLAN_COMPARE:
		return xk_shape_compare(&plan.shape, constants, &machine->regs);
	case XK_PLAN_BINARY:
		return xk_shape_binary(&plan.shape, constants, &machine->regs);
	case XK_PLAN_SELECT:
		return xk_shape_select(&plan.shape, constants, &machine->regs);
	case XK_PLAN_STEPS:
		return xk_plan_run(&plan, frame, &machine->regs);
	default:
		return xk_ops_run(plan.ops, plan.nr_ops, ivs, &machine->regs);
	}
}
