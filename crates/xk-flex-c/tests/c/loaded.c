/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Loads an extension in this process, and sees its runs end. Arguments: the object, and the places of its endless loop
 * and of its load.
 */
#include "check.h"

#define MOST	(16ull << 20)

static struct xk_flex_ended ended[8];

/* The only run that was ended. */
static struct xk_flex_ended one(__u32 why, const char *function)
{
	CHECK(xk_flex_take_ended(flex, ended, 8) == 1);
	CHECK(ended[0].why == why && !strcmp(ended[0].function, function));
	CHECK(xk_flex_take_ended(flex, ended + 1, 1) == 0);
	return ended[0];
}

static __u64 count_ended(void)
{
	uint64_t count;

	CHECK(!xk_flex_count_ended(flex, &count));
	return count;
}

static void ends(const char *endless, const char *load)
{
	char *base = xk_flex_map(flex), *missing = base + MOST - 8;
	struct xk_flex_ended found;
	struct timespec now;

	CHECK(count_ended() == 0);
	ask(ENDLESS, 0, 0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	found = one(XK_FLEX_DEADLINE, "on_getpgid");
	CHECK(!strcmp(found.place, endless) && found.spent_ns >= 2 * MS && !found.fault && !found.lock);
	CHECK(found.time_ns <= now.tv_sec * SECOND + now.tv_nsec && found.time_ns > found.spent_ns);
	CHECK(!*found.fault_place && !found.is_deadlock && count_ended() == 1);

	/* No page is there. */
	CHECK(xk_flex_is_there(flex, missing, 8) == 0);
	CHECK(ask(LOAD, (__u64)missing, 0));
	found = one(XK_FLEX_FAULT, "on_getpgid");
	CHECK(found.fault == missing && !strcmp(found.fault_place, load));

	struct xk_flex_guard *guard = xk_flex_lock(flex, &(*shared)->lock, SECOND);

	CHECK(guard && !ask(COUNT, 0, 0));
	xk_flex_unlock(guard);
	found = one(XK_FLEX_DEADLINE, "xk_lock");
	CHECK(found.lock == &(*shared)->lock && !found.is_deadlock);
	CHECK(ask(COUNT, 0, 0) && (*shared)->counter == 1);

	CHECK(!xk_flex_set_deadline(flex, XK_FLEX_FOREVER));
	CHECK(!xk_flex_terminate(flex, true));
	ask(ENDLESS, 0, 0);
	one(XK_FLEX_TERMINATE, "on_getpgid");
	CHECK(!xk_flex_terminate(flex, false));
	CHECK(ask(SET, 1, 2) && ask(GET, 1, 0) && answered->value == 2);

	CHECK(!xk_flex_set_deadline(flex, 2 * MS) && count_ended() == 4);
	for (int at = 0; at < 3; at++)
		ask(ENDLESS, 0, 0);
	CHECK(count_ended() == 7);
	CHECK(xk_flex_take_ended(flex, ended, 2) == 2 && xk_flex_take_ended(flex, ended, 8) == 1);
	CHECK(count_ended() == 7);
	FAILS(xk_flex_take_ended(flex, NULL, 1), EINVAL, "ended is NULL");
}

static int is_mapped(void *address)
{
	return !msync(address, 4096, MS_ASYNC);
}

/* A heap lives as long as a lock in it is held. */
static void close_with_lock(void)
{
	struct xk_lock *lock = &(*shared)->lock;
	struct xk_flex_guard *guard = xk_flex_lock(flex, lock, SECOND);
	void *page = (void *)((__u64)lock & ~4095ull);

	CHECK(guard);
	xk_flex_close(flex);
	CHECK(is_mapped(page) && (*(volatile __u64 *)&lock->next) > 0);
	xk_flex_unlock(guard);
	CHECK(!is_mapped(page));
}

int main(int argc, char **argv)
{
	struct xk_flex_options options = { .deadline_ns = 2 * MS, .heap_bytes = MOST, .ready_bytes = 1 << 20 };

	CHECK(argc == 4);
	CHECK((flex = xk_flex_load(argv[1], &options)));
	find_variables();
	call(PREPARE);
	CHECK(answered->runs == 0);
	FAILS(xk_flex_attach(flex, "nowhere"), ENOENT, "nowhere: no such network interface");
	CHECK(!xk_flex_attach(flex, NULL));
	FAILS(xk_flex_attach(flex, NULL), EBUSY, "attached already");
	CHECK(ask(PREPARE, 0, 0) && answered->runs == 1);
	CHECK(usage().most_bytes == MOST && usage().ready_bytes < 4 << 20);
	ends(argv[2], argv[3]);
	close_with_lock();

	/* Its address is free, and its programs are gone. */
	CHECK((flex = xk_flex_load(argv[1], NULL)));
	find_variables();
	call(PREPARE);
	CHECK(answered->runs == 0 && usage().most_bytes == 32 << 20 && usage().ready_bytes >= 4 << 20);
	xk_flex_close(flex);
	printf("loaded: done\n");
	return 0;
}
