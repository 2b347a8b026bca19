// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stubs, from a window and a checked program to bytes. Nothing runs a stub while it
 * is written: no jump leads to it.
 */
#include <linux/string.h>

#include "internal.h"
#include "poke.h"
#include "stubs.h"
#include "xk.h"

/* With a displacement of eight bits. */
#define JMP8 0xeb
/* Of a register and memory, wider than a byte. */
#define MOV 0x8b
#define CMP 0x3b
/* Bytes of emit_return(). */
#define RETURN_LEN 11

/* Under xk_lock; handlers read the site of their own. */
static struct xk_stub stubs[XK_STUBS];

/* Code that is written. */
struct emitter {
	u8 code[XK_STUB_LEN];
	unsigned int len;
	unsigned long base;
	bool failed;		/* no room, or too far */
};

static unsigned long here(const struct emitter *out)
{
	return out->base + out->len;
}

static void emit(struct emitter *out, const void *bytes, unsigned int len)
{
	if (out->len + len > sizeof(out->code)) {
		out->failed = true;
		return;
	}
	memcpy(out->code + out->len, bytes, len);
	out->len += len;
}

static void emit_jump(struct emitter *out, unsigned long target)
{
	u8 jump[XK_JUMP_LEN];

	if (!xk_write_jump(jump, sizeof(jump), here(out), target))
		out->failed = true;
	emit(out, jump, sizeof(jump));
}

/* A jump whose target follows; returns where its displacement stands. */
static unsigned int emit_forward(struct emitter *out)
{
	emit_jump(out, here(out) + XK_JUMP_LEN);
	return out->len - sizeof(s32);
}

/* If there is one. */
static void lead_here(struct emitter *out, unsigned int field)
{
	s32 distance = out->len - (field + sizeof(s32));

	if (field)
		memcpy(out->code + field, &distance, sizeof(distance));
}

static void emit_relocated(struct emitter *out, const struct xk_window *window,
			   unsigned int first, unsigned int end)
{
	u8 bytes[XK_MAX_RELOCATED];
	unsigned int i, len;

	for (i = first; i < end; i++) {
		len = xk_relocate(window, i, bytes, here(out));
		if (!len)
			out->failed = true;
		emit(out, bytes, len);
	}
}

static void emit_pushed(struct emitter *out, unsigned long address)
{
	u8 push[5] = { 0x68 };
	s32 cut = address;

	/* What is pushed is extended by its sign. */
	if ((unsigned long)(long)cut != address)
		out->failed = true;
	memcpy(push + 1, &cut, sizeof(cut));
	emit(out, push, sizeof(push));
}

/* The upper part of a pt_regs, as stub.S expects it; and a call. */
static void emit_call(struct emitter *out, const struct xk_stub *stub, const u8 *function)
{
	static const u8 push[] = { 0x54, 0x9c, 0x6a, __KERNEL_CS };	/* %rsp, flags, cs */
	const struct xk_live_site *site = stub->site;
	u8 call[XK_JUMP_LEN];

	emit_pushed(out, (unsigned long)stub);
	emit(out, push, sizeof(push));
	/* Where it stands, for those who walk the stack: see stack.c. */
	emit_pushed(out, site->address + (site->when == XK_AFTER ? site->insn_len : 0));
	if (!xk_write_jump(call, sizeof(call), here(out), (unsigned long)function))
		out->failed = true;
	call[0] = 0xe8;
	emit(out, call, sizeof(call));
}

/* The rest of it comes from the stack: flags count, the others do not. */
static void emit_return(struct emitter *out)
{
	static const u8 code[] = {
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: ip, cs */
		0x9d,				/* popfq */
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: sp, ss */
	};

	BUILD_BUG_ON(sizeof(code) != RETURN_LEN);
	emit(out, code, sizeof(code));
}

/* Numbers of general registers in instructions, by their place in pt_regs; or -1. */
static int register_number(u16 offset)
{
	static const u16 offsets[] = {
		offsetof(struct pt_regs, ax), offsetof(struct pt_regs, cx),
		offsetof(struct pt_regs, dx), offsetof(struct pt_regs, bx),
		0xffff, offsetof(struct pt_regs, bp),
		offsetof(struct pt_regs, si), offsetof(struct pt_regs, di),
		offsetof(struct pt_regs, r8), offsetof(struct pt_regs, r9),
		offsetof(struct pt_regs, r10), offsetof(struct pt_regs, r11),
		offsetof(struct pt_regs, r12), offsetof(struct pt_regs, r13),
		offsetof(struct pt_regs, r14), offsetof(struct pt_regs, r15),
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(offsets); i++)
		if (offsets[i] == offset)
			return i;
	return -1;
}

/* prefixes, then `opcode value(%rip), %register`: the field of the address is last. */
static void emit_with_value(struct emitter *out, const struct xk_stub *stub, u8 width,
			    u8 opcode, unsigned int number)
{
	u8 code[8];
	unsigned int len = 0;
	s64 distance;
	s32 cut;

	if (width == 2)
		code[len++] = 0x66;
	/* Always, so that a byte is the low one of any register. */
	code[len++] = 0x40 | (width == 8 ? 8 : 0) | (number >= 8 ? 4 : 0);
	code[len++] = width == 1 ? opcode - 1 : opcode;
	code[len++] = 0x05 | (number & 7) << 3;
	distance = (unsigned long)&stub->value - (here(out) + len + sizeof(cut));
	cut = distance;
	if (distance != cut)
		out->failed = true;
	memcpy(code + len, &cut, sizeof(cut));
	emit(out, code, len + sizeof(cut));
}

/* The part of the register that is compared is as wide as the comparison. */
static bool covers(const struct xk_shape *shape)
{
	u64 compared = shape->compare_width == 8 ? ~0ULL :
		       (1ULL << 8 * shape->compare_width) - 1;

	return (shape->source_mask & compared) == compared;
}

/* Flags as after comparing the register with the value; those in `set`, no others. */
static void emit_compare(struct emitter *out, struct xk_stub *stub, unsigned int number,
			 u32 set)
{
	static const u8 save[] = { 0x50, 0x9c };		/* push %rax; pushfq */
	static const u8 get[] = { 0x9c, 0x58 };			/* pushfq; pop %rax */
	u8 and[] = { 0x25, 0, 0, 0, 0 };			/* and $set, %eax */
	u8 clear[] = { 0x48, 0x81, 0x24, 0x24, 0, 0, 0, 0 };	/* andq $~set, (%rsp) */
	static const u8 merge[] = { 0x48, 0x09, 0x04, 0x24 };	/* or %rax, (%rsp) */
	static const u8 restore[] = { 0x9d, 0x58 };		/* popfq; pop %rax */
	u8 width = stub->site->plan.shape.compare_width;
	s32 cleared = ~set;

	if (set == XK_STATUS_FLAGS) {
		emit_with_value(out, stub, width, CMP, number);
		return;
	}
	memcpy(and + 1, &set, sizeof(set));
	memcpy(clear + 4, &cleared, sizeof(cleared));
	emit(out, save, sizeof(save));
	emit_with_value(out, stub, width, CMP, number);
	emit(out, get, sizeof(get));
	emit(out, and, sizeof(and));
	emit(out, clear, sizeof(clear));
	emit(out, merge, sizeof(merge));
	emit(out, restore, sizeof(restore));
}

/*
 * The update, compiled: a register that becomes the value, and the flags of comparing
 * one with it. False: it is more than that. Memory is left to the handler, which
 * survives a fault.
 */
static bool emit_value(struct emitter *out, struct xk_stub *stub)
{
	const struct xk_plan *plan = &stub->site->plan;
	const struct xk_shape *shape = &plan->shape;
	int to = register_number(shape->to), from = register_number(shape->from);

	if (plan->kind == XK_PLAN_VALUE && to >= 0) {
		emit_with_value(out, stub, 8, MOV, to);
		return true;
	}
	if (plan->kind == XK_PLAN_COMPARE && !shape->memory && !shape->shift && from >= 0 &&
	    shape->to == offsetof(struct pt_regs, flags) && !(shape->set & ~XK_STATUS_FLAGS) &&
	    shape->keep == ~shape->set && covers(shape)) {
		emit_compare(out, stub, from, shape->set);
		return true;
	}
	return false;
}

/* What comes next is what the gate leads to then. */
static void aim(struct xk_stub *stub, enum xk_gate gate, struct emitter *out)
{
	unsigned int distance = out->len - (stub->gate + 2);

	if (distance > S8_MAX)
		out->failed = true;
	stub->target[gate] = distance;
}

static void emit_gate(struct emitter *out, struct xk_stub *stub)
{
	static const u8 jump[] = { JMP8, 0 };

	stub->gate = out->len;
	emit(out, jump, sizeof(jump));
	aim(stub, XK_GATE_ASK, out);
}

/*
 * What a policy chooses becomes a register: it stands where ip was. Returns where
 * the displacement of the jump behind it stands, or 0 when the update is more than that.
 */
static unsigned int emit_decide(struct emitter *out, struct xk_stub *stub)
{
	const struct xk_plan *plan = &stub->site->plan;
	int to = register_number(plan->shape.to);
	u8 code[] = {
		0x40, 0x58,			/* pop, with the register's number: ip */
		0x48, 0x8d, 0x64, 0x24, 0x08,	/* lea 8(%rsp), %rsp: cs */
		0x9d,				/* popfq */
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: sp, ss */
	};

	if (plan->kind != XK_PLAN_VALUE || to < 0)
		return 0;
	code[0] |= to >> 3;
	code[1] |= to & 7;
	aim(stub, XK_GATE_DECIDE, out);
	stub->can_decide = true;
	emit_call(out, stub, xk_stub_decide);
	emit(out, code, sizeof(code));
	return emit_forward(out);
}

/* Before instruction `at` of the window. */
static void emit_before(struct emitter *out, struct xk_stub *stub, unsigned int at)
{
	const struct xk_window *window = &stub->window;
	unsigned int asked, decided;

	emit_relocated(out, window, 0, at);
	emit_gate(out, stub);
	emit_call(out, stub, xk_stub_ask);
	emit_return(out);
	asked = emit_forward(out);
	decided = emit_decide(out, stub);
	aim(stub, XK_GATE_VALUE, out);
	stub->has_value = emit_value(out, stub);
	aim(stub, XK_GATE_SKIP, out);
	lead_here(out, asked);
	lead_here(out, decided);
	emit_relocated(out, window, at, window->nr);
}

/* What xk_stub_ask returns behind in addition when the update was not made. */
#define FAULT_DISTANCE (RETURN_LEN + XK_JUMP_LEN)

static void emit_instead(struct emitter *out, struct xk_stub *stub)
{
	const struct xk_window *window = &stub->window;
	unsigned int asked, fault, decided, value = 0;
	unsigned int at = window->site;

	emit_relocated(out, window, 0, at);
	stub->fault_distance = FAULT_DISTANCE;
	emit_gate(out, stub);
	emit_call(out, stub, xk_stub_ask);
	emit_return(out);
	asked = emit_forward(out);
	emit_return(out);
	fault = emit_forward(out);
	decided = emit_decide(out, stub);
	aim(stub, XK_GATE_VALUE, out);
	stub->has_value = emit_value(out, stub);
	if (stub->has_value)
		value = emit_forward(out);
	aim(stub, XK_GATE_SKIP, out);
	lead_here(out, fault);
	emit_relocated(out, window, at, at + 1);
	lead_here(out, asked);
	lead_here(out, decided);
	lead_here(out, value);
	emit_relocated(out, window, at + 1, window->nr);
}

const char *xk_stub_build(struct xk_stub *stub)
{
	const struct xk_window *window = &stub->window;
	struct emitter out = { .base = xk_stub_address(stub) };
	u8 kind = window->insns[window->site].kind;
	u8 when = stub->site->when;

	if (when != XK_BEFORE && kind != XK_INSN_PLAIN && kind != XK_INSN_RIP)
		return "the update runs behind a branch, or instead of one";
	if (when == XK_INSTEAD)
		emit_instead(&out, stub);
	else
		emit_before(&out, stub, window->site + (when == XK_AFTER));
	if (window->falls_through)
		emit_jump(&out, window->address + window->len);
	if (out.failed)
		return "the code is too far from xk.ko, or its stub too long";
	stub->state = XK_GATE_ASK;
	out.code[stub->gate + 1] = stub->target[XK_GATE_ASK];
	memset(out.code + out.len, 0xcc, sizeof(out.code) - out.len);
	xk_text_write(out.base, out.code, sizeof(out.code));
	return NULL;
}

unsigned long xk_stub_address(const struct xk_stub *stub)
{
	return (unsigned long)xk_stub_pool + (stub - stubs) * XK_STUB_LEN;
}

struct xk_stub *xk_stub_next(struct xk_stub *stub)
{
	stub = stub ? stub + 1 : stubs;
	return stub < stubs + XK_STUBS ? stub : NULL;
}

bool xk_stub_turns(unsigned long address, const struct xk_turn *turn)
{
	const struct xk_stub *stub = &stubs[(address - (unsigned long)xk_stub_pool) / XK_STUB_LEN];

	return stub->site && stub->site->tune->turn == turn;
}

bool xk_stub_covers(unsigned long address)
{
	unsigned int i;

	for (i = 0; i < XK_STUBS; i++)
		if (stubs[i].armed && stubs[i].window.address == address)
			return true;
	return false;
}

bool xk_stub_has(unsigned long address)
{
	unsigned int i;

	for (i = 0; i < XK_STUBS; i++)
		if (stubs[i].armed && address - stubs[i].window.address < stubs[i].window.len)
			return true;
	return false;
}

void xk_stub_write_gate(const struct xk_stub *stub, enum xk_gate gate, struct xk_poke *poke)
{
	poke->address = xk_stub_address(stub) + stub->gate;
	poke->meanwhile = poke->address + 2 + stub->target[XK_GATE_ASK];
	poke->len = 2;
	poke->bytes[0] = JMP8;
	poke->bytes[1] = stub->target[gate];
}

struct xk_stub *xk_stub_get(struct xk_live_site *site)
{
	unsigned int i;

	for (i = 0; i < XK_STUBS; i++) {
		if (stubs[i].site || stubs[i].dying)
			continue;
		memset(&stubs[i], 0, sizeof(stubs[i]));
		stubs[i].site = site;
		return &stubs[i];
	}
	return NULL;
}

void xk_stub_put(struct xk_stub *stub)
{
	stub->site = NULL;
	stub->dying = false;
}
