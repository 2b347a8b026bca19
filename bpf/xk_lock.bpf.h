/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For extensions (docs/flex.md): what a run with locks holds, and how that is released when it
 * ends. flex/lock.h includes it. `xk flex` puts a struct xk_lock_run into the frame of each program
 * of an object that does, and lets its looks call xk_lock_look().
 */
#ifndef _XK_LOCK_BPF_H
#define _XK_LOCK_BPF_H

#ifndef _XK_FLEX_BPF_H
#error "include xk_flex.bpf.h before flex/lock.h"
#endif

/*
 * What is held, or maybe held: the lock's offset in the heap, with XK_LOCK_READS, and the ticket or
 * the number of the reader above. It is noted before the run has it. Who releases what it has not
 * got changes nothing, because the run's name is not there.
 */
struct xk_lock_run {
	struct xk_heap_run heap;
	__u64 me;
	__u64 waits;		/* for whom, in the same form; 0: for nobody */
	__u64 count;		/* above XK_LOCK_HELD, the run is to end */
	__u64 held[XK_LOCK_HELD];
};

/* A run with locks that was ended. */
struct xk_lock_end {
	struct xk_flex_end end;
	__u64 me;
	__u64 lock;		/* address of the lock for which it waited, or 0 */
	__u64 owner;		/* who had that */
	__u64 count;
	struct {
		__u64 lock;	/* address of a lock that was released */
		__u64 waiter;	/* who waited for it, or 0 */
	} held[XK_LOCK_HELD];
};

/* bpf_ringbuf_reserve(), bpf_ringbuf_submit() */
static void *(*const xk_lock_reserve)(void *map, __u64 size, __u64 flags) = (void *)131;
static void (*const xk_lock_submit)(void *data, __u64 flags) = (void *)132;

/*
 * The run. `xk flex` puts its address in place of each call. The verifier refuses an object that
 * was not rewritten.
 */
static __attribute__((__noinline__, __used__))
struct xk_lock_run *xk_lock_this_run(void)
{
	struct xk_lock_run *run;

	asm volatile("%0 = 0" : "=r"(run));
	return run;
}

/* The run's name, which no other one has. */
xk_lock_inline __u64 xk_lock_me(struct xk_lock_run *run)
{
	__u64 cpu, number;

	if (!run->me) {
		cpu = xk_heap_this_cpu() & 0x1fff;
		number = __sync_fetch_and_add(&xk_heap_cpu()->runs, 1) & 0x1ffffff;
		run->me = XK_LOCK_PROGRAM | cpu << 25 | number;
	}
	return run->me;
}

/* Where the next lock is noted; at least XK_LOCK_HELD without room. */
xk_lock_inline __u64 xk_lock_room(struct xk_lock_run *run)
{
	return *(volatile __u64 *)&run->count;
}

/* The next look ends the run. */
xk_lock_inline void xk_lock_full(struct xk_lock_run *run)
{
	*(volatile __u64 *)&run->count = XK_LOCK_HELD + 1;
	*(volatile __s64 *)&run->heap.run.left = 0;
}

xk_lock_inline __u64 xk_lock_entry(struct xk_lock __heap *lock, __u64 kind, __u64 which)
{
	return (__u32)(__u64)lock | kind | which << 32;
}

xk_lock_inline void xk_lock_note(struct xk_lock_run *run, __u64 at, struct xk_lock __heap *lock,
				 __u64 kind, __u64 which)
{
	*(volatile __u64 *)&run->held[at] = xk_lock_entry(lock, kind, which);
	*(volatile __u64 *)&run->count = at + 1;
}

xk_lock_inline void xk_lock_waits(struct xk_lock_run *run, struct xk_lock __heap *lock, __u64 kind,
				  __u64 which)
{
	*(volatile __u64 *)&run->waits = xk_lock_entry(lock, kind, which);
}

xk_lock_inline void xk_lock_goes_on(struct xk_lock_run *run)
{
	*(volatile __u64 *)&run->waits = 0;
}

/*
 * Global functions: the verifier follows each of them once, and not once for each call. So no run
 * takes a lock while it has disabled preemption.
 */
#define xk_lock_apart __attribute__((__noinline__, __used__))

/* Takes the newest entry of a lock out of the list: its ticket or reader, and 1 above; or 0. */
xk_lock_apart __u64 xk_lock_find(struct xk_lock_run *run, __u32 what)
{
	__u64 count, at, found = 0;

	if (!run)
		return 0;
	count = xk_lock_room(run);
	at = count;
	while (at && xk_lock_may_loop()) {
		at--;
		found = run->held[at % XK_LOCK_HELD];
		if ((__u32)found == what)
			break;
	}
	if ((__u32)found != what)
		return 0;
	/* Mostly it is the last one. */
	while (at + 1 < count && xk_lock_may_loop()) {
		run->held[at % XK_LOCK_HELD] = run->held[(at + 1) % XK_LOCK_HELD];
		at++;
	}
	run->count = count - 1;
	return (found >> 32) + 1;
}

xk_lock_inline __u64 xk_lock_forget(struct xk_lock_run *run, struct xk_lock __heap *lock,
				    __u64 kind)
{
	return xk_lock_find(run, xk_lock_entry(lock, kind, 0));
}

xk_lock_inline struct xk_rwlock __heap *xk_lock_of(__u64 entry)
{
	return xk_heap_at((__u32)entry & ~XK_LOCK_READS);
}

xk_lock_inline __u64 __heap *xk_lock_reader(__u64 entry)
{
	return &xk_lock_of(entry)->readers[(entry >> 32) % XK_LOCK_READERS];
}

/* Who has what an entry says. */
xk_heap_apart __u64 xk_lock_holder(__u64 entry)
{
	if (!entry)
		return 0;
	if (entry & XK_LOCK_READS)
		return XK_LOCK_READ(*xk_lock_reader(entry));
	return xk_lock_owner(&xk_lock_of(entry)->queue);
}

/* Who waits for what a run has: behind its ticket, or with the queue. */
xk_heap_apart __u64 xk_lock_waiter(__u64 entry)
{
	if (entry & XK_LOCK_READS)
		return xk_lock_owner(&xk_lock_of(entry)->queue);
	return xk_lock_who(&xk_lock_of(entry)->queue, (entry >> 32) + 1);
}

xk_lock_apart int xk_lock_release(__u64 entry, __u64 me)
{
	XK_USE_HEAP();
	if (entry & XK_LOCK_READS)
		__sync_val_compare_and_swap(xk_lock_reader(entry), me, 0);
	else
		xk_lock_done(&xk_lock_of(entry)->queue, entry >> 32, me);
	return 0;
}

xk_lock_inline void xk_lock_give_back(struct xk_lock __heap *lock, __u64 ticket, __u64 me)
{
	xk_lock_release(xk_lock_entry(lock, 0, ticket), me);
}

/* Reports a run that ends. */
xk_lock_inline void xk_lock_report(struct xk_lock_run *run, __u32 site, __u32 why, __u64 count)
{
	struct xk_lock_end *end = xk_lock_reserve(&xk_flex_ended, sizeof(*end), 0);
	__u64 at = count;

	if (!end) {
		__sync_fetch_and_add(&xk_flex_unreported, 1);
		xk_heap_cpu()->faults = run->heap.faults;
		return;
	}
	end->end.time = run->heap.run.last;
	end->end.spent = run->heap.run.spent;
	end->end.site = site;
	end->end.why = why;
	xk_heap_describe(&run->heap, &end->end);
	end->me = run->me;
	end->lock = run->waits ? (__u64)xk_lock_of(run->waits) : 0;
	end->owner = xk_lock_holder(run->waits);
	end->count = count;
	while (at && xk_lock_may_loop()) {
		__u64 which = (count - at) % XK_LOCK_HELD, entry;

		at--;
		entry = run->held[at % XK_LOCK_HELD];
		end->held[which].lock = (__u64)xk_lock_of(entry);
		end->held[which].waiter = xk_lock_waiter(entry);
	}
	xk_lock_submit(end, 0);
}

/* Releases what a run that ends holds, the last one first. */
xk_lock_inline void xk_lock_release_all(struct xk_lock_run *run, __u64 count)
{
	while (count && xk_lock_may_loop()) {
		count--;
		xk_lock_release(run->held[count % XK_LOCK_HELD], run->me);
	}
	run->count = 0;
}

/* Ends a run: a report, and then the releases. */
xk_lock_apart int xk_lock_end(struct xk_lock_run *run, __u32 site, __u32 why)
{
	__u64 count;

	XK_USE_HEAP();
	if (!run)
		return 0;
	count = xk_lock_room(run);
	if (count > XK_LOCK_HELD)
		count = XK_LOCK_HELD;
	xk_lock_report(run, site, why, count);
	xk_lock_release_all(run, count);
	return 0;
}

/* Whether the run ends: xk_flex_look() for objects with locks. */
xk_lock_apart int xk_lock_look(struct xk_lock_run *run, __u32 site, __u32 why)
{
	XK_USE_HEAP();
	if (!run)
		return 0;
	if (!why && run->count > XK_LOCK_HELD)
		why = XK_FLEX_LOCKS;
	why = xk_heap_why(&run->heap, why);
	if (!why)
		return 0;
	xk_lock_end(run, site, why);
	return 1;
}

/* At the end of a program: 1 if it has accessed what is not there. */
xk_lock_apart int xk_lock_left(struct xk_lock_run *run, __u32 site)
{
	XK_USE_HEAP();
	if (!run || !xk_heap_faulted(&run->heap))
		return 0;
	xk_flex_judge(&run->heap.run, XK_FLEX_FAULT, xk_flex_time());
	xk_lock_end(run, site, XK_FLEX_FAULT);
	return 1;
}

#endif
