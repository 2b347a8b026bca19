/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What fails, and how. The argument is an object whose heap is where that of "one" is. */
#include "check.h"

static void names(void)
{
	uint64_t number;

	CHECK(!*xk_flex_error());
	FAILS_NULL(xk_flex_open("two"), ENOENT, "two: no extension has this name: loaded are one");
	FAILS_NULL(xk_flex_open("../one"), ENOENT, "no extension has this name");
	FAILS_NULL(xk_flex_open("\xff"), EINVAL, "no text in UTF-8");
	FAILS_NULL(xk_flex_load("/nowhere/at/all.o", NULL), ENOENT, "/nowhere/at/all.o");
	FAILS_NULL(xk_flex_load("/proc/self/exe", NULL), ENOEXEC, "not an eBPF object");
	FAILS_NULL(xk_flex_variable(flex, "other", 8), ENOENT, "other: no such variable: there are");
	CHECK(strstr(xk_flex_error(), "answered"));
	FAILS_NULL(xk_flex_variable(flex, "shared", 4), EINVAL, "shared has 8 bytes, and not 4");
	CHECK(*(const __u32 *)xk_flex_variable(flex, "version", 4) == 7);
	FAILS(xk_flex_attach(flex, NULL), EOPNOTSUPP, "attached already");
	FAILS(xk_flex_take_ended(flex, (void *)&number, 1), EOPNOTSUPP, "takes its ended runs");
	CHECK(!xk_flex_count_ended(flex, &number));
}

static void addresses(void)
{
	char *base = xk_flex_map(flex);
	__u64 *word = &(*shared)->counter, end = usage().ready_bytes;
	uint64_t value;

	CHECK(base && xk_flex_map(flex) == base && (char *)*shared > base);
	CHECK(!xk_flex_write(flex, word, 5) && !xk_flex_read(flex, word, &value) && value == 5);
	CHECK(xk_flex_is_there(flex, word, 8) == 1 && xk_flex_is_there(flex, base, 8) == 0);
	CHECK(xk_flex_is_there(flex, base + end - 8, 8) == 1 && xk_flex_is_there(flex, base + end - 8, 9) == 0);
	CHECK(xk_flex_is_there(flex, word, SIZE_MAX) == 0 && xk_flex_is_there(flex, NULL, 8) == 0);
	CHECK(xk_flex_is_there(flex, &value, 8) == 0);
	void *bad[] = { NULL, base, (char *)word + 1, base + end, base - 8, &value, (void *)-8ull };

	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
		FAILS(xk_flex_read(flex, bad[at], &value), EFAULT, "no word of the heap is there");
		FAILS(xk_flex_write(flex, bad[at], 7), EFAULT, "no word");
		if (!bad[at])
			continue;
		FAILS_NULL(xk_flex_lock(flex, bad[at], 0), EFAULT, "no lock of the heap can be there");
		FAILS_NULL(xk_flex_trylock(flex, bad[at]), EFAULT, "no lock");
		FAILS_NULL(xk_flex_read_lock(flex, bad[at], 0), EFAULT, "no lock");
		FAILS_NULL(xk_flex_write_lock(flex, bad[at], 0), EFAULT, "no lock");
		FAILS(xk_flex_free(flex, bad[at]), EFAULT, "no object");
	}
	CHECK(value == 5);
}

#define IS_NULL(call, argument)		FAILS(call, EINVAL, argument " is NULL")
#define IS_NULL_NULL(call, argument)	FAILS_NULL(call, EINVAL, argument " is NULL")

static void nulls(void)
{
	struct xk_flex_ended ended;
	struct xk_flex_usage found;
	uint64_t value;
	void *word = &(*shared)->counter;

	IS_NULL_NULL(xk_flex_open(NULL), "name");
	IS_NULL_NULL(xk_flex_load(NULL, NULL), "path");
	IS_NULL(xk_flex_attach(NULL, "lo"), "extension");
	xk_flex_close(NULL);
	IS_NULL_NULL(xk_flex_variable(NULL, "hash", 8), "extension");
	IS_NULL_NULL(xk_flex_variable(flex, NULL, 8), "name");
	IS_NULL(xk_flex_set_deadline(NULL, 0), "extension");
	IS_NULL(xk_flex_terminate(NULL, true), "extension");
	IS_NULL_NULL(xk_flex_map(NULL), "extension");
	IS_NULL(xk_flex_is_there(NULL, word, 8), "extension");
	IS_NULL(xk_flex_read(NULL, word, &value), "extension");
	IS_NULL(xk_flex_read(flex, word, NULL), "value");
	IS_NULL(xk_flex_write(NULL, word, 0), "extension");
	IS_NULL_NULL(xk_flex_alloc(NULL, 8), "extension");
	IS_NULL(xk_flex_free(NULL, word), "extension");
	IS_NULL(xk_flex_usage(NULL, &found), "extension");
	IS_NULL(xk_flex_usage(flex, NULL), "usage");
	IS_NULL(xk_flex_serve(NULL, 0), "extension");
	IS_NULL(xk_flex_wanted(NULL), "extension");
	IS_NULL_NULL(xk_flex_lock(NULL, word, 0), "extension");
	IS_NULL_NULL(xk_flex_lock(flex, NULL, 0), "lock");
	IS_NULL_NULL(xk_flex_trylock(flex, NULL), "lock");
	IS_NULL_NULL(xk_flex_read_lock(flex, NULL, 0), "lock");
	IS_NULL_NULL(xk_flex_write_lock(flex, NULL, 0), "lock");
	xk_flex_unlock(NULL);
	IS_NULL(xk_flex_break_dead_locks(NULL, NULL, NULL), "extension");
	IS_NULL(xk_flex_take_ended(NULL, &ended, 1), "extension");
	IS_NULL(xk_flex_count_ended(NULL, &value), "extension");
	IS_NULL(xk_flex_count_ended(flex, NULL), "count");
	CHECK(!strcmp(xk_flex_why(XK_FLEX_DEADLINE), "its deadline"));
	CHECK(!strcmp(xk_flex_why(99), "an unknown reason"));
}

static void *has_no_message(void *unused)
{
	CHECK(!*xk_flex_error());
	return unused;
}

/* Each thread has its own message. */
static void threads(void)
{
	pthread_t thread;

	CHECK(*xk_flex_error());
	CHECK(!pthread_create(&thread, NULL, has_no_message, NULL));
	CHECK(!pthread_join(thread, NULL));
}

/* Something else is where the heap must be. */
static void taken(const char *object)
{
	void *base = xk_flex_map(flex), *other;

	FAILS_NULL(xk_flex_load(object, NULL), EADDRINUSE, "define another XK_HEAP_ADDRESS");
	xk_flex_close(flex);
	CHECK((other = mmap(base, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)) == base);
	CHECK((flex = xk_flex_open("one")));
	FAILS_NULL(xk_flex_map(flex), EADDRINUSE, "something is mapped at its address");
	FAILS_NULL(xk_flex_load(object, NULL), EADDRINUSE, "something is mapped at its address");
	CHECK(!munmap(other, 4096));
	CHECK(xk_flex_map(flex) == base);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	flex = xk_flex_open("one");
	find_variables();
	names();
	addresses();
	nulls();
	threads();
	taken(argv[1]);
	xk_flex_close(flex);
	printf("wrong: done\n");
	return 0;
}
