// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A target that the kernel itself reports: deep plugs and few requests are good.
 *
 * In: /dev/nullb0 (null_blk, one queue, 1024 tags). Out: on the last line, the largest number of
 * requests that `block:block_unplug` reports for one io_submit() of 512 reads that cannot be merged
 * (BLK_MAX_REQUEST_COUNT decides it), divided by the number of requests in which 4 MiB are read
 * through the page cache (`read_ahead_kb` decides it). It is C, because a window of an emulated guest
 * would spend most of its time in the start of an interpreter.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICE	"/dev/nullb0"
#define READS	512
#define BLOCK	4096
#define STRIDE	(2 * BLOCK)
#define CACHED	(4 << 20)
#define PART	65536

/* A trace of its own, which is gone at the end. */
static char trace[64];

static int opened(const char *path, int flags)
{
	int file = open(path, flags | O_CLOEXEC);

	if (file < 0)
		err(1, "%s", path);
	return file;
}

static void set(const char *name, const char *value)
{
	char path[160];
	int file;

	snprintf(path, sizeof(path), "%s/%s", trace, name);
	file = opened(path, O_WRONLY | O_TRUNC);
	if (write(file, value, strlen(value)) != (ssize_t)strlen(value))
		err(1, "%s: %s", path, value);
	close(file);
}

static void begin(void)
{
	snprintf(trace, sizeof(trace), "/sys/kernel/tracing/instances/xk-target-%d", getpid());
	if (mkdir(trace, 0700))
		err(1, "%s", trace);
	set("tracing_on", "0");
	set("trace_options", "norecord-cmd");
	set("buffer_size_kb", "64");
	/* The name and not the number: that is another one in a namespace, where a service may be. */
	set("events/block/block_unplug/filter", "comm == \"target\"");
	set("events/block/block_unplug/enable", "1");
}

static void end(void)
{
	set("events/block/block_unplug/enable", "0");
	if (rmdir(trace))
		err(1, "%s", trace);
}

/* One io_submit() with all reads; the kernel plugs the queue for its duration. */
static void read_in_one_batch(int device)
{
	static char memory[BLOCK] __attribute__((aligned(BLOCK)));
	static struct iocb requests[READS], *pointers[READS];
	static struct io_event done[READS];
	aio_context_t context = 0;

	for (int n = 0; n < READS; n++) {
		requests[n] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD,
			.aio_fildes = device,
			.aio_buf = (__u64)memory,
			.aio_nbytes = BLOCK,
			.aio_offset = (__s64)n * STRIDE,
		};
		pointers[n] = &requests[n];
	}
	if (syscall(SYS_io_setup, READS, &context))
		err(1, "io_setup");
	if (syscall(SYS_io_submit, context, READS, pointers) != READS)
		err(1, "io_submit");
	if (syscall(SYS_io_getevents, context, READS, READS, done, NULL) != READS)
		err(1, "io_getevents");
	syscall(SYS_io_destroy, context);
	for (int n = 0; n < READS; n++) {
		if (done[n].res != BLOCK)
			errx(1, "a read failed");
	}
}

/* The largest number that an event says: "... block_unplug: [command] number of requests". */
static long deepest(void)
{
	char path[160], line[512];
	long found = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/trace", trace);
	file = fopen(path, "re");
	if (!file)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		char *number = strrchr(line, ' ');
		long depth;

		if (!strstr(line, "block_unplug: ") || !number)
			continue;
		depth = strtol(number, NULL, 10);
		found = depth > found ? depth : found;
	}
	fclose(file);
	if (!found)
		errx(1, "block_unplug reported nothing");
	return found;
}

static long plug(void)
{
	int device = opened(DEVICE, O_RDONLY | O_DIRECT);
	long depth;

	begin();
	set("tracing_on", "1");
	read_in_one_batch(device);
	set("tracing_on", "0");
	depth = deepest();
	end();
	close(device);
	return depth;
}

static long served(void)
{
	FILE *file = fopen("/sys/block/nullb0/stat", "re");
	long number;

	if (!file || fscanf(file, "%ld", &number) != 1)
		err(1, "/sys/block/nullb0/stat");
	fclose(file);
	return number;
}

static long requests(void)
{
	static char part[PART];
	int device = opened(DEVICE, O_RDONLY);
	long before;

	if (posix_fadvise(device, 0, 0, POSIX_FADV_DONTNEED))
		errx(1, "posix_fadvise");
	before = served();
	for (off_t at = 0; at < CACHED; at += PART) {
		if (pread(device, part, PART, at) != PART)
			err(1, DEVICE);
	}
	close(device);
	return served() - before;
}

int main(void)
{
	long depth = plug(), reads = requests();

	printf("plug = %ld\nrequests = %ld\n%f\n", depth, reads, 1000.0 * depth / reads);
	return 0;
}
