/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Locks in objects of the heap. Extensions, modules and user space may share them, and a run may
 * hold several. All bytes of a new one are 0.
 *
 * A lock is a queue of tickets. Each has a place, a word: the round of the ticket (how often the
 * places were used before) and who has it. Who takes a ticket writes itself into its place. Who
 * gives up waiting, and who gives back the lock, does the same: it sets the place to the next
 * round. The ticket is done then, and anybody may go on to the next one. So nobody waits for
 * somebody who has gone, wherever in these functions that was.
 *
 * A run that is ended gives back its locks, the last one first, and its tickets. A run may hold
 * XK_LOCK_HELD; one that takes more is ended. In a module, the caller disables preemption. In a
 * module and in a process nobody is ended.
 */
#ifndef _XK_FLEX_LOCK_H
#define _XK_FLEX_LOCK_H

#include "base.h"

#define XK_LOCK_PLACES		8	/* so many wait in order; the others, for a place */
#define XK_LOCK_READERS		16	/* so many read at once */
#define XK_LOCK_HELD		8	/* so many has a run, with the one that it waits for */

struct xk_lock {
	__u64 next;	/* the ticket that is taken next */
	__u64 now;	/* the ticket that has the lock */
	__u64 places[XK_LOCK_PLACES];
};

struct xk_rwlock {
	struct xk_lock queue;	/* of readers and writers; a writer keeps it */
	__u64 readers[XK_LOCK_READERS];
};

/* Who has a ticket, or reads: 40 bits. 0: nobody. */
#define XK_LOCK_WHO		((1ull << 40) - 1)
#define XK_LOCK_USER		(1ull << 39)	/* a thread, by its number */
#define XK_LOCK_PROGRAM		(1ull << 38)	/* a run: CPU (13 bits), number there (25) */

#define xk_lock_inline static inline __attribute__((always_inline))
#define XK_LOCK_READ(word)	(*(volatile __u64 __heap *)&(word))

/* Tests put somebody else here, who comes between reading a word and exchanging it. */
#ifndef XK_LOCK_BETWEEN
#define XK_LOCK_BETWEEN(lock)
#endif

/* Between two turns of a loop that waits. */
#ifndef XK_LOCK_PAUSE
#if defined(__BPF__)
#define XK_LOCK_PAUSE()
#elif defined(__KERNEL__)
#define XK_LOCK_PAUSE()		cpu_relax()
#else
#define XK_LOCK_PAUSE()		__builtin_ia32_pause()
#endif
#endif

#if defined(__BPF__)
/*
 * Loops of what ends a run do not look whether it is to end. The verifier follows a loop with
 * may_goto until it learns nothing new.
 */
#define xk_lock_may_loop() ({						\
	__label__ out, on;						\
	int may = 1;							\
	asm volatile goto("may_goto %l[out]" :::: out);			\
	goto on;							\
out:									\
	may = 0;							\
on:;									\
	may;								\
})
#else
#define xk_lock_may_loop()	1
#endif

/* The place of a ticket while nobody has it. */
xk_lock_inline __u64 xk_lock_free(__u64 ticket)
{
	return ticket / XK_LOCK_PLACES << 40;
}

/* Whether a place's word is of the round of this ticket, or of a later one. */
xk_lock_inline int xk_lock_is_since(__u64 word, __u64 ticket)
{
	return (__s64)(word - xk_lock_free(ticket)) >= 0;
}

xk_lock_inline __u64 __heap *xk_lock_place(struct xk_lock __heap *lock, __u64 ticket)
{
	return &lock->places[ticket % XK_LOCK_PLACES];
}

/* Whether I have the ticket now. Who finds it taken goes on to the next one for whoever took it. */
xk_lock_inline int xk_lock_take(struct xk_lock __heap *lock, __u64 ticket, __u64 me)
{
	__u64 free = xk_lock_free(ticket);
	__u64 word = XK_LOCK_READ(*xk_lock_place(lock, ticket));
	int mine = 0;

	if (word == free) {
		XK_LOCK_BETWEEN(lock);
		word = __sync_val_compare_and_swap(xk_lock_place(lock, ticket), free, free | me);
		mine = word == free;
	}
	if (xk_lock_is_since(word, ticket)) {
		XK_LOCK_BETWEEN(lock);
		__sync_val_compare_and_swap(&lock->next, ticket, ticket + 1);
	}
	return mine;
}

/* Whether the ticket that had the lock was done, and the next one has it. */
xk_lock_inline int xk_lock_advance(struct xk_lock __heap *lock)
{
	__u64 now = XK_LOCK_READ(lock->now);
	__u64 word = XK_LOCK_READ(*xk_lock_place(lock, now));

	if (!xk_lock_is_since(word, now + XK_LOCK_PLACES))
		return 0;
	XK_LOCK_BETWEEN(lock);
	__sync_val_compare_and_swap(&lock->now, now, now + 1);
	return 1;
}

/* My ticket is done, whether it had the lock or not. If it is not mine, it stays. */
xk_lock_inline void xk_lock_done(struct xk_lock __heap *lock, __u64 ticket, __u64 me)
{
	__sync_val_compare_and_swap(xk_lock_place(lock, ticket), xk_lock_free(ticket) | me,
				    xk_lock_free(ticket + XK_LOCK_PLACES));
	while (xk_lock_advance(lock) && xk_lock_may_loop())
		;
}

/* Who has a ticket, or 0. */
xk_lock_inline __u64 xk_lock_who(struct xk_lock __heap *lock, __u64 ticket)
{
	__u64 word = XK_LOCK_READ(*xk_lock_place(lock, ticket));

	return (word & ~XK_LOCK_WHO) == xk_lock_free(ticket) ? word & XK_LOCK_WHO : 0;
}

/* Who has the lock, or 0. */
xk_lock_inline __u64 xk_lock_owner(struct xk_lock __heap *lock)
{
	return xk_lock_who(lock, XK_LOCK_READ(lock->now));
}

/* In what a run holds: it reads. */
#define XK_LOCK_READS		1ull

#if defined(__BPF__)

#include "../xk_lock.bpf.h"

#else

/* Nobody is ended here, so that nothing is noted. */
struct xk_lock_run;

#define xk_lock_this_run()			((struct xk_lock_run *)0)
#define xk_lock_room(run)			0
#define xk_lock_full(run)
#define xk_lock_give_back(lock, ticket, me)	xk_lock_done(lock, ticket, me)
#define xk_lock_note(run, at, lock, kind, which)
#define xk_lock_waits(run, lock, kind, which)
#define xk_lock_goes_on(run)			((void)(run))

#ifdef __KERNEL__
#include <linux/processor.h>
#include <linux/smp.h>

xk_lock_inline __u64 xk_lock_me(struct xk_lock_run *run)
{
	return XK_LOCK_PROGRAM | (__u64)smp_processor_id() << 25;
}
#else
#include <sys/syscall.h>
#include <unistd.h>

xk_lock_inline __u64 xk_lock_me(struct xk_lock_run *run)
{
#ifdef XK_LOCK_THREAD
	return XK_LOCK_USER | XK_LOCK_THREAD();
#else
	static __thread __u64 me;

	if (!me)
		me = XK_LOCK_USER | (__u64)syscall(SYS_gettid);
	return me;
#endif
}
#endif

/* Which ticket I have, or whether I read: 1 above that, or 0. */
xk_lock_inline __u64 xk_lock_forget(struct xk_lock_run *run, struct xk_lock __heap *lock,
				    __u64 kind)
{
	struct xk_rwlock __heap *both = (struct xk_rwlock __heap *)lock;
	__u64 at, me = xk_lock_me(run);

	if (!kind)
		return xk_lock_owner(lock) == me ? XK_LOCK_READ(lock->now) + 1 : 0;
	for (at = 0; at < XK_LOCK_READERS; at++) {
		if (XK_LOCK_READ(both->readers[at]) == me)
			return at + 1;
	}
	return 0;
}

#endif

/*
 * Takes a lock, and waits for those that came before. What a run may hold is noted before it does,
 * because a run may be ended at the end of each turn of a loop.
 */
xk_fn void xk_lock(struct xk_lock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 me = xk_lock_me(run), at = xk_lock_room(run), ticket = 0;
	int mine = 0;

	xk_lock_waits(run, lock, 0, 0);
	for (;;) {
		if (at >= XK_LOCK_HELD) {
			xk_lock_full(run);
			continue;
		}
		if (!mine) {
			ticket = XK_LOCK_READ(lock->next);
			xk_lock_note(run, at, lock, 0, ticket);
			mine = xk_lock_take(lock, ticket, me);
		}
		if (mine && XK_LOCK_READ(lock->now) == ticket)
			break;
		if (!xk_lock_advance(lock))
			XK_LOCK_PAUSE();
	}
	xk_lock_goes_on(run);
}

/* Takes a lock that nobody has or waits for; whether it did. Not if the run holds too many. */
xk_fn int xk_trylock(struct xk_lock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 me = xk_lock_me(run), at = xk_lock_room(run), ticket;

	if (at >= XK_LOCK_HELD)
		return 0;
	xk_lock_advance(lock);
	ticket = XK_LOCK_READ(lock->next);
	if ((__s64)(XK_LOCK_READ(lock->now) - ticket) < 0)
		return 0;
	if (!xk_lock_take(lock, ticket, me))
		return 0;
	xk_lock_note(run, at, lock, 0, ticket);
	return 1;
}

/* Gives back a lock; whether this run, or this thread, had it. */
xk_fn int xk_unlock(struct xk_lock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 ticket = xk_lock_forget(run, lock, 0);

	if (!ticket)
		return 0;
	xk_lock_give_back(lock, ticket - 1, xk_lock_me(run));
	return 1;
}

/* Begins to read: after those who came before. A run needs room for two locks. */
xk_fn void xk_read_lock(struct xk_rwlock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 me = xk_lock_me(run), at, reader = 0;

	xk_lock(&lock->queue);
	for (;;) {
		at = xk_lock_room(run);
		if (at >= XK_LOCK_HELD) {
			xk_lock_full(run);
			continue;
		}
		/* Only who has the queue begins to read. */
		if (!XK_LOCK_READ(lock->readers[reader % XK_LOCK_READERS]))
			break;
		xk_lock_waits(run, &lock->queue, XK_LOCK_READS, reader % XK_LOCK_READERS);
		XK_LOCK_PAUSE();
		reader++;
	}
	reader %= XK_LOCK_READERS;
	xk_lock_note(run, at, &lock->queue, XK_LOCK_READS, reader);
	XK_LOCK_READ(lock->readers[reader]) = me;
	xk_lock_goes_on(run);
	xk_unlock(&lock->queue);
}

/* Ends to read; whether this run, or this thread, did. */
xk_fn int xk_read_unlock(struct xk_rwlock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 reader = xk_lock_forget(run, &lock->queue, XK_LOCK_READS);

	if (!reader)
		return 0;
	reader = (reader - 1) % XK_LOCK_READERS;
	__sync_val_compare_and_swap(&lock->readers[reader], xk_lock_me(run), 0);
	return 1;
}

/* Begins to write: after those who came before, and alone. */
xk_fn void xk_write_lock(struct xk_rwlock __heap *lock)
{
	struct xk_lock_run *run = xk_lock_this_run();
	__u64 reader = 0;

	xk_lock(&lock->queue);
	/* Who has the queue is waited for by all who want to read. */
	while (reader < XK_LOCK_READERS) {
		if (!XK_LOCK_READ(lock->readers[reader % XK_LOCK_READERS])) {
			reader++;
			continue;
		}
		xk_lock_waits(run, &lock->queue, XK_LOCK_READS, reader);
		XK_LOCK_PAUSE();
	}
	xk_lock_goes_on(run);
}

/* Ends to write; whether this run, or this thread, did. */
xk_fn int xk_write_unlock(struct xk_rwlock __heap *lock)
{
	return xk_unlock(&lock->queue);
}

#endif
