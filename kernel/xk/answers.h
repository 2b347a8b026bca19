/* SPDX-License-Identifier: GPL-2.0-only */
/* What kprobes have answered about addresses. All of this under xk_lock. */
#ifndef _XK_ANSWERS_H
#define _XK_ANSWERS_H

struct module;

enum xk_answer {
	XK_ANSWER_UNKNOWN,
	XK_ANSWER_YES,	/* a probe may be there, with a breakpoint of its own */
	XK_ANSWER_NO,	/* none may be there, ever */
};

enum xk_answer xk_answer_get(unsigned long address);
void xk_answer_keep(unsigned long address, enum xk_answer answer);
/* Its text goes; another module may come to the same addresses. */
void xk_answers_module_going(const struct module *module);
void xk_answers_exit(void);

#endif /* _XK_ANSWERS_H */
