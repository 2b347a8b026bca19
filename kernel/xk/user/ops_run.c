// SPDX-License-Identifier: GPL-2.0-only
/*
 * Executes programs as xk.ko would, so that other implementations of the operations can be compared
 * with it. Reads records from standard input until its end, and writes one answer for each.
 * Integers are little-endian, without padding.
 *
 * A record:
 *  *	u32 nr_ops, at most XK_MAX_OPS
 *  *	u32 nr_ivs, at most XK_MAX_IVS
 *  *	u32 stores: whether XK_OP_STORE is declared
 *  *	u32 zero
 *  *	struct xk_op ops[nr_ops], 16 bytes each
 *  *	u64 ivs[nr_ivs], the values, not struct xk_iv
 *  *	u64 registers[16], in the processor's order: rax rcx rdx rbx rsp ...
 *  *	u64 flags
 *  *	u64 base, the address of the first byte of memory
 *  *	u8 memory[4096]; every other address faults. XK_OP_TEXT reads from it as
 *  *		it is here, XK_OP_PER_CPU gives PER_CPU_BASE
 *
 * An answer:
 *  *	s32 status: 0, -22 (EINVAL) refused by the checker, -14 (EFAULT) memory
 *  *	s32 operation that the checker refused, or -1
 *  *	u64 registers[16]
 *  *	u64 flags
 *  *	u8 memory[4096]
 *
 * Exits with 1 on a truncated or oversized record, and with 2 if the two ways in which xk.ko can
 * run the program differ, which is a bug in it.
 */
#include <stdio.h>

#include "run.h"

struct header {
	u32 nr_ops;
	u32 nr_ivs;
	u32 stores;
	u32 zero;
};

struct state {
	u64 registers[16];
	u64 flags;
};

static int get(void *to, size_t size)
{
	return fread(to, 1, size, stdin) == size ? 0 : -1;
}

static int put(const void *from, size_t size)
{
	return fwrite(from, 1, size, stdout) == size ? 0 : -1;
}

static int answer(struct machine *machine, int status, int operation)
{
	struct state state;
	unsigned int i;

	for (i = 0; i < 16; i++)
		state.registers[i] = *xk_reg(&machine->regs, i);
	state.flags = machine->regs.flags;
	return put(&status, sizeof(status)) || put(&operation, sizeof(operation)) ||
	       put(&state, sizeof(state)) || put(machine->memory, MEMORY_SIZE) || fflush(stdout);
}

static int one(const struct header *header)
{
	struct machine written = {}, before, native;
	struct xk_op ops[XK_MAX_OPS];
	struct xk_ops_error why = { .op = -1 };
	struct xk_ops_limits limits;
	u64 ivs[XK_MAX_IVS] = {};
	struct state state;
	unsigned int i, form;
	int status;

	if (header->nr_ops > XK_MAX_OPS || header->nr_ivs > XK_MAX_IVS ||
	    get(ops, header->nr_ops * sizeof(*ops)) ||
	    get(ivs, header->nr_ivs * sizeof(*ivs)) || get(&state, sizeof(state)) ||
	    get(&written.base, sizeof(written.base)) || get(written.memory, MEMORY_SIZE))
		return 1;
	for (i = 0; i < 16; i++)
		*xk_reg(&written.regs, i) = state.registers[i];
	written.regs.flags = state.flags;

	limits = (struct xk_ops_limits) {
		.nr_ivs = header->nr_ivs, .text_len = MEMORY_SIZE, .stores = header->stores,
	};
	status = xk_ops_check(ops, header->nr_ops, &limits, &why);
	if (!status) {
		link_to(&written, ops, header->nr_ops);
		before = written;
		why.op = -1;
		status = run_as_written(&written, ops, header->nr_ops, ivs);
		for (form = IN_FUNCTION; form <= IN_STUB; form++) {
			int ret;

			native = before;
			ret = run_as_native(&native, ops, header->nr_ops, ivs, form);
			if (ret != 1 && (ret != status ||
					 memcmp(&written, &native, sizeof(written)))) {
				fprintf(stderr, "ops_run: native code differs, form %u\n", form);
				return 2;
			}
		}
	}
	return answer(&written, status, why.op) ? 1 : 0;
}

int main(void)
{
	struct header header;
	int ret;

	while (fread(&header, sizeof(header), 1, stdin) == 1) {
		ret = one(&header);
		if (ret)
			return ret;
	}
	return 0;
}
