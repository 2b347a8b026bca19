// SPDX-License-Identifier: GPL-2.0-only
/*
 * The locks of bpf/flex/lock.h, by several threads that take turns: one changes to another between
 * reading a word and exchanging it, and while it waits, as random numbers say. Some give up, and
 * some die at such a place, and are broken as xk_flex::Heap breaks them. Arguments: the seed, and
 * how many rounds. Prints what went wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static void yield(void);
static unsigned int current;

#define XK_LOCK_BETWEEN(lock)	yield()
#define XK_LOCK_PAUSE()		yield()
#define XK_LOCK_THREAD()	(current + 1ull)
#include "flex/lock.h"

#define THREADS		11	/* more than places for tickets */
#define STACK		65536
#define TURNS		6
#define MOST		4000000	/* changes of threads in a round */

static ucontext_t scheduler, threads[THREADS];
static char stacks[THREADS][STACK];
static enum { READY, ENDED, DEAD, BROKEN } states[THREADS];
static struct xk_lock lock;
static struct xk_rwlock both;
static unsigned long seed, passed, taken, tried, given_up, died, reads, most_readers;
/* Who is inside, and the last ticket that was. */
static int inside, writing, reading, mortal;
static __u64 last;

static unsigned int random_below(unsigned int limit)
{
	seed = seed * 6364136223846793005ul + 1442695040888963407ul;
	return (seed >> 33) % limit;
}

static void fail(const char *what)
{
	printf("%s: lock %llu of %llu; readers and writers %llu of %llu; %lu died\n", what,
	       lock.now, lock.next, both.queue.now, both.queue.next, died);
	exit(1);
}

static void yield(void)
{
	static unsigned long alone;

	if (current < THREADS)
		swapcontext(&threads[current], &scheduler);
	/* The main program is none of them, and nobody else is there. */
	else if (alone++ > MOST)
		fail("it does not go on alone");
}

static void enter(__u64 ticket)
{
	if (inside++)
		fail("two are inside");
	if (ticket + 1 <= last)
		fail("out of order");
	last = ticket + 1;
	for (unsigned int at = random_below(3); at; at--)
		yield();
	inside--;
	taken++;
}

/* Takes a ticket and gives it back after some turns, whether it has the lock or not. */
static void give_up(void)
{
	__u64 me = xk_lock_me(NULL), ticket;

	do {
		ticket = XK_LOCK_READ(lock.next);
		yield();
	} while (!xk_lock_take(&lock, ticket, me));
	for (unsigned int at = random_below(20); at; at--)
		yield();
	xk_lock_done(&lock, ticket, me);
	given_up++;
}

static void turn(void)
{
	switch (random_below(6)) {
	case 0:
	case 1:
		xk_lock(&lock);
		enter(lock.now);
		if (!xk_unlock(&lock))
			fail("it was not mine");
		break;
	case 2:
		if (!xk_trylock(&lock))
			break;
		tried++;
		enter(lock.now);
		xk_unlock(&lock);
		break;
	case 3:
		give_up();
		break;
	case 4:
		xk_write_lock(&both);
		if (writing++ || reading)
			fail("one writes beside others");
		yield();
		writing--;
		xk_write_unlock(&both);
		break;
	default:
		xk_read_lock(&both);
		reading++;
		if (writing)
			fail("one reads beside a writer");
		if (reading > most_readers)
			most_readers = reading;
		for (unsigned int at = random_below(12); at; at--)
			yield();
		reads++;
		reading--;
		if (!xk_read_unlock(&both))
			fail("it did not read");
	}
}

static void thread(void)
{
	for (int at = 0; at < TURNS; at++)
		turn();
	states[current] = ENDED;
	yield();
}

/* What Heap::break_locks_of_dead() does. */
static void clear(struct xk_lock *broken, unsigned int who)
{
	for (int place = 0; place < XK_LOCK_PLACES; place++) {
		__u64 word = broken->places[place];

		if ((word & XK_LOCK_WHO) == (XK_LOCK_USER | (who + 1ull)))
			broken->places[place] = (word & ~XK_LOCK_WHO) + XK_LOCK_WHO + 1;
	}
	while (xk_lock_advance(broken))
		;
}

static void break_locks(unsigned int who)
{
	states[who] = BROKEN;
	current = THREADS;
	clear(&lock, who);
	clear(&both.queue, who);
	for (int at = 0; at < XK_LOCK_READERS; at++) {
		if (both.readers[at] == (XK_LOCK_USER | (who + 1ull)))
			both.readers[at] = 0;
	}
}

static void free_now(struct xk_lock *own)
{
	/* Who died may have left the next ticket to be passed by others. */
	xk_lock(own);
	xk_unlock(own);
	if (own->next != own->now)
		fail("it is not free at the end");
	for (__u64 ticket = own->next; ticket < own->next + XK_LOCK_PLACES; ticket++) {
		if (*xk_lock_place(own, ticket) != xk_lock_free(ticket))
			fail("a place is not free at the end");
	}
}

static void run_round(__u64 begin)
{
	unsigned int left = THREADS;

	memset(&lock, 0, sizeof(lock));
	memset(&both, 0, sizeof(both));
	/* The rounds of places begin again after so many. */
	lock.next = lock.now = begin;
	for (int at = 0; at < XK_LOCK_PLACES; at++)
		*xk_lock_place(&lock, begin + at) = xk_lock_free(begin + at);
	inside = writing = reading = 0;
	last = 0;
	for (current = 0; current < THREADS; current++) {
		states[current] = READY;
		getcontext(&threads[current]);
		threads[current].uc_stack.ss_sp = stacks[current];
		threads[current].uc_stack.ss_size = STACK;
		threads[current].uc_link = &scheduler;
		makecontext(&threads[current], thread, 0);
	}
	for (unsigned long changes = 0; left; changes++) {
		if (changes > MOST)
			fail("it does not go on");
		current = random_below(THREADS);
		/* Others go on for a while before somebody notices. */
		if (states[current] == DEAD && !random_below(40)) {
			break_locks(current);
			left--;
			continue;
		}
		if (states[current] != READY)
			continue;
		/* Not while it counts itself inside. */
		if (mortal && !inside && !writing && !reading && !random_below(400)) {
			states[current] = DEAD;
			died++;
			continue;
		}
		swapcontext(&scheduler, &threads[current]);
		passed++;
		if (states[current] == ENDED)
			left--;
	}
	current = THREADS;
	free_now(&lock);
	free_now(&both.queue);
	for (int at = 0; at < XK_LOCK_READERS; at++) {
		if (both.readers[at])
			fail("somebody reads at the end");
	}
}

int main(int count, char **words)
{
	static const __u64 begins[] = { 0, 5, (1ull << 27) - 20, (1ull << 32) - 9, (1ull << 35) - 30 };
	int rounds = count > 2 ? atoi(words[2]) : 1000;

	seed = count > 1 ? strtoul(words[1], NULL, 0) : 1;
	for (int at = 0; at < rounds; at++) {
		mortal = at % 2;
		run_round(begins[at % 5]);
	}
	printf("%lu changes; %lu taken, %lu at once, %lu given up, %lu died, %lu reads, %lu at once\n",
	       passed, taken, tried, given_up, died, reads, most_readers);
	return 0;
}
