// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows and their relocated instructions, executed one after the other from the
 * same random states.
 *
 * In, on standard input: windows of 18 bytes (length, bytes before the site, where a
 * displacement relative to rip stands or 255, 15 bytes of code). Each stands on a page
 * of its own; then a jump stands in its place, to a stub that xk_relocate wrote. Every
 * run ends with a signal: an int3 behind the window, a fault at the target of a branch
 * or at memory that is not there. Registers, flags, memory, the instruction pointer
 * and the address of the fault must be the same. Out: counts, and the differences.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <asm/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include "text/relocate.h"

#define PAGES 0x4000
#define BUFFER 0x4000
#define CODE_AT 0x40000000ul
#define DATA_AT 0x48000000ul
#define STUB_AT 0x50000000ul
#define STATUS 0xcd5
#define NREGS 16
/* Where the relay of a short window is, from its start. */
#define RELAY 0x40
#define ARCH_GS 0x1001

struct end {
	uint64_t regs[NREGS], flags, rip, fault;
	int signal, code;
	uint8_t memory[BUFFER];
};

static const int order[NREGS] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
static uint8_t *code = (uint8_t *)CODE_AT, *data = (uint8_t *)DATA_AT, *stub = (uint8_t *)STUB_AT;
static uint8_t initial[BUFFER];
static uint64_t regs[NREGS], flags, start, seed = 1;
static gregset_t host;
static volatile int inside;
static struct end *out;

static uint64_t next(void)
{
	uint64_t z = (seed += 0x9e3779b97f4a7c15ul);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ul;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebul;
	return z ^ (z >> 31);
}

static void handler(int number, siginfo_t *info, void *context)
{
	greg_t *now = ((ucontext_t *)context)->uc_mcontext.gregs;

	if (!inside) {
		memcpy(host, now, sizeof(host));
		for (int i = 0; i < NREGS; i++)
			now[order[i]] = regs[i];
		now[REG_EFL] = flags | 0x202;
		now[REG_RIP] = start;
		inside = 1;
		return;
	}
	inside = 0;
	for (int i = 0; i < NREGS; i++)
		out->regs[i] = now[order[i]];
	out->flags = now[REG_EFL] & STATUS;
	out->rip = now[REG_RIP];
	out->signal = number;
	out->code = info->si_code;
	out->fault = number == SIGSEGV || number == SIGBUS ? (uint64_t)info->si_addr : 0;
	memcpy(now, host, sizeof(host));
}

static void run(struct end *end)
{
	memcpy(data, initial, BUFFER);
	out = end;
	asm volatile("int3" ::: "memory", "cc");
	memcpy(end->memory, data, BUFFER);
}

static uint64_t value(void)
{
	uint64_t z = next();

	switch (z & 7) {
	case 0: return z >> 32;
	case 1: return (z >> 8) & 0xff;
	case 2: return z | 0xffff000000000000ul;
	default: return DATA_AT + BUFFER / 2 + ((z >> 8) & 0x3f8);
	}
}

static void state(void)
{
	for (int i = 0; i < NREGS; i++)
		regs[i] = value();
	regs[4] = DATA_AT + BUFFER / 2 + (next() & 0x3f8);
	flags = next() & 0x8d5;
	for (size_t i = 0; i < BUFFER; i += 8) {
		uint64_t word = value();

		memcpy(initial + i, &word, 8);
	}
}

int decode(struct insn *insn, const void *bytes, int len)
{
	return insn_decode(insn, bytes, len, INSN_MODE_64);
}

/* Where in the stub each instruction is; the stub's end. */
static unsigned int at[XK_MAX_WINDOW_INSNS + 1];

static int write_stub(const struct xk_window *window)
{
	unsigned int length = 0;

	memset(stub, 0xcc, PAGES);
	for (unsigned int i = 0; i < window->nr; i++) {
		unsigned int one = xk_relocate(window, i, stub + length, STUB_AT + length);

		at[i] = length;
		if (!one)
			return 0;
		length += one;
	}
	at[window->nr] = length;
	return !window->falls_through ||
	       xk_write_jump(stub + length, XK_JUMP_LEN, STUB_AT + length, window->address + window->len);
}

/* A fault in the stub is one of the instruction that stands for it. */
static uint64_t home(const struct xk_window *window, uint64_t rip)
{
	for (unsigned int i = 0; i < window->nr; i++)
		if (rip == STUB_AT + at[i])
			return window->address + window->insns[i].offset;
	return rip;
}

static const char *differ(const struct xk_window *window, struct end *a, struct end *b)
{
	b->rip = home(window, b->rip);
	if (a->signal != b->signal || a->code != b->code)
		return "signal";
	if (a->rip != b->rip)
		return "rip";
	if (memcmp(a->regs, b->regs, sizeof(a->regs)))
		return "registers";
	if (a->flags != b->flags)
		return "flags";
	if (a->fault != b->fault)
		return "address of the fault";
	return memcmp(a->memory, b->memory, BUFFER) ? "memory" : NULL;
}

static void *map(unsigned long where, int protection)
{
	void *got = mmap((void *)where, PAGES, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (got != (void *)where) {
		perror("mmap");
		exit(2);
	}
	return got;
}

static void prepare(void)
{
	static uint8_t stack[65536];
	stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	const int signals[] = { SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE };

	map(CODE_AT, PROT_READ | PROT_WRITE | PROT_EXEC);
	map(STUB_AT, PROT_READ | PROT_WRITE | PROT_EXEC);
	map(DATA_AT, PROT_READ | PROT_WRITE);
	sigaltstack(&other, NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &action, NULL);
	/* Per-CPU variables. */
	syscall(SYS_arch_prctl, ARCH_GS, DATA_AT + BUFFER / 2);
}

int main(int argc, char **argv)
{
	static struct end original, relocated;
	unsigned long windows = 0, refused = 0, whole = 0, runs = 0, differences = 0, relays = 0;
	int states = argc > 1 ? atoi(argv[1]) : 3;
	/* So that a difference is known to be seen. */
	int spoil = argc > 2 ? atoi(argv[2]) : 0;
	uint8_t entry[18];

	prepare();
	while (fread(entry, sizeof(entry), 1, stdin) == 1) {
		unsigned int len = entry[0], lead = entry[1], offset = 0x1000 + (next() & 0xff8);
		struct xk_window window;
		const char *why;

		memset(code, 0xcc, PAGES);
		memcpy(code + offset, entry + 3, len);
		if (entry[2] != 255) {
			int32_t distance = DATA_AT + BUFFER / 2 - (CODE_AT + offset) + (next() & 0x3f8);

			memcpy(code + offset + entry[2], &distance, 4);
		}
		why = xk_window_measure_least(&window, code + offset, len, CODE_AT + offset, lead,
					      len < XK_JUMP_LEN ? XK_SHORT_JUMP_LEN : XK_JUMP_LEN, decode);
		if (why || window.len != len || !write_stub(&window)) {
			if (refused++ < 20)
				printf("refused %u: %s\n", len, why ? why : "another length");
			continue;
		}
		windows++;
		if (spoil)
			stub[at[0]] ^= spoil;
		for (int i = 0; i < states; i++) {
			const char *what;
			uint8_t jump[XK_MAX_WINDOW];

			state();
			start = CODE_AT + offset;
			memcpy(code + offset, window.bytes, len);
			run(&original);
			if (len < XK_JUMP_LEN) {
				xk_write_short_jump(jump, len, CODE_AT + offset, CODE_AT + offset + RELAY);
				xk_write_jump(code + offset + RELAY, XK_JUMP_LEN, CODE_AT + offset + RELAY, STUB_AT);
				relays++;
			} else {
				xk_write_jump(jump, len, CODE_AT + offset, STUB_AT);
			}
			memcpy(code + offset, jump, len);
			run(&relocated);
			what = differ(&window, &original, &relocated);
			runs++;
			whole += original.rip < start || original.rip >= start + len;
			if (what && differences++ < 20) {
				printf("different: %s, rip %lx %lx:", what, original.rip, relocated.rip);
				for (unsigned int k = 0; k < len; k++)
					printf(" %02x", window.bytes[k]);
				printf("\n");
			}
		}
	}
	printf("windows %lu refused %lu runs %lu to_the_end %lu relays %lu differences %lu\n", windows, refused,
	       runs, whole, relays, differences);
	return 0;
}
