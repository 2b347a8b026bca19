/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the programs beside this file have in common. */
#ifndef _CHECK_H
#define _CHECK_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xk_flex.h>
#include "shared.h"

#define CHECK(condition) do {							\
	if (!(condition)) {							\
		printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, xk_flex_error());	\
		exit(1);							\
	}									\
} while (0)

/* Fails with this code, and says why. */
#define FAILS(call, code, words) do {						\
	CHECK((call) == -(code));						\
	CHECK(strstr(xk_flex_error(), words));					\
} while (0)
#define FAILS_NULL(call, code, words) do {					\
	errno = 0;								\
	CHECK(!(call));								\
	CHECK(errno == (code) && strstr(xk_flex_error(), words));		\
} while (0)

#define SECOND	1000000000ull
#define MS	1000000ull

/* How long it waits for what must happen: longer than it takes anywhere. */
#define PATIENCE	300

static struct xk_flex *flex;
static volatile struct asked *asked;
static volatile struct answered *answered;
static struct shared **shared;
static struct xk_hash **hash;

static inline void find_variables(void)
{
	CHECK(flex);
	CHECK((asked = xk_flex_variable(flex, "asked", sizeof(*asked))));
	CHECK((answered = xk_flex_variable(flex, "answered", sizeof(*answered))));
	CHECK((shared = xk_flex_variable(flex, "shared", sizeof(*shared))));
	CHECK((hash = xk_flex_variable(flex, "hash", sizeof(*hash))));
}

static inline void call(enum operation operation)
{
	syscall(SYS_getpgid, operation);
}

/* Whether the extension has done it. */
static inline int ask(enum operation operation, __u64 key, __u64 value)
{
	asked->key = key;
	asked->value = value;
	call(operation);
	return answered->done;
}

static inline void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 10 * MS }, NULL);
}

#define WAIT_FOR(condition) do {						\
	time_t began = time(NULL);						\
										\
	while (!(condition)) {							\
		CHECK(time(NULL) - began < PATIENCE && #condition);		\
		pause_shortly();						\
	}									\
} while (0)

static inline struct xk_flex_usage usage(void)
{
	struct xk_flex_usage found;

	CHECK(!xk_flex_usage(flex, &found));
	return found;
}

/* The program again, with this argument. */
static inline pid_t start(char *name, char *argument)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		/* It also ends if a check fails. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/proc/self/exe", name, argument, NULL);
		_exit(127);
	}
	return child;
}

static inline int end_of(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

#endif
