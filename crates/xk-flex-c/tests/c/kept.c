/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Uses the extension "one", which is loaded and has no server. The argument says what to do with it. */
#include "check.h"

/* The programs' table, by its pointers, which are those of the programs. */
static void walk(void)
{
	struct xk_item *item, **bucket;
	__u64 seen = 0;

	for (__u64 key = 1; key <= 100; key++)
		CHECK(ask(SET, key, key * key));
	CHECK((*hash)->length == 100);
	for (int at = 0; at < 16; at++) {
		for (item = (*hash)->buckets[at]; item; item = item->next) {
			CHECK(xk_flex_is_there(flex, item, sizeof(*item)) == 1);
			CHECK(item->value == item->key * item->key);
			seen += item->key;
		}
	}
	CHECK(seen == 5050);
	CHECK(xk_hash_find(*hash, 77)->value == 5929 && !xk_hash_find(*hash, 101));

	/* One of user space, which the program finds, and frees. */
	CHECK(!ask(GET, 5000, 0));
	CHECK((item = xk_flex_alloc(flex, sizeof(*item))));
	bucket = xk_hash_bucket(*hash, 5000);
	*item = (struct xk_item){ .next = *bucket, .key = 5000, .value = 123 };
	*bucket = item;
	CHECK(ask(GET, 5000, 0) && answered->value == 123);
	item->value = 124;
	CHECK(ask(GET, 5000, 0) && answered->value == 124);
	__u64 freed = usage().freed;
	CHECK(ask(REMOVE, 5000, 0) && !ask(GET, 5000, 0));
	CHECK(usage().freed == freed + 1 && usage().invalid == 0);
}

/* What a program has allocated is freed here, and allocated again by a program. */
static void gives_back(void)
{
	void *object;

	CHECK(ask(TAKE, 30000, 0));
	object = (void *)answered->value;
	memset(object, 0x5a, 30000);
	CHECK(!xk_flex_free(flex, object));
	CHECK(ask(TAKE, 30000, 0));
	CHECK(answered->value == (__u64)object);
	CHECK(!xk_flex_free(flex, object));
	CHECK((object = xk_flex_alloc(flex, 30000)) == (void *)answered->value);
	CHECK(!xk_flex_free(flex, object));
	FAILS(xk_flex_free(flex, (char *)object + 16), EFAULT, "no object of the heap begins there");
	FAILS(xk_flex_free(flex, (void *)16), EFAULT, "no object");
	CHECK(!xk_flex_free(flex, NULL));
	FAILS_NULL(xk_flex_alloc(flex, 1ull << 40), ENOMEM, "no memory");
}

static void *count_once(void *unused)
{
	call(COUNT);
	return unused;
}

/* A program waits for the thread that has the lock. Whether it had it then. */
static int program_waits(struct xk_lock *lock)
{
	__u64 counter = (*shared)->counter, runs = answered->runs;
	struct xk_flex_guard *guard;
	pthread_t thread;
	int done;

	CHECK((guard = xk_flex_lock(flex, lock, SECOND)));
	CHECK(!pthread_create(&thread, NULL, count_once, NULL));
	WAIT_FOR(answered->runs == runs + 1);
	for (int at = 0; at < 5; at++)
		pause_shortly();
	CHECK((*shared)->counter == counter && !answered->done);
	FAILS_NULL(xk_flex_trylock(flex, lock), EBUSY, "somebody else has the lock");
	FAILS_NULL(xk_flex_lock(flex, lock, 20 * MS), ETIMEDOUT, "somebody else has the lock");
	CHECK((*shared)->counter == counter && !answered->done);
	xk_flex_unlock(guard);
	CHECK(!pthread_join(thread, NULL));
	done = answered->done;
	CHECK((*shared)->counter == counter + done);
	return done;
}

static void locks(void)
{
	struct xk_lock *lock = &(*shared)->lock;
	struct xk_rwlock *both = &(*shared)->both;
	struct xk_flex_guard *guard, *other;

	CHECK(!xk_flex_set_deadline(flex, XK_FLEX_FOREVER));
	/* On a slow host, the kernel's limit of turns may come first. */
	for (int at = 0; !program_waits(lock); at++)
		CHECK(at < 20);
	CHECK((guard = xk_flex_trylock(flex, lock)));
	xk_flex_unlock(guard);

	CHECK((guard = xk_flex_read_lock(flex, both, SECOND)));
	CHECK((other = xk_flex_read_lock(flex, both, SECOND)));
	FAILS_NULL(xk_flex_write_lock(flex, both, 20 * MS), ETIMEDOUT, "somebody else");
	xk_flex_unlock(other);
	xk_flex_unlock(guard);
	CHECK((guard = xk_flex_write_lock(flex, both, SECOND)));
	FAILS_NULL(xk_flex_read_lock(flex, both, 20 * MS), ETIMEDOUT, "somebody else");
	xk_flex_unlock(guard);
	CHECK(!xk_flex_set_deadline(flex, 0));
}

/* Dies with the lock. */
static void die(void)
{
	CHECK(xk_flex_lock(flex, &(*shared)->lock, SECOND));
	raise(SIGKILL);
}

static void note(const struct xk_flex_broken *broken, void *context)
{
	*(struct xk_flex_broken *)context = *broken;
}

static void dead(void)
{
	struct xk_lock *lock = &(*shared)->lock;
	struct xk_flex_broken broken = { 0 };
	struct xk_flex_guard *guard;
	pid_t child = start("kept", "die");
	int status = end_of(child);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	FAILS_NULL(xk_flex_trylock(flex, lock), EBUSY, "somebody else");
	/* The program waits for it as well, and is ended. */
	CHECK(!xk_flex_set_deadline(flex, 5 * MS));
	CHECK(!ask(COUNT, 0, 0));
	CHECK(xk_flex_break_dead_locks(flex, note, &broken) == 1);
	CHECK(broken.lock == lock && broken.thread == (__u32)child && broken.held);
	CHECK(xk_flex_break_dead_locks(flex, NULL, NULL) == 0);
	CHECK((guard = xk_flex_trylock(flex, lock)));
	CHECK(xk_flex_break_dead_locks(flex, note, &broken) == 0);
	xk_flex_unlock(guard);
	CHECK(ask(COUNT, 0, 0));
	CHECK(!xk_flex_set_deadline(flex, 0));
}

/* Gives pages until it is killed. */
static void serve(void)
{
	for (;;)
		CHECK(xk_flex_serve(flex, SECOND / 10) >= 0);
}

/* Somebody else serves it. */
static void busy(void)
{
	FAILS(xk_flex_serve(flex, 0), EBUSY, "one: another process serves it");
}

/* The heap grows only while somebody serves it. */
static void pages(void)
{
	struct pollfd wanted = { .fd = xk_flex_wanted(flex), .events = POLLIN };
	__u64 ready, last;
	struct xk_flex_usage before;
	pid_t child;

	CHECK(wanted.fd >= 0);
	CHECK(xk_flex_serve(flex, 0) >= 0);
	CHECK(poll(&wanted, 1, 0) == 0);
	ready = usage().ready_bytes;
	do {
		ask(TAKE, 60000, 0);
	} while (answered->done);
	CHECK(usage().ready_bytes == ready && usage().refused > 0);
	CHECK(poll(&wanted, 1, 0) == 1);
	CHECK(xk_flex_serve(flex, 0) == 1);
	CHECK(usage().ready_bytes > ready && poll(&wanted, 1, 0) == 0);
	CHECK(ask(TAKE, 60000, 0));

	/* Of another process, too. */
	ready = usage().ready_bytes;
	child = start("kept", "serve");
	WAIT_FOR(ask(TAKE, 60000, 0) && answered->value >= (__u64)xk_flex_map(flex) + ready);
	last = answered->value;
	CHECK(xk_flex_is_there(flex, (void *)last, 60000) == 1);
	CHECK(!xk_flex_write(flex, (void *)last, 77) && ask(LOAD, last, 0) && answered->value == 77);
	before = usage();
	CHECK(before.ready_bytes > ready && before.ready_bytes <= before.most_bytes);
	CHECK(!kill(child, SIGKILL));
	end_of(child);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	static const struct {
		const char *name;
		void (*function)(void);
	} all[] = {
		{ "walk", walk }, { "gives_back", gives_back }, { "locks", locks }, { "die", die },
		{ "dead", dead }, { "serve", serve }, { "busy", busy }, { "pages", pages },
	};

	flex = xk_flex_open("one");
	find_variables();
	CHECK(xk_flex_map(flex));
	for (size_t at = 0; at < sizeof(all) / sizeof(all[0]); at++) {
		if (!strcmp(all[at].name, what)) {
			all[at].function();
			xk_flex_close(flex);
			printf("%s: done\n", what);
			return 0;
		}
	}
	return 2;
}
