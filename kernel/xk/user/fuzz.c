// SPDX-License-Identifier: GPL-2.0-only
/*
 * fuzz [PROGRAMS [SEED]] generates random programs and passes them to the checker. If it accepts a
 * program, all executors run it and must agree on everything. Flags are compared with those of the
 * processor. Prints how many programs ran in each form. Fails if a form never ran, because it was
 * not tested.
 */
#include <stdio.h>
#include <stdlib.h>

#include "run.h"

static u64 seed = 1;

static u64 random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dULL;
}

static unsigned int below(unsigned int limit)
{
	return (random64() >> 32) % limit;
}

/* Values near the limits of the widths are likely to reveal errors. */
static u64 interesting(void)
{
	static const u64 edges[] = {
		0, 1, 2, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff,
		0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffffULL,
		0x8000000000000000ULL, ~0ULL,
	};

	switch (below(3)) {
	case 0:
		return edges[below(sizeof(edges) / sizeof(*edges))];
	case 1:
		return below(64);
	default:
		return random64();
	}
}

/* Random bytes, or fields that are likely to be accepted. */
static void random_op(struct xk_op *op, unsigned int at)
{
	unsigned int temps = at ? at : 1;

	if (!below(50)) {
		u64 bytes[2] = { random64(), random64() };

		memcpy(op, bytes, sizeof(*op));
		return;
	}
	memset(op, 0, sizeof(*op));
	op->code = XK_OP_IV + below(at < 2 ? 5 : XK_OP_PER_CPU);
	op->width = 1 << below(4);
	op->dst = at % XK_MAX_TEMPS;
	op->a = below(temps);
	op->b = below(temps);
	op->c = below(temps);
	op->imm = below(2) ? below(16) : (s64)interesting();
	switch (op->code) {
	case XK_OP_IV:
		op->imm = below(3);
		break;
	case XK_OP_REG:
		op->a = below(16);
		op->b = !below(8);
		break;
	case XK_OP_LOAD:
	case XK_OP_STORE:
		op->imm = below(64);
		break;
	case XK_OP_SEXT:
		op->b = 1 << below(3);
		break;
	case XK_OP_TEXT:
		op->imm = below(8) ? below(MEMORY_SIZE) : (s64)interesting();
		op->b = below(2);
		op->c = below(9);
		fallthrough;
	case XK_OP_PER_CPU:
		op->width = below(8) ? 8 : op->width;
		break;
	case XK_OP_SET_FLAGS:
		op->imm = XK_STATUS_FLAGS & (below(2) ? ~0ULL : random64());
		break;
	case XK_OP_SET_REG:
		op->dst = below(16);
		break;
	}
}

/* Short programs as the analysis produces them: sources, one computation, one effect. */
static unsigned int typical(struct xk_op *ops)
{
	u8 width = 1 << below(4), n = 0, result;

	ops[n++] = (struct xk_op) { .code = XK_OP_IV, .width = width, .dst = 0 };
	ops[n++] = (struct xk_op) { .code = XK_OP_IV, .width = width, .dst = 1, .imm = 1 };
	if (!below(4))
		ops[n] = (struct xk_op) { .code = XK_OP_FLAGS, .width = 8, .dst = 2 };
	else if (!below(4))
		ops[n] = (struct xk_op) { .code = XK_OP_PER_CPU, .width = 8, .dst = 2 };
	else if (!below(4))
		ops[n] = (struct xk_op) { .code = XK_OP_TEXT, .width = 8, .dst = 2, .b = below(2),
					  .c = below(9), .imm = below(64) };
	else
		ops[n] = (struct xk_op) { .code = XK_OP_REG, .width = below(3) ? width : 8,
					  .dst = 2, .a = below(16) };
	n++;
	if (!below(3)) {
		ops[n - 1].width = 8;
		ops[n++] = (struct xk_op) { .code = XK_OP_LOAD, .width = below(3) ? width : 8,
					    .dst = 2, .a = 2, .imm = below(64) };
	}
	result = 2;
	if (below(8)) {
		random_op(&ops[n], 3);
		ops[n].width = width;
		if (ops[n].code < XK_OP_ADD)
			ops[n].code = XK_OP_FLAGS_SUB;
		ops[n].a = below(4) ? 2 : 0;
		ops[n].b = below(4) ? 0 : 2;
		result = ops[n++].dst;
	}
	if (!below(3)) {
		/* Operations on the value, or on a truth value, alone. */
		unsigned int more = 1 + below(4);
		u8 other = below(2);

		while (more--) {
			ops[n] = (struct xk_op) {
				.code = XK_OP_ADD + below(XK_OP_COND - XK_OP_ADD),
				.width = below(4) ? width : 1 << below(4),
				.dst = 5 + more, .a = result, .b = other, .c = below(2),
				.imm = below(16),
			};
			if (!below(3)) {
				ops[n].a = other;
				ops[n].b = result;
			}
			if (ops[n].code == XK_OP_SEXT)
				ops[n].b = 1;
			if (!below(8))
				ops[n] = (struct xk_op) { .code = XK_OP_PER_CPU, .width = 8,
							  .dst = 5 + more };
			result = ops[n++].dst;
		}
	}
	if (below(2))
		ops[n++] = (struct xk_op) { .code = XK_OP_SELECT, .width = width, .dst = 4,
					    .a = result, .b = 0, .c = 1 };
	if (ops[n - 1].code == XK_OP_SELECT)
		result = 4;
	else if (!below(6))
		result = 0;
	if (below(2))
		ops[n++] = (struct xk_op) { .code = XK_OP_SET_REG, .width = width,
					    .dst = below(16), .a = result };
	else
		ops[n++] = (struct xk_op) { .code = XK_OP_SET_FLAGS, .width = 8, .a = result,
					    .imm = XK_STATUS_FLAGS };
	return n;
}

/* Few registers and few bytes of memory, read and set in any order. */
static unsigned int entangled(struct xk_op *ops)
{
	unsigned int i, nr = 4 + below(8);

	for (i = 0; i < nr; i++) {
		struct xk_op *op = &ops[i];

		random_op(op, i);
		if (i < 2 || !below(3))
			*op = (struct xk_op) { .code = XK_OP_REG, .dst = i,
					       .width = below(3) ? 8 : 1 << below(4) };
		else if (!below(3))
			op->code = XK_OP_SET_REG;
		else if (!below(4))
			op->code = below(2) ? XK_OP_LOAD : XK_OP_STORE;
		switch (op->code) {
		case XK_OP_REG:
			op->a = below(3);
			break;
		case XK_OP_SET_REG:
			op->dst = below(3);
			break;
		case XK_OP_LOAD:
		case XK_OP_STORE:
			op->a = below(2);
			op->imm = below(3);
			op->dst = op->code == XK_OP_LOAD ? i : 0;
			break;
		}
	}
	return nr;
}

static void random_machine(struct machine *machine)
{
	unsigned int i;

	memset(machine, 0, sizeof(*machine));
	machine->base = 0xffff888000000000ULL;
	for (i = 0; i < MEMORY_SIZE; i += 8) {
		u64 word = interesting();

		memcpy(machine->memory + i, &word, 8);
	}
	for (i = 0; i < 16; i++)
		*xk_reg(&machine->regs, i) =
			below(2) ? interesting() : machine->base + below(MEMORY_SIZE);
	machine->regs.flags = random64();
	/* Code in a stub needs a stack; its memory may be that stack. */
	machine->regs.sp = stack_top();
	if (!below(4))
		machine->base = stack_top() - below(MEMORY_SIZE);
}

/* The flags of one instruction, as the processor sets them. */
#define NATIVE(instruction, a, b) ({ \
	u64 left = (a), flags; \
	asm (instruction "; pushfq; popq %0" \
	     : "=&r" (flags), "+q" (left) : "q" (b) : "cc", "memory"); \
	flags & XK_STATUS_FLAGS; \
})

static u64 native_add(u64 a, u64 b, u8 width)
{
	return width == 1 ? NATIVE("addb %b2, %b1", a, b) :
	       width == 2 ? NATIVE("addw %w2, %w1", a, b) :
	       width == 4 ? NATIVE("addl %k2, %k1", a, b) : NATIVE("addq %2, %1", a, b);
}

static u64 native_sub(u64 a, u64 b, u8 width)
{
	return width == 1 ? NATIVE("subb %b2, %b1", a, b) :
	       width == 2 ? NATIVE("subw %w2, %w1", a, b) :
	       width == 4 ? NATIVE("subl %k2, %k1", a, b) : NATIVE("subq %2, %1", a, b);
}

static u64 native_test(u64 a, u64 b, u8 width)
{
	return width == 1 ? NATIVE("testb %b2, %b1", a, b) :
	       width == 2 ? NATIVE("testw %w2, %w1", a, b) :
	       width == 4 ? NATIVE("testl %k2, %k1", a, b) : NATIVE("testq %2, %1", a, b);
}

static void check_flags(void)
{
	u8 width = 1 << below(4);
	u64 a = interesting(), b = interesting();

	if (xk_op_compute(XK_OP_FLAGS_ADD, width, 0, 0, a, b, 0) != native_add(a, b, width) ||
	    xk_op_compute(XK_OP_FLAGS_SUB, width, 0, 0, a, b, 0) != native_sub(a, b, width) ||
	    xk_op_compute(XK_OP_FLAGS_LOGIC, width, 0, 0, a, 0, 0) !=
	    (native_test(a, a, width) & ~0x10ULL)) {
		fprintf(stderr, "fuzz: flags of %llx and %llx at width %u\n", a, b, width);
		exit(1);
	}
}

static bool has_address(const struct xk_op *ops, unsigned int nr)
{
	while (nr--)
		if (ops[nr].code == XK_OP_TEXT || ops[nr].code == XK_OP_PER_CPU)
			return true;
	return false;
}

static void print(const struct xk_op *ops, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		fprintf(stderr, "  %2u: code %u width %u dst %u a %u b %u c %u imm %lld\n", i,
			ops[i].code, ops[i].width, ops[i].dst, ops[i].a, ops[i].b, ops[i].c,
			ops[i].imm);
}

/* Number of programs by result. */
static struct {
	unsigned long refused, faulted, addresses, plain, native[IN_STUB + 1];
} counts;

/* Runs all forms from the same state. */
static void run(const struct xk_op *ops, unsigned int nr, const u64 *ivs, struct machine *machine)
{
	struct machine before = *machine, native;
	unsigned int form, forms = 0;
	int ret = run_as_written(machine, ops, nr, ivs), other;

	counts.faulted += ret != 0;
	for (form = IN_FUNCTION; form <= IN_STUB; form++) {
		native = before;
		other = run_as_native(&native, ops, nr, ivs, form);
		if (other == 1)
			continue;
		forms++;
		counts.native[form]++;
		if (other == ret && !memcmp(machine, &native, sizeof(native)))
			continue;
		fprintf(stderr, "fuzz: differs in form %u: %d, not %d\n", form, other, ret);
		print(ops, nr);
		exit(1);
	}
	counts.plain += !forms;
}

int main(int argc, char **argv)
{
	unsigned long programs = argc > 1 ? strtoul(argv[1], NULL, 0) : 200000, n;
	unsigned int i;

	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0) | 1;
	for (n = 0; n < programs; n++) {
		struct xk_op ops[XK_MAX_OPS + 1];
		struct machine machine;
		u64 ivs[XK_MAX_IVS] = { interesting(), interesting(), interesting() };
		unsigned int nr = below(XK_MAX_OPS + 2);
		struct xk_ops_limits limits;
		struct xk_ops_error why;

		check_flags();
		if (below(2)) {
			nr = typical(ops);
		} else if (below(2)) {
			nr = entangled(ops);
		} else {
			nr = below(4) ? nr % 12 : nr;
			for (i = 0; i < nr; i++)
				random_op(&ops[i], i);
		}
		limits = (struct xk_ops_limits) {
			.nr_ivs = 3, .text_len = MEMORY_SIZE, .stores = below(2),
		};
		if (xk_ops_check(ops, nr, &limits, &why)) {
			counts.refused++;
			continue;
		}
		counts.addresses += has_address(ops, nr);
		random_machine(&machine);
		link_to(&machine, ops, nr);
		run(ops, nr, ivs, &machine);
	}
	printf("fuzz: %lu programs, %lu refused, %lu faulted, %lu with addresses;",
	       programs, counts.refused, counts.faulted, counts.addresses);
	printf(" %lu in functions, %lu in stubs, %lu in neither\n",
	       counts.native[IN_FUNCTION], counts.native[IN_STUB], counts.plain);
	return !counts.faulted || !counts.refused || !counts.addresses || !counts.plain ||
	       !counts.native[IN_FUNCTION] || !counts.native[IN_STUB];
}
