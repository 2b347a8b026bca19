// SPDX-License-Identifier: GPL-2.0-only
/* Reasons of refusals. Shared with xk_tunable.ko: uses nothing of xk.ko. */
#include <linux/stdarg.h>
#include <linux/sprintf.h>

#include "base/error.h"

int xk_refuse(struct xk_error *error, int ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return ret;
}
