// SPDX-License-Identifier: GPL-2.0-only
/* See run.h. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ops/memory.h"
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

u64 user_base;
u8 *user_memory;

static u8 stack[65536];

/* Below it is free space; above it, what the site has on its stack. */
u64 stack_top(void)
{
	return (u64)(unsigned long)(stack + sizeof(stack) / 2) & ~15ULL;
}

#define PAGE 4096

/* Part of the program, so its functions and variables are near. One page of it is used. */
static u8 text_room[2 * PAGE];

static u8 *text_page(void)
{
	return text_room + (-(unsigned long)text_room & (PAGE - 1));
}

static void write_text(const struct xk_emitter *out)
{
	u8 *text = text_page();

	if (mprotect(text, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		abort();
	memset(text, 0xcc, PAGE);
	memcpy(text, out->code, out->len);
}

/*
 * The constant of a stub may change at any time: code that read it twice would have two values.
 * Several constants are reached by a pointer, which is read once.
 */
static void check_read_once(const struct xk_emitter *out, const void *variable)
{
	unsigned int i, nr = 0;
	s32 distance;

	for (i = 0; i + sizeof(distance) <= out->len; i++) {
		memcpy(&distance, out->code + i, sizeof(distance));
		nr += out->base + i + sizeof(distance) + distance == (unsigned long)variable;
	}
	if (nr > 1) {
		fprintf(stderr, "a value is read %u times\n", nr);
		abort();
	}
}

static bool reads_stack_pointer(const struct xk_op *ops, unsigned int nr_ops)
{
	while (nr_ops--)
		if (ops[nr_ops].code == XK_OP_REG && ops[nr_ops].a == XK_RSP)
			return true;
	return false;
}

static int enter_stub(struct machine *machine)
{
	u64 registers[16], flags = machine->regs.flags & XK_STATUS_FLAGS, sp;
	unsigned int i;
	int ret;

	for (i = 0; i < 16; i++)
		registers[i] = *xk_reg(&machine->regs, i);
	sp = registers[XK_RSP];
	registers[XK_RSP] = stack_top();
	ret = user_enter(registers, &flags, text_page());
	/* The code must restore the stack pointer. */
	if (registers[XK_RSP] != stack_top())
		abort();
	registers[XK_RSP] = sp;
	for (i = 0; i < 16; i++)
		*xk_reg(&machine->regs, i) = registers[i];
	machine->regs.flags = (machine->regs.flags & ~XK_STATUS_FLAGS) |
			      (flags & XK_STATUS_FLAGS);
	return ret;
}

int run_as_native(struct machine *machine, const struct xk_op *ops, unsigned int nr_ops,
		  const u64 *ivs, enum form form)
{
	static u64 constants[XK_NATIVE_CONSTANTS];
	static const u64 *several = constants;
	static u64 single;
	struct xk_native_place place = {
		.function = form == IN_FUNCTION, .constant = &single,
		.constants = &several, .ret = (unsigned long)xk_native_return,
	};
	struct xk_emitter out = { .base = (unsigned long)text_page() };
	struct xk_native_code code;
	struct xk_native native;

	if (form == IN_STUB && machine->regs.sp != stack_top() &&
	    reads_stack_pointer(ops, nr_ops))
		return 1;
	xk_native_build(&native, ops, nr_ops);
	if (!xk_native_emit(&out, &native, &place, &code))
		return 1;
	if (form == IN_STUB)
		xk_emit_branch(&out, 0xe9, (unsigned long)user_back);
	xk_native_emit_fault(&out, &place, &code, (unsigned long)user_faulted);
	if (out.failed)
		return 1;
	check_read_once(&out, &single);
	check_read_once(&out, &several);
	write_text(&out);
	memset(constants, 0xa5, sizeof(constants));
	xk_native_fill(&native, ivs, constants);
	single = constants[0];
	user_base = machine->base;
	user_memory = machine->memory;
	if (form == IN_FUNCTION)
		return ((xk_native_fn)text_page())(&machine->regs, constants);
	/* If memory faults, a stub calls the handler, which starts from the beginning. */
	if (enter_stub(machine))
		return run_as_written(machine, ops, nr_ops, ivs);
	return 0;
}
