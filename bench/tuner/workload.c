// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The workloads of `cargo xtask bench tuner` that are no programs of their own.
 *
 * In: a workload and its arguments. Out: one line, how much was done per second
 * of the guest's clock. Linked statically, and run from memory: where a second is
 * a thousand million instructions, a page of a program that has to come from the
 * host would count as time of the workload.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static void die(const char *what)
{
	fprintf(stderr, "workload: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (*end || !value) {
		fprintf(stderr, "workload: '%s' is no number above 0\n", text);
		exit(1);
	}
	return value;
}

static int open_or_die(const char *path, int flags)
{
	int file = open(path, flags);

	if (file < 0)
		die(path);
	return file;
}

/* What was read before is read from the disk again. */
static void drop(const char *path)
{
	int file = open_or_die(path, O_RDONLY);

	if (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED))
		die("posix_fadvise");
	close(file);
}

/* Seconds until so many children have done their part. */
static double together(unsigned long children, void (*part)(unsigned long, char **), char **words)
{
	double start = now();
	unsigned long child;
	int status;

	for (child = 0; child < children; child++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			part(child, words);
			_exit(0);
		}
	}
	for (child = 0; child < children; child++) {
		if (wait(&status) < 0)
			die("wait");
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "workload: a child failed (%d)\n", status);
			exit(1);
		}
	}
	return now() - start;
}

/* The file of each child. */
static void drop_all(const char *folder, unsigned long children)
{
	unsigned long child;
	char path[256];

	for (child = 0; child < children; child++) {
		snprintf(path, sizeof(path), "%s/%lu/text", folder, child);
		drop(path);
	}
}

/* skip FOLDER PROCESSES KILOBYTES: read a page, skip a page (EOS, section 7.1). */
static void skip_part(unsigned long child, char **words)
{
	unsigned long offset, size = number(words[2]) << 10;
	char path[256], page[PAGE];
	int file;

	snprintf(path, sizeof(path), "%s/%lu/text", words[0], child);
	file = open_or_die(path, O_RDONLY);
	for (offset = 0; offset < size; offset += 2 * PAGE)
		if (pread(file, page, PAGE, offset) != PAGE)
			die(path);
}

static double skip(char **words)
{
	unsigned long children = number(words[1]);

	drop_all(words[0], children);
	return children * (number(words[2]) << 10) / PAGE / 2 / together(children, skip_part, words);
}

/* grep FOLDER PROCESSES GREP: each looks in a text of its own for what is not there. */
static void grep_part(unsigned long child, char **words)
{
	char path[256];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/%lu/text", words[0], child);
	pid = fork();
	if (!pid) {
		setenv("LC_ALL", "C", 1);
		execl(words[2], "grep", "-q", "no such word", path, (char *)NULL);
		_exit(2);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
		die("grep");
}

static double grep(char **words)
{
	unsigned long children = number(words[1]);

	drop_all(words[0], children);
	return children / together(children, grep_part, words);
}

/* stream DEVICE PROCESSES KILOBYTES APART: 64 KiB after 64 KiB, around the page cache, so many MiB apart. */
static void stream_part(unsigned long child, char **words)
{
	unsigned long offset, size = number(words[2]) << 10, piece = 65536;
	unsigned long start = child * (number(words[3]) << 20);
	int file = open_or_die(words[0], O_RDONLY | O_DIRECT);
	void *buffer;

	if (posix_memalign(&buffer, PAGE, piece))
		die("memory");
	for (offset = 0; offset < size; offset += piece)
		if (pread(file, buffer, piece, start + offset) != (ssize_t)piece)
			die(words[0]);
}

static double stream(char **words)
{
	unsigned long children = number(words[1]);

	return children * (number(words[2]) << 10) / 1e6 / together(children, stream_part, words);
}

/* pages SIZE CONNECTIONS: short answers of a server, each over a connection of its own. */
static char **pages_words;
static int listener;

static void *serve(void *unused)
{
	unsigned long size = number(pages_words[0]), left = number(pages_words[1]), sent;
	char *answer = calloc(1, size), ask;

	while (answer && left--) {
		int peer = accept(listener, NULL, NULL);

		if (peer < 0 || read(peer, &ask, 1) != 1)
			die("server");
		for (sent = 0; sent < size;) {
			ssize_t done = write(peer, answer + sent, size - sent);

			if (done < 0)
				die("write");
			sent += done;
		}
		close(peer);
	}
	return unused;
}

static double pages(char **words)
{
	unsigned long size = number(words[0]), connections = number(words[1]), i, got;
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	static char buffer[65536];
	pthread_t server;
	double start;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, length) || listen(listener, 16) ||
	    getsockname(listener, (void *)&address, &length))
		die("listen");
	pages_words = words;
	start = now();
	if (pthread_create(&server, NULL, serve, NULL))
		die("pthread_create");
	for (i = 0; i < connections; i++) {
		int peer = socket(AF_INET, SOCK_STREAM, 0);
		ssize_t done;

		if (connect(peer, (void *)&address, length) || write(peer, "?", 1) != 1)
			die("connect");
		for (got = 0; (done = read(peer, buffer, sizeof(buffer))) > 0; got += done)
			;
		if (got != size)
			die("answer");
		close(peer);
	}
	pthread_join(server, NULL);
	return connections / (now() - start);
}

static void *map(size_t size, int protection, int flags, int file)
{
	void *memory = mmap(NULL, size, protection, flags, file, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

/* Half of each page is noise, the other half is not: it can be compressed to a half. */
static void fill(char *page, unsigned long *noise)
{
	size_t i;

	for (i = 0; i < PAGE / 2; i += sizeof(*noise)) {
		*noise ^= *noise << 13;
		*noise ^= *noise >> 7;
		*noise ^= *noise << 17;
		memcpy(page + i, noise, sizeof(*noise));
	}
}

/*
 * sweep GROUP MEGABYTES ROUNDS: one page after the other, again and again, in a
 * control group that has less memory; pages per second once it is all filled.
 */
static double sweep(char **words)
{
	unsigned long size = number(words[1]) << 20, rounds = number(words[2]), round, at, sum = 0;
	unsigned long noise = 88172645463325252UL;
	int group = open_or_die(words[0], O_WRONLY);
	char *memory = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	double start;

	if (write(group, "0", 1) != 1)
		die(words[0]);
	for (at = 0; at < size; at += PAGE)
		fill(memory + at, &noise);
	start = now();
	for (round = 0; round < rounds; round++)
		for (at = 0; at < size; at += PAGE)
			sum += ++memory[at];
	if (!sum)
		die("sweep");
	return rounds * size / PAGE / (now() - start);
}

/*
 * map FILE KILOBYTES THREADS ROUNDS: threads that map a file and memory, touch
 * every eighth page of the one and each of the other, and unmap both.
 */
struct mapper {
	pthread_t thread;
	char **words;
	unsigned long sum;
};

static void *mapper(void *arg)
{
	struct mapper *mapper = arg;
	unsigned long size = number(mapper->words[1]) << 10, rounds = number(mapper->words[3]), at;
	int file = open_or_die(mapper->words[0], O_RDONLY);

	while (rounds--) {
		char *text = map(size, PROT_READ, MAP_SHARED, file);
		char *memory = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		for (at = 0; at < size; at += 8 * PAGE)
			mapper->sum += text[at];
		for (at = 0; at < size; at += PAGE)
			memory[at] = 1;
		munmap(text, size);
		munmap(memory, size);
	}
	close(file);
	return NULL;
}

static double map_threads(char **words)
{
	unsigned long threads = number(words[2]), rounds = number(words[3]), i;
	struct mapper *mappers = calloc(threads, sizeof(*mappers));
	double start = now();

	for (i = 0; mappers && i < threads; i++) {
		mappers[i].words = words;
		if (pthread_create(&mappers[i].thread, NULL, mapper, &mappers[i]))
			die("pthread_create");
	}
	for (i = 0; mappers && i < threads; i++)
		pthread_join(mappers[i].thread, NULL);
	if (!mappers)
		die("memory");
	return threads * rounds / (now() - start);
}

static const struct {
	const char *name;
	int words;
	double (*run)(char **words);
} workloads[] = {
	{ "skip", 3, skip },
	{ "grep", 3, grep },
	{ "stream", 4, stream },
	{ "pages", 2, pages },
	{ "sweep", 3, sweep },
	{ "map", 4, map_threads },
};

int main(int count, char **words)
{
	size_t i;

	for (i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
		if (count > 1 && !strcmp(words[1], workloads[i].name) && count == 2 + workloads[i].words) {
			printf("%.6f\n", workloads[i].run(words + 2));
			return 0;
		}
	fprintf(stderr, "workload: unknown workload, or not its arguments: see workload.c\n");
	return 1;
}
