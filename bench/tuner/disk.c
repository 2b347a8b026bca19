// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A disk that rotates, for `cargo xtask bench tuner`: what is modelled is the
 * hardware, and nothing of the kernel, whose own nbd driver has this behind it.
 *
 * In: a device and its size, e.g. `disk /dev/nbd0 1024` (MiB). Out: two processes
 * that stay, the disk with its data in memory, and one that the driver has; the
 * device has its size soon after.
 *
 * It does one request after the other, in the order they come; which order that is,
 * and what is one request, is what the kernel's block layer decides. A request of
 * LENGTH bytes takes
 *
 *     LENGTH / RATE                     if it begins where the one before it ended,
 *     GAP / RATE more                   if it begins so many bytes further on: what
 *                                       lies between passes under the head, too,
 *     seek + half a revolution more     otherwise, and where that is less.
 *
 * A seek over the share S of the disk takes SETTLE + STROKE * sqrt(S): the form of
 * Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer,
 * March 1994), for seeks that the arm accelerates half of. The numbers are of no
 * particular disk, but chosen as usual for one of a desktop with 7,200 revolutions
 * per minute: 1 ms from track to track, 8.5 ms on average (the mean of sqrt(S) between
 * two random places is 8/15, so STROKE is 7.5 ms * 15/8), 150 MB/s. A write takes as
 * long as a read, as with the write cache switched off.
 *
 * The process runs before all others (SCHED_FIFO): hardware does not wait for a
 * processor. That data is copied on the guest's processor is what it is not like.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nbd.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND		1e9
#define SETTLE		1.0e6
#define STROKE		14.06e6
#define REVOLUTION	(SECOND * 60 / 7200)
#define RATE		(150e6 / SECOND)
#define BLOCK		4096UL
/* linux/nbd.h has it since 6.11. */
#define ROTATES		(1 << 4)

static char *bytes;
static uint64_t size;

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "disk: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Nanoseconds from the end of the request before, at `head`. */
static double takes(uint64_t head, uint64_t from, uint64_t length)
{
	double gap = (double)from - (double)head, passing = gap / RATE;
	double moving = SETTLE + STROKE * sqrt(fabs(gap) / size) + REVOLUTION / 2;

	return length / RATE + (gap >= 0 && passing < moving ? passing : moving);
}

static void sleep_until(uint64_t moment)
{
	struct timespec time = { .tv_sec = moment / 1000000000, .tv_nsec = moment % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* All of it, or the end: the device was taken away. */
static void receive(int peer, void *to, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t done = read(peer, (char *)to + got, length - got);

		if (done <= 0)
			exit(done != 0);
		got += done;
	}
}

static void send_all(int peer, const void *from, size_t length)
{
	for (size_t sent = 0; sent < length;) {
		ssize_t done = write(peer, (const char *)from + sent, length - sent);

		if (done <= 0)
			exit(1);
		sent += done;
	}
}

/* One request after the other. */
static void serve(int peer)
{
	uint64_t head = 0, free_at = 0;
	struct nbd_request ask;

	for (;;) {
		struct nbd_reply answer = { .magic = htobe32(NBD_REPLY_MAGIC) };
		uint64_t from, length, begin;
		uint32_t type;

		receive(peer, &ask, sizeof(ask));
		type = be32toh(ask.type) & 0xffff;
		from = be64toh(ask.from);
		length = be32toh(ask.len);
		memcpy(&answer.handle, &ask.handle, sizeof(answer.handle));
		if (type == NBD_CMD_DISC)
			exit(0);
		if ((type != NBD_CMD_READ && type != NBD_CMD_WRITE) || length > size || from > size - length) {
			answer.error = htobe32(EINVAL);
			send_all(peer, &answer, sizeof(answer));
			continue;
		}
		begin = now();
		if (begin < free_at)
			begin = free_at;
		if (type == NBD_CMD_WRITE)
			receive(peer, bytes + from, length);
		free_at = begin + (uint64_t)takes(head, from, length);
		head = from + length;
		sleep_until(free_at);
		send_all(peer, &answer, sizeof(answer));
		if (type == NBD_CMD_READ)
			send_all(peer, bytes + from, length);
	}
}

/* The kernel's end; returns when the device is gone. */
static void attach(const char *path, int peer)
{
	int device = open(path, O_RDWR);

	if (device < 0)
		die(path);
	if (ioctl(device, NBD_SET_BLKSIZE, BLOCK) || ioctl(device, NBD_SET_SIZE_BLOCKS, size / BLOCK) ||
	    ioctl(device, NBD_SET_FLAGS, NBD_FLAG_HAS_FLAGS | ROTATES) || ioctl(device, NBD_SET_SOCK, peer) ||
	    ioctl(device, NBD_DO_IT))
		die(path);
}

int main(int count, char **words)
{
	struct sched_param first = { .sched_priority = 50 };
	int ends[2];
	pid_t disk;

	if (count != 3 || atol(words[2]) < 1) {
		fprintf(stderr, "disk: use: disk DEVICE MEGABYTES\n");
		return 1;
	}
	size = (uint64_t)atol(words[2]) << 20;
	bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		die("memory or socket");
	disk = fork();
	if (disk < 0)
		die("fork");
	if (!disk) {
		close(ends[0]);
		if (sched_setscheduler(0, SCHED_FIFO, &first))
			die("SCHED_FIFO");
		serve(ends[1]);
	}
	close(ends[1]);
	if (daemon(0, 1))
		die("daemon");
	attach(words[1], ends[0]);
	return 0;
}
