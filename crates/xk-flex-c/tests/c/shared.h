/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What tests/bpf/shared.bpf.c and the programs beside this file share. */
#ifndef _SHARED_H
#define _SHARED_H

#include "flex/hash.h"
#include "flex/list.h"
#include "flex/lock.h"

/* What the extension does, as the argument of getpgid(). No process has such a number. */
enum operation {
	PREPARE = 1000000,	/* makes what is shared; done: there was memory */
	SET,			/* a key of the table */
	GET,
	REMOVE,
	PUSH,			/* to the list */
	TAKE,			/* memory: as many bytes as the key says */
	COUNT,			/* with the lock */
	ENDLESS,
	LOAD,			/* a word: the key is its address */
};

struct asked {
	__u64 key;
	__u64 value;
};

/* Written by the extension. */
struct answered {
	__u64 runs;		/* that have begun */
	__u64 done;		/* the last one succeeded */
	__u64 value;
};

struct shared {
	struct xk_lock lock;
	struct xk_rwlock both;
	__u64 counter;
};

#endif
