// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recognises the shapes of shape.h in a plan. A plan that is almost of a shape
 * stays a plan of steps; nothing is refused.
 */
#include "plan.h"
#include "shape.h"

static bool is_constant(const struct xk_plan *plan, u8 slot)
{
	return plan->constants & (1ULL << slot);
}

static const struct xk_step *step_of(const struct xk_plan *plan, u8 slot)
{
	unsigned int i;

	for (i = 0; i < plan->nr_steps; i++)
		if (plan->steps[i].dst == slot && plan->steps[i].code != XK_OP_STORE)
			return &plan->steps[i];
	return NULL;
}

static const struct xk_fetch *fetch_of(const struct xk_plan *plan, u8 slot)
{
	unsigned int i;

	for (i = 0; i < plan->nr_fetches; i++)
		if (plan->fetches[i].slot == slot)
			return &plan->fetches[i];
	return NULL;
}

static void set_constant(struct xk_shape *shape, unsigned int index, u8 slot, u64 mask)
{
	shape->constants[index].slot = slot;
	shape->constants[index].mask = mask;
}

/*
 * Takes the slot as the source. Returns how many steps that uses up, or -1 if
 * it is none, or may hold bits outside `mask`.
 */
static int match_source(struct xk_shape *shape, const struct xk_plan *plan, u8 slot, u64 mask)
{
	const struct xk_fetch *fetch = fetch_of(plan, slot);
	const struct xk_step *load = step_of(plan, slot);

	if (load && load->code == XK_OP_LOAD) {
		fetch = fetch_of(plan, load->a);
		if (!fetch || fetch->shift || fetch->mask != ~0ULL || load->mask & ~mask)
			return -1;
		shape->memory = true;
		shape->width = load->width;
		shape->displacement = load->imm;
		shape->from = fetch->reg;
		return 1;
	}
	if (!fetch || fetch->mask & ~mask)
		return -1;
	shape->from = fetch->reg;
	shape->shift = fetch->shift;
	shape->source_mask = fetch->mask;
	return 0;
}

static bool match_binary(struct xk_shape *shape, const struct xk_plan *plan,
			 const struct xk_step *step)
{
	u8 source = step->a, constant = step->b;

	switch (step->code) {
	case XK_OP_ADD:
	case XK_OP_AND:
	case XK_OP_OR:
	case XK_OP_XOR:
		if (is_constant(plan, source)) {
			source = step->b;
			constant = step->a;
		}
		break;
	case XK_OP_SUB:
	case XK_OP_SHL:
	case XK_OP_SHR:
		break;
	default:
		return false;
	}
	if (!is_constant(plan, constant) ||
	    match_source(shape, plan, source, step->mask) + 1 != plan->nr_steps)
		return false;
	shape->operation = step->code;
	/* The result is that of the step: cut at its width. */
	shape->set &= step->mask;
	set_constant(shape, 0, constant, ~0ULL);
	return true;
}

static bool match_compare(struct xk_shape *shape, const struct xk_plan *plan,
			  const struct xk_step *step)
{
	if (step->code != XK_OP_FLAGS_SUB || !is_constant(plan, step->b) ||
	    match_source(shape, plan, step->a, step->mask) + 1 != plan->nr_steps)
		return false;
	shape->compare_width = step->width;
	shape->set &= XK_STATUS_FLAGS;
	set_constant(shape, 0, step->b, ~0ULL);
	return true;
}

/* The masks of the condition codes 2n: see xk_shape_holds(). */
static const struct {
	u16 fold;
	u16 mask;
} conditions[8] = {
	{ 0x00, 0x800 }, { 0x00, 0x01 }, { 0x00, 0x40 }, { 0x00, 0x41 },
	{ 0x00, 0x80 }, { 0x00, 0x04 }, { 0x80, 0x80 }, { 0x80, 0xc0 },
};

/* Returns how many steps the condition takes, or -1; *negated swaps the arms. */
static int match_test(struct xk_shape *shape, const struct xk_plan *plan, u8 slot,
		      bool *negated)
{
	const struct xk_step *test = step_of(plan, slot);
	u64 sign = 0;
	int used;

	*negated = false;
	if (!test || test->code == XK_OP_LOAD) {
		/* The source itself: it is not zero. */
		shape->operation = XK_TEST_EQUAL;
		*negated = true;
		return match_source(shape, plan, slot, ~0ULL);
	}
	switch (test->code & ~XK_STEP_GENERIC) {
	case XK_OP_COND:
		shape->operation = XK_TEST_FLAGS;
		shape->test_fold = conditions[test->imm >> 1].fold;
		shape->test_mask = conditions[test->imm >> 1].mask;
		*negated = test->imm & 1;
		used = match_source(shape, plan, test->a, ~0ULL);
		return used < 0 ? used : used + 1;
	case XK_OP_EQ:
		shape->operation = XK_TEST_EQUAL;
		break;
	case XK_OP_SLT:
		sign = test->mask ^ (test->mask >> 1);
		fallthrough;
	case XK_OP_ULT:
		shape->operation = XK_TEST_BELOW;
		break;
	default:
		return -1;
	}
	shape->source_flip = sign;
	shape->constants[0].flip = sign;
	if (is_constant(plan, test->b)) {
		set_constant(shape, 0, test->b, test->mask);
		used = match_source(shape, plan, test->a, test->mask);
	} else if (is_constant(plan, test->a)) {
		set_constant(shape, 0, test->a, test->mask);
		if (shape->operation == XK_TEST_BELOW)
			shape->operation = XK_TEST_ABOVE;
		used = match_source(shape, plan, test->b, test->mask);
	} else {
		return -1;
	}
	return used < 0 ? used : used + 1;
}

static bool match_select(struct xk_shape *shape, const struct xk_plan *plan,
			 const struct xk_step *step)
{
	bool negated;

	if (step->code != XK_OP_SELECT || !is_constant(plan, step->b) ||
	    !is_constant(plan, step->c) ||
	    match_test(shape, plan, step->a, &negated) + 1 != plan->nr_steps)
		return false;
	set_constant(shape, negated ? 2 : 1, step->b, step->mask);
	set_constant(shape, negated ? 1 : 2, step->c, step->mask);
	return true;
}

/* The step's result is 0 or 1. */
static bool is_truth(const struct xk_step *step)
{
	switch (step->code & ~XK_STEP_GENERIC) {
	case XK_OP_EQ:
	case XK_OP_ULT:
	case XK_OP_SLT:
	case XK_OP_COND:
		return true;
	default:
		return false;
	}
}

/* Every step behind the decision reads nothing but it, constants and each other. */
static bool follows_from(const struct xk_plan *plan, unsigned int decision)
{
	u64 known = plan->constants | (1ULL << plan->steps[decision].dst);
	unsigned int i;

	for (i = decision + 1; i < plan->nr_steps; i++) {
		const struct xk_step *step = &plan->steps[i];
		const u8 code = step->code & ~XK_STEP_GENERIC;
		const unsigned int reads = xk_op_reads(code);

		if (code == XK_OP_LOAD || code == XK_OP_STORE || code == XK_OP_PER_CPU ||
		    (reads & 1 && !(known & (1ULL << step->a))) ||
		    (reads & 2 && !(known & (1ULL << step->b))) ||
		    (reads & 4 && !(known & (1ULL << step->c))))
			return false;
		known |= 1ULL << step->dst;
	}
	return known & (1ULL << plan->commits[0].slot);
}

/* What compilers make of a choice between two constants: masks and sums of a truth value. */
static bool match_decision(struct xk_shape *shape, const struct xk_plan *plan)
{
	unsigned int i;

	for (i = 0; i < plan->nr_steps && !is_truth(&plan->steps[i]); i++)
		;
	if (i == plan->nr_steps ||
	    match_test(shape, plan, plan->steps[i].dst, &shape->negated) != (int)i + 1 ||
	    !follows_from(plan, i))
		return false;
	shape->decision = plan->steps[i].dst;
	shape->result = plan->commits[0].slot;
	shape->arms = i + 1;
	return true;
}

static void start(struct xk_shape *shape, const struct xk_commit *commit)
{
	memset(shape, 0, sizeof(*shape));
	shape->to = commit->reg;
	shape->keep = commit->keep;
	shape->set = commit->set;
}

unsigned int xk_shape_match(struct xk_shape *shape, const struct xk_plan *plan)
{
	const struct xk_commit *commit = &plan->commits[0];
	const struct xk_step *last;

	start(shape, commit);
	if (plan->nr_commits != 1)
		return XK_PLAN_STEPS;
	if (!plan->nr_steps) {
		if (commit->keep || !is_constant(plan, commit->slot))
			return XK_PLAN_STEPS;
		set_constant(shape, 0, commit->slot, commit->set);
		return XK_PLAN_VALUE;
	}

	last = step_of(plan, commit->slot);
	if (!last)
		return XK_PLAN_STEPS;
	if (match_compare(shape, plan, last))
		return XK_PLAN_COMPARE;
	start(shape, commit);
	if (match_binary(shape, plan, last))
		return XK_PLAN_BINARY;
	start(shape, commit);
	if (match_select(shape, plan, last))
		return XK_PLAN_SELECT;
	start(shape, commit);
	if (match_decision(shape, plan))
		return XK_PLAN_SELECT;
	return XK_PLAN_STEPS;
}

/* The result if the decision is `truth`. */
static u64 arm(const struct xk_plan *plan, const u64 *frame, u64 truth)
{
	const struct xk_shape *shape = &plan->shape;
	u64 scratch[XK_MAX_OPS];
	unsigned int i;

	memcpy(scratch, frame, sizeof(scratch));
	scratch[shape->decision] = truth;
	for (i = shape->arms; i < plan->nr_steps; i++)
		xk_step_compute(&plan->steps[i], scratch);
	return scratch[shape->result];
}

void xk_shape_fill(const struct xk_plan *plan, const u64 *frame, u64 *constants)
{
	const struct xk_shape *shape = &plan->shape;
	unsigned int i;

	for (i = 0; i < XK_SHAPE_CONSTANTS; i++) {
		const struct xk_shape_constant *constant = &shape->constants[i];

		constants[i] = (frame[constant->slot] & constant->mask) ^ constant->flip;
	}
	if (shape->arms) {
		constants[1] = arm(plan, frame, !shape->negated);
		constants[2] = arm(plan, frame, shape->negated);
	}
}
