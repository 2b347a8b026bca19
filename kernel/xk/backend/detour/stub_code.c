// SPDX-License-Identifier: GPL-2.0-only
/*
 * Generates stubs from a window and a checked program. No thread runs a stub while it is written:
 * no jump leads to it.
 */
#include <linux/string.h>

#include "backend/detour/stub_code.h"
#include "model/site.h"
#include "text/internal.h"
#include "text/poke.h"

/* jmp with an 8-bit displacement */
#define JMP8 0xeb
#define SELECTOR_LEN 2
#define JMP 0xe9
#define CALL 0xe8
/* Length of the code of emit_return(). */
#define RETURN_LEN 11

static void emit_relocated(struct xk_emitter *out, const struct xk_window *window,
			   unsigned int first, unsigned int end)
{
	u8 bytes[XK_MAX_RELOCATED];
	unsigned int i, len;

	for (i = first; i < end; i++) {
		len = xk_relocate(window, i, bytes, xk_emit_here(out));
		if (!len)
			out->failed = true;
		xk_emit(out, bytes, len);
	}
}

static void emit_pushed(struct xk_emitter *out, unsigned long address)
{
	u8 push[5] = { 0x68 };
	s32 cut = address;

	/* push sign-extends its operand. */
	if ((unsigned long)(long)cut != address)
		out->failed = true;
	memcpy(push + 1, &cut, sizeof(cut));
	xk_emit(out, push, sizeof(push));
}

/* Pushes the upper part of a pt_regs, as entry.S expects it, and calls `function`. */
static void emit_handler_call(struct xk_emitter *out, const struct xk_stub *stub,
			      const u8 *function)
{
	static const u8 push[] = { 0x54, 0x9c, 0x6a, __KERNEL_CS };	/* %rsp, flags, cs */
	const struct xk_live_site *site = stub->site;

	emit_pushed(out, (unsigned long)stub);
	xk_emit(out, push, sizeof(push));
	/* The ip that an unwinder finds: see stack.c. */
	emit_pushed(out, site->address + (site->when == XK_AFTER ? site->insn_len : 0));
	xk_emit_branch(out, CALL, (unsigned long)function);
}

/* Pops the rest of the pt_regs: restores the flags, drops the other members. */
static void emit_return(struct xk_emitter *out)
{
	static const u8 code[] = {
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: ip, cs */
		0x9d,				/* popfq */
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: sp, ss */
	};

	BUILD_BUG_ON(sizeof(code) != RETURN_LEN);
	xk_emit(out, code, sizeof(code));
}

/* The number of a general register in instructions, from its offset in pt_regs. */
static unsigned int register_number(u16 offset)
{
	unsigned int i;

	for (i = 0; i < XK_GPRS - 1 && xk_reg_offset[i] != offset; i++)
		;
	return i;
}

/* The selector leads to the current position for this path. */
static void aim(struct xk_stub *stub, enum xk_stub_path path, struct xk_emitter *out)
{
	unsigned int distance = out->len - (stub->selector + SELECTOR_LEN);

	if (distance > S8_MAX)
		out->failed = true;
	stub->target[path] = distance;
}

static void emit_selector(struct xk_emitter *out, struct xk_stub *stub)
{
	static const u8 jump[] = { JMP8, 0 };

	stub->selector = out->len;
	xk_emit(out, jump, sizeof(jump));
	aim(stub, XK_PATH_HANDLER, out);
}

/*
 * The path of a policy. The chosen value is on the stack in place of ip; it is popped into a
 * register. Returns the position of the displacement of the jump that follows, or 0 if the update
 * does more than set a register.
 */
static unsigned int emit_decide(struct xk_emitter *out, struct xk_stub *stub)
{
	const struct xk_native *native = &stub->site->native;
	unsigned int to = register_number(native->to);
	u8 code[] = {
		0x40, 0x58,			/* pop, with the register's number: ip */
		0x48, 0x8d, 0x64, 0x24, 0x08,	/* lea 8(%rsp), %rsp: cs */
		0x9d,				/* popfq */
		0x48, 0x8d, 0x64, 0x24, 0x10,	/* lea 16(%rsp), %rsp: sp, ss */
	};

	if (native->kind != XK_NATIVE_VALUE)
		return 0;
	code[0] |= to >> 3;
	code[1] |= to & 7;
	aim(stub, XK_PATH_POLICY, out);
	stub->has_policy = true;
	emit_handler_call(out, stub, xk_stub_call_policy);
	xk_emit(out, code, sizeof(code));
	return xk_emit_forward(out, JMP);
}

/* The parts of a stub besides the window. */
struct parts {
	bool native;		/* include native code, if the update has some */
	struct xk_native_place place;
	struct xk_native_code code;
	unsigned int decided, skipped;	/* jumps whose targets follow */
};

/* The paths other than the handler. The selector's jump is short, so native code comes last. */
static void emit_choices(struct xk_emitter *out, struct xk_stub *stub, struct parts *parts)
{
	parts->decided = emit_decide(out, stub);
	aim(stub, XK_PATH_ORIGINAL, out);
	parts->skipped = xk_emit_forward(out, JMP);
	if (!parts->native)
		return;
	aim(stub, XK_PATH_NATIVE, out);
	stub->has_native = xk_native_emit(out, &stub->site->native, &parts->place, &parts->code);
}

/* The update runs before instruction `at` of the window. */
static void emit_before(struct xk_emitter *out, struct xk_stub *stub, struct parts *parts,
			unsigned int at)
{
	const struct xk_window *window = &stub->window;
	unsigned int handled;

	emit_relocated(out, window, 0, at);
	emit_selector(out, stub);
	emit_handler_call(out, stub, xk_stub_call_handler);
	emit_return(out);
	handled = xk_emit_forward(out, JMP);
	emit_choices(out, stub, parts);
	xk_emit_land(out, handled);
	xk_emit_land(out, parts->decided);
	xk_emit_land(out, parts->skipped);
	emit_relocated(out, window, at, window->nr);
}

/* If the update was not made, xk_stub_call_handler returns this many bytes later. */
#define FAULT_DISTANCE (RETURN_LEN + XK_JUMP_LEN)

static void emit_instead(struct xk_emitter *out, struct xk_stub *stub, struct parts *parts)
{
	const struct xk_window *window = &stub->window;
	unsigned int handled, fault, value = 0, at = window->site;

	emit_relocated(out, window, 0, at);
	stub->fault_distance = FAULT_DISTANCE;
	emit_selector(out, stub);
	emit_handler_call(out, stub, xk_stub_call_handler);
	emit_return(out);
	handled = xk_emit_forward(out, JMP);
	emit_return(out);
	fault = xk_emit_forward(out, JMP);
	emit_choices(out, stub, parts);
	if (stub->has_native)
		value = xk_emit_forward(out, JMP);
	xk_emit_land(out, fault);
	xk_emit_land(out, parts->skipped);
	emit_relocated(out, window, at, at + 1);
	xk_emit_land(out, handled);
	xk_emit_land(out, parts->decided);
	xk_emit_land(out, value);
	emit_relocated(out, window, at + 1, window->nr);
}

static bool emit_stub(struct xk_emitter *out, struct xk_stub *stub, bool native)
{
	const struct xk_window *window = &stub->window;
	struct parts parts = {
		.native = native,
		.place = { .constant = &stub->value, .constants = &stub->constants },
	};
	unsigned long handler;

	*out = (struct xk_emitter) { .base = xk_stub_address(stub) };
	stub->has_native = false;
	if (stub->site->when == XK_INSTEAD)
		emit_instead(out, stub, &parts);
	else
		emit_before(out, stub, &parts, window->site + (stub->site->when == XK_AFTER));
	if (window->falls_through)
		xk_emit_branch(out, JMP, window->address + window->len);
	handler = out->base + stub->selector + SELECTOR_LEN + stub->target[XK_PATH_HANDLER];
	if (stub->has_native)
		xk_native_emit_fault(out, &parts.place, &parts.code, handler);
	return !out->failed;
}

const char *xk_stub_build(struct xk_stub *stub)
{
	u8 kind = stub->window.insns[stub->window.site].kind;
	struct xk_emitter out;

	if (stub->site->when != XK_BEFORE && kind != XK_INSN_PLAIN && kind != XK_INSN_RIP)
		return "the update runs after a branch, or instead of one";
	if (!emit_stub(&out, stub, true) && !emit_stub(&out, stub, false))
		return "the code is too far from xk.ko, or its stub too long";
	stub->path = XK_PATH_HANDLER;
	out.code[stub->selector + 1] = stub->target[XK_PATH_HANDLER];
	memset(out.code + out.len, 0xcc, sizeof(out.code) - out.len);
	xk_text_write(out.base, out.code, sizeof(out.code));
	return NULL;
}

void xk_stub_select(const struct xk_stub *stub, enum xk_stub_path path, struct xk_poke *poke)
{
	poke->address = xk_stub_address(stub) + stub->selector;
	poke->meanwhile = poke->address + SELECTOR_LEN + stub->target[XK_PATH_HANDLER];
	poke->len = SELECTOR_LEN;
	poke->bytes[0] = JMP8;
	poke->bytes[1] = stub->target[path];
}
