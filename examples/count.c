/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts how often an instruction of the kernel is executed, by the C interface of xk.ko alone.
 *
 *	gcc -Wall -I kernel/xk/uapi -o count examples/count.c
 *	./count vfs_write+4 5		the entry, behind endbr64, for five seconds
 *	./count vfs_write+0x9 5 7	by a jump in place of 7 bytes
 *
 * The number of bytes is the window of the instruction. Only an analysis of the whole image knows
 * it: `xk probe explain WHERE --json` prints it as window.length, if window.lead is 0. Without it,
 * the function tracer or a kprobe is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "xk_probe.h"

static void die(const char *what, const char *why)
{
	fprintf(stderr, "count: %s: %s\n", what, why);
	exit(1);
}

/* The address of a function of vmlinux. Several functions may have the name: the last one counts. */
static unsigned long long find(const char *name)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	unsigned long long address, found = 0;
	char line[512], symbol[256], module[128];

	if (!file)
		die("/proc/kallsyms", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx %*c %255s %127s", &address, symbol, module) == 2 &&
		    !strcmp(symbol, name))
			found = address;
	fclose(file);
	if (!found)
		die(name, "vmlinux has no such function, or /proc/kallsyms hides addresses");
	return found;
}

static int open_device(void)
{
	struct xk_version version;
	int fd = open("/dev/xk", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("/dev/xk", strerror(errno));
	if (ioctl(fd, XK_IOC_VERSION, &version))
		die("/dev/xk", strerror(errno));
	if (version.abi != XK_ABI_VERSION) {
		fprintf(stderr, "count: xk.ko has interface %u, this program %u: compile it again\n",
			version.abi, XK_ABI_VERSION);
		exit(1);
	}
	return fd;
}

static unsigned int attach(int fd, const struct xk_probe_place *place)
{
	/* Without eBPF programs, executions are only counted. */
	struct xk_probe_attach request = {
		.size = sizeof(request),
		.nr_places = 1,
		.places = (unsigned long)place,
		.name = "examples/count.c",
	};

	if (ioctl(fd, XK_IOC_PROBE_ATTACH, &request))
		die("attach", request.error[0] ? request.error : strerror(errno));
	return request.id;
}

int main(int argc, char **argv)
{
	struct xk_probe_place_info info = {};
	struct xk_probe_place place = {};
	struct xk_probe_places places = { .nr = 1, .places = (unsigned long)&info };
	const char *by = "a kprobe";
	char *offset;
	int fd;

	if (argc < 3 || argc > 4)
		die("usage", "count FUNCTION[+OFFSET] SECONDS [WINDOW]");
	offset = strchr(argv[1], '+');
	if (offset)
		*offset++ = '\0';
	place.address = find(argv[1]) + (offset ? strtoull(offset, NULL, 0) : 0);
	place.window = argc == 4 ? atoi(argv[3]) : 0;
	fd = open_device();
	places.id = attach(fd, &place);
	sleep(atoi(argv[2]));
	if (ioctl(fd, XK_IOC_PROBE_PLACES, &places))
		die("places", strerror(errno));
	if (info.flags & XK_PROBE_JUMP)
		by = "a jump";
	else if (info.flags & XK_PROBE_TRACER)
		by = "the function tracer";
	printf("%llu executions, by %s\n", (unsigned long long)info.hits, by);
	/* The end of the descriptor ends the attachment. */
	return close(fd) ? 1 : 0;
}
