// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follows the pointer to the context through a verified program. A register may hold it only if it
 * was copied from one that does, since the program starts with it in r1. The program may read
 * anything once the pointer is stored, computed with, or passed to a function.
 */
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/slab.h>

#include "probe/reads.h"

/* Longer programs are not followed. */
#define MAX_LEN 8192
/* r0 to r5 after a call. */
#define CLOBBERED 0x3f
/* struct pt_regs begins with the registers that are stored only if they are read. */
#define RARE offsetof(struct pt_regs, bp)

/* The registers that may hold the pointer before each instruction. */
struct flow {
	const struct bpf_insn *insns;
	unsigned int len;
	u16 *holds;
	bool *reached;
	bool changed;
};

static bool holds(u16 set, u8 reg)
{
	return set & BIT(reg);
}

/* Returns false if the program may read anything. */
static bool follow_alu(const struct bpf_insn *insn, u16 *set)
{
	bool is_copy = insn->code == (BPF_ALU64 | BPF_MOV | BPF_X) && !insn->off;
	bool from = BPF_SRC(insn->code) == BPF_X && holds(*set, insn->src_reg);

	if (is_copy) {
		*set &= ~BIT(insn->dst_reg);
		*set |= from ? BIT(insn->dst_reg) : 0;
		return true;
	}
	if (from)
		return false;
	if (BPF_OP(insn->code) != BPF_MOV)
		return !holds(*set, insn->dst_reg);
	*set &= ~BIT(insn->dst_reg);
	return true;
}

static bool follow_load(const struct bpf_insn *insn, u16 *set)
{
	if (holds(*set, insn->src_reg) &&
	    (BPF_MODE(insn->code) != BPF_MEM || insn->off < (int)RARE))
		return false;
	*set &= ~BIT(insn->dst_reg);
	return true;
}

static bool follow(const struct bpf_insn *insn, u16 *set)
{
	switch (BPF_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return follow_alu(insn, set);
	case BPF_LDX:
		return follow_load(insn, set);
	case BPF_LD:
		*set &= ~BIT(insn->dst_reg);
		return insn->code == (BPF_LD | BPF_IMM | BPF_DW);
	case BPF_ST:
		return !holds(*set, insn->dst_reg);
	case BPF_STX:
		return !holds(*set, insn->dst_reg) && !holds(*set, insn->src_reg);
	default:
		return true;
	}
}

static bool reach(struct flow *flow, long at, u16 set)
{
	if (at < 0 || at >= flow->len)
		return false;
	if (flow->reached[at] && (flow->holds[at] | set) == flow->holds[at])
		return true;
	flow->reached[at] = true;
	flow->holds[at] |= set;
	flow->changed = true;
	return true;
}

static bool follow_jump(struct flow *flow, unsigned int at, u16 set)
{
	const struct bpf_insn *insn = &flow->insns[at];

	switch (BPF_OP(insn->code)) {
	case BPF_CALL:
		return insn->src_reg != BPF_PSEUDO_CALL && !(set & CLOBBERED) &&
		       reach(flow, at + 1, set);
	case BPF_EXIT:
		return true;
	case BPF_JA:
		return reach(flow, at + 1 + (BPF_CLASS(insn->code) == BPF_JMP32 ? insn->imm :
										  insn->off), set);
	case BPF_JEQ:
	case BPF_JNE:
	case BPF_JSET:
	case BPF_JGT:
	case BPF_JGE:
	case BPF_JLT:
	case BPF_JLE:
	case BPF_JSGT:
	case BPF_JSGE:
	case BPF_JSLT:
	case BPF_JSLE:
		return reach(flow, at + 1 + insn->off, set) && reach(flow, at + 1, set);
	default:
		return false;
	}
}

static bool step(struct flow *flow, unsigned int at)
{
	const struct bpf_insn *insn = &flow->insns[at];
	u8 class = BPF_CLASS(insn->code);
	u16 set = flow->holds[at];

	if (class == BPF_JMP || class == BPF_JMP32)
		return follow_jump(flow, at, set);
	/* A 64-bit constant takes two places. */
	return follow(insn, &set) &&
	       reach(flow, at + (insn->code == (BPF_LD | BPF_IMM | BPF_DW) ? 2 : 1), set);
}

static bool is_harmless(struct flow *flow)
{
	unsigned int at;

	flow->reached[0] = true;
	flow->holds[0] = BIT(BPF_REG_1);
	do {
		flow->changed = false;
		for (at = 0; at < flow->len; at++)
			if (flow->reached[at] && !step(flow, at))
				return false;
	} while (flow->changed);
	return true;
}

bool xk_program_reads_all(const struct bpf_prog *program)
{
	struct flow flow = { .insns = program->insnsi, .len = program->len };
	bool all = true;

	if (!flow.len || flow.len > MAX_LEN)
		return true;
	flow.holds = kvcalloc(flow.len, sizeof(*flow.holds), GFP_KERNEL);
	flow.reached = kvcalloc(flow.len, sizeof(*flow.reached), GFP_KERNEL);
	if (flow.holds && flow.reached)
		all = !is_harmless(&flow);
	kvfree(flow.holds);
	kvfree(flow.reached);
	return all;
}
