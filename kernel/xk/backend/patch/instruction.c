// SPDX-License-Identifier: GPL-2.0-only
/* One instruction that holds a value, and the copies that NMIs execute while it changes. */
#include <linux/bitops.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>

#include "backend/guard.h"
#include "backend/patch/patch.h"
#include "text/internal.h"
#include "text/poke.h"

#define INT3 0xcc
/* Distance of the copy after the change from the choice. */
#define AFTER (XK_CHOICE_LEN + XK_COPY_LEN)

static_assert(XK_MAX_RELOCATED + XK_JUMP_LEN <= XK_COPY_LEN);

unsigned long xk_choice_address(const struct xk_live_patch *patch, unsigned int index)
{
	return xk_stub_address(patch->stub) + index * (XK_CHOICE_LEN + 2 * XK_COPY_LEN);
}

unsigned long xk_copy_address(const struct xk_live_patch *patch, unsigned int index,
			      enum xk_copy which)
{
	return xk_choice_address(patch, index) + (which == XK_COPY_AFTER ? AFTER : XK_CHOICE_LEN);
}

bool xk_choice_possible(void)
{
	s64 epoch = (unsigned long)&xk_epoch;

	return epoch == (s32)epoch;
}

/* No flag and no register changes: the instruction that the breakpoint replaces may use any. */
void xk_choice_write(const struct xk_live_patch *patch, unsigned int index)
{
	unsigned long address = xk_choice_address(patch, index);
	u32 epoch = (unsigned long)&xk_epoch;
	u8 code[XK_CHOICE_LEN] = {
		0x51,			/* push %rcx */
		0x65, 0x0f, 0xb6, 0x0c,	/* movzbl %gs:xk_epoch, %ecx */
		0x25, 0, 0, 0, 0,
		0xe3, 3,		/* jrcxz 15 */
		0x59,			/* pop %rcx */
		0xeb, AFTER - 15,	/* jmp to the copy after the change */
		0x59,			/* 15: pop %rcx; the copy before the change follows */
	};

	put_unaligned_le32(epoch, &code[6]);
	if (memcmp((void *)address, code, sizeof(code)))
		xk_text_write(address, code, sizeof(code));
}

bool xk_patch_has_room(const struct xk_patch *what, u64 iv)
{
	return !((iv ^ sign_extend64(iv, 8 * what->size - 1)) & xk_width_mask(what->width));
}

bool xk_patch_compose(const struct xk_live_site *site, const struct xk_patched *patched,
		      s64 value, u8 *bytes)
{
	u64 iv = xk_iv_apply(&site->ivs[patched->what.iv], value);
	struct insn insn;

	memcpy(bytes, patched->original, patched->window.len);
	memcpy(bytes + patched->what.field, &iv, patched->what.size);
	return xk_patch_has_room(&patched->what, iv) &&
	       !xk_insn_decode(&insn, bytes, patched->window.len) &&
	       insn.length == patched->window.len;
}

bool xk_copy_compose(const struct xk_window *window, u8 *code, unsigned long address)
{
	unsigned int len = xk_relocate(window, 0, code, address);

	if (!len || !xk_write_jump(code + len, XK_JUMP_LEN, address + len,
				   window->address + window->len))
		return false;
	len += XK_JUMP_LEN;
	memset(code + len, INT3, XK_COPY_LEN - len);
	return true;
}

void xk_copy_write(const struct xk_live_patch *patch, unsigned int index, enum xk_copy which,
		   const u8 *bytes)
{
	unsigned long address = xk_copy_address(patch, index, which);
	struct xk_window window = patch->at[index].window;
	u8 code[XK_COPY_LEN];

	memcpy(window.bytes, bytes, window.len);
	if (xk_copy_compose(&window, code, address) && memcmp((void *)address, code, XK_COPY_LEN))
		xk_text_write(address, code, XK_COPY_LEN);
}

bool xk_patch_in_force(const struct xk_patched *patched)
{
	const struct xk_window *window = &patched->window;
	u8 running[XK_MAX_WINDOW];

	if (copy_from_kernel_nofault(running, (void *)window->address, window->len) ||
	    memcmp(running + 1, window->bytes + 1, window->len - 1))
		return false;
	return running[0] == window->bytes[0] ||
	       (running[0] == INT3 && xk_is_probed(window->address));
}

bool xk_patch_may_change(const struct xk_patched *patched)
{
	return xk_patch_in_force(patched) && xk_number_is_free(patched->window.address);
}

bool xk_patches_all(const struct xk_live_patch *patch,
		    bool (*state)(const struct xk_patched *patched))
{
	bool all = true;
	unsigned int i;

	preempt_disable();
	for (i = 0; i < patch->nr; i++)
		all &= state(&patch->at[i]);
	preempt_enable();
	return all;
}
