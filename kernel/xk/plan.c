// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a checked program to the form in which handlers run it, and the
 * function that runs it. Refuses nothing: a program without a faster form is
 * left to the interpreter.
 *
 * Every temporary gets a slot of its own, numbered like the operation that
 * wrote it, so that constants can be written once per value and stay.
 */
#include "memory.h"
#include "plan.h"

/* The widest value that the operation can leave in its temporary. */
static u8 result_width(const struct xk_op *op)
{
	switch (op->code) {
	case XK_OP_FLAGS:
	case XK_OP_FLAGS_ADD:
	case XK_OP_FLAGS_SUB:
	case XK_OP_FLAGS_LOGIC:
		return 2;
	case XK_OP_EQ:
	case XK_OP_ULT:
	case XK_OP_SLT:
	case XK_OP_COND:
		return 1;
	default:
		return op->width;
	}
}

static u8 fast_code(const struct xk_op *op, u8 operand_width)
{
	switch (op->code) {
	case XK_OP_PER_CPU:
	case XK_OP_LOAD:
	case XK_OP_STORE:
	case XK_OP_SELECT:
	case XK_OP_ADD:
	case XK_OP_SUB:
	case XK_OP_AND:
	case XK_OP_OR:
	case XK_OP_XOR:
		return op->code;
	case XK_OP_SHL:
	case XK_OP_SHR:
	case XK_OP_EQ:
	case XK_OP_ULT:
	case XK_OP_FLAGS_SUB:
		if (operand_width <= op->width)
			return op->code;
		break;
	}
	return op->code | XK_STEP_GENERIC;
}

static void add_fetch(struct xk_plan *plan, u8 slot, u16 reg, u8 shift, u64 mask)
{
	plan->fetches[plan->nr_fetches++] = (struct xk_fetch) {
		.reg = reg, .slot = slot, .shift = shift, .mask = mask,
	};
}

static void add_commit(struct xk_plan *plan, u8 slot, u16 reg, u64 keep, u64 set)
{
	plan->commits[plan->nr_commits++] = (struct xk_commit) {
		.reg = reg, .slot = slot, .keep = keep, .set = set,
	};
}

/* All that it reads is known when the value is set. */
static bool is_foldable(const struct xk_plan *plan, const struct xk_step *step,
			unsigned int reads)
{
	u64 slots = 0;

	if (step->code == XK_OP_LOAD || step->code == XK_OP_STORE ||
	    step->code == XK_OP_PER_CPU)
		return false;
	if (reads & 1)
		slots |= 1ULL << step->a;
	if (reads & 2)
		slots |= 1ULL << step->b;
	if (reads & 4)
		slots |= 1ULL << step->c;
	return !(slots & ~plan->constants);
}

void xk_plan_build(struct xk_plan *plan, const struct xk_op *ops, unsigned int nr_ops)
{
	const u16 flags = offsetof(struct pt_regs, flags);
	u8 slots[XK_MAX_TEMPS] = {};
	unsigned int i;

	memset(plan, 0, sizeof(*plan));
	memcpy(plan->ops, ops, nr_ops * sizeof(*ops));
	plan->nr_ops = nr_ops;
	plan->kind = XK_PLAN_STEPS;

	for (i = 0; i < nr_ops; i++) {
		const struct xk_op *op = &ops[i];
		const unsigned int reads = xk_op_reads(op->code);
		const u64 mask = xk_width_mask(op->width);
		const u8 a = reads & 1 ? slots[op->a] : 0;
		const u8 b = reads & 2 ? slots[op->b] : 0;
		const u8 c = reads & 4 ? slots[op->c] : 0;
		struct xk_step step;
		u8 wide = 0;

		switch (op->code) {
		case XK_OP_IV:
		case XK_OP_IMM:
			plan->constants |= 1ULL << i;
			break;
		case XK_OP_REG:
		case XK_OP_FLAGS:
			if (plan->nr_commits) {
				plan->kind = XK_PLAN_INTERPRET;
				return;
			}
			if (op->code == XK_OP_FLAGS)
				add_fetch(plan, i, flags, 0, XK_STATUS_FLAGS);
			else
				add_fetch(plan, i, xk_reg_offset[op->a], 8 * op->b, mask);
			break;
		case XK_OP_SET_FLAGS:
			add_commit(plan, a, flags, ~op->imm, op->imm);
			continue;
		case XK_OP_SET_REG:
			add_commit(plan, a, xk_reg_offset[op->dst],
				   op->width >= 4 ? 0 : ~mask, mask);
			continue;
		default:
			if (reads & 1)
				wide = max(wide, result_width(&ops[a]));
			if (reads & 2)
				wide = max(wide, result_width(&ops[b]));
			step = (struct xk_step) {
				.code = fast_code(op, wide), .width = op->width,
				.dst = i, .a = a, .b = b, .c = c, .from = op->b,
				.mask = mask, .imm = op->imm,
			};
			if (is_foldable(plan, &step, reads)) {
				plan->folded[plan->nr_folded++] = step;
				plan->constants |= 1ULL << i;
				break;
			}
			plan->steps[plan->nr_steps++] = step;
			if (op->code == XK_OP_STORE)
				continue;
		}
		slots[op->dst] = i;
	}
	plan->kind = xk_shape_match(&plan->shape, plan);
}

void xk_step_compute(const struct xk_step *step, u64 *frame)
{
	frame[step->dst] = xk_op_compute(step->code & ~XK_STEP_GENERIC, step->width,
					 step->from, step->imm, frame[step->a],
					 frame[step->b], frame[step->c]);
}

void xk_plan_fill(const struct xk_plan *plan, const u64 *ivs, u64 *frame)
{
	unsigned int i;

	for (i = 0; i < plan->nr_ops; i++) {
		const struct xk_op *op = &plan->ops[i];

		if (op->code == XK_OP_IV)
			frame[i] = ivs[op->imm] & xk_width_mask(op->width);
		else if (op->code == XK_OP_IMM)
			frame[i] = op->imm & xk_width_mask(op->width);
	}
	for (i = 0; i < plan->nr_folded; i++)
		xk_step_compute(&plan->folded[i], frame);
}

int notrace xk_plan_run(const struct xk_plan *plan, u64 *frame, struct pt_regs *regs)
{
	const struct xk_fetch *fetch = plan->fetches;
	const struct xk_step *step = plan->steps;
	const struct xk_commit *commit = plan->commits;
	unsigned int n;

	for (n = plan->nr_fetches; n; n--, fetch++) {
		u64 saved = *(u64 *)((char *)regs + fetch->reg);

		frame[fetch->slot] = (saved >> fetch->shift) & fetch->mask;
	}

	for (n = plan->nr_steps; n; n--, step++) {
		u64 a = frame[step->a];
		u64 b = frame[step->b];
		u64 result;

		switch (step->code) {
		case XK_OP_PER_CPU:
			result = xk_per_cpu_base();
			break;
		case XK_OP_LOAD:
			if (xk_memory_load(a + step->imm, step->width, &result))
				return -EFAULT;
			break;
		case XK_OP_STORE:
			if (xk_memory_store(a + step->imm, step->width, b))
				return -EFAULT;
			continue;
		case XK_OP_SELECT:
			result = (a ? b : frame[step->c]) & step->mask;
			break;
		case XK_OP_ADD:
			result = (a + b) & step->mask;
			break;
		case XK_OP_SUB:
			result = (a - b) & step->mask;
			break;
		case XK_OP_AND:
			result = a & b & step->mask;
			break;
		case XK_OP_OR:
			result = (a | b) & step->mask;
			break;
		case XK_OP_XOR:
			result = (a ^ b) & step->mask;
			break;
		case XK_OP_SHL:
			result = b < 64 ? (a << b) & step->mask : 0;
			break;
		case XK_OP_SHR:
			result = b < 64 ? a >> b : 0;
			break;
		case XK_OP_EQ:
			result = a == b;
			break;
		case XK_OP_ULT:
			result = a < b;
			break;
		case XK_OP_FLAGS_SUB:
			result = xk_compare(a, b, step->width) & XK_STATUS_FLAGS;
			break;
		default:
			result = xk_op_compute(step->code & ~XK_STEP_GENERIC, step->width,
					       step->from, step->imm, a, b,
					       frame[step->c]);
		}
		frame[step->dst] = result;
	}

	for (n = plan->nr_commits; n; n--, commit++) {
		u64 *saved = (u64 *)((char *)regs + commit->reg);

		*saved = (*saved & commit->keep) | (frame[commit->slot] & commit->set);
	}
	return 0;
}

#ifdef __KERNEL__
/* Handlers call this: see backend_kprobe.c. */
NOKPROBE_SYMBOL(xk_plan_run);
#endif
