// SPDX-License-Identifier: GPL-2.0-only
/*
 * The backends, in the order in which a site tries them. The data backend is for sites that are not
 * in code. It comes last: objects change when the code of a tune is armed.
 */
#include <linux/stddef.h>

#include "backend/data/data.h"
#include "backend/detour/detour.h"
#include "backend/kprobe/kprobe.h"
#include "backend/list.h"
#include "backend/patch/patch.h"

const struct xk_backend *const xk_backend_list[] = {
	&xk_backend_patch,
	&xk_backend_detour,
	&xk_backend_kprobe,
	&xk_backend_data,
	NULL,
};
