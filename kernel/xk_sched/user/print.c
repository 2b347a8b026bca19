// SPDX-License-Identifier: GPL-2.0-only
/* Recordings as text. */
#include "user.h"

#include "event/context.h"
#include "model/state.h"

static void die(const char *path, const char *why)
{
	fprintf(stderr, "%s: %s\n", path, why);
	exit(2);
}

static void *read_all(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	char *all = NULL;
	long end = -1;

	if (file && !fseek(file, 0, SEEK_END))
		end = ftell(file);
	if (end >= 0)
		all = malloc(end + 1);
	if (!all || fseek(file, 0, SEEK_SET) || fread(all, 1, end, file) != (size_t)end)
		die(path, strerror(errno));
	fclose(file);
	*size = end;
	return all;
}

const struct xk_sched_recording_head *xk_user_load(const char *path, size_t *nr,
						   const struct xk_sched_record **records)
{
	size_t size;
	const struct xk_sched_recording_head *head = read_all(path, &size);

	if (size < sizeof(*head) || memcmp(head->magic, XK_SCHED_RECORDING_MAGIC, 8) ||
	    head->record_size != sizeof(**records) || (size - sizeof(*head)) % sizeof(**records) ||
	    head->nr_cores > XK_SCHED_RECORDING_CORES)
		die(path, "is no recording of this version");
	*nr = (size - sizeof(*head)) / sizeof(**records);
	*records = (const void *)(head + 1);
	return head;
}

static const char *kind_name(u8 kind)
{
	static const char *const names[] = {
		[XK_RECORD_END] = "end",
		[XK_RECORD_CHANGE] = "change",
		[XK_RECORD_STEAL] = "steal",
		[XK_RECORD_IDLE_CORE] = "idle core",
		[XK_RECORD_PREEMPT] = "preempt",
		[XK_RECORD_JOIN] = "join",
		[XK_RECORD_LEAVE] = "leave",
		[XK_RECORD_OUST] = "taken out of its queue",
		[XK_RECORD_CPUS] = "cpus",
	};

	if (kind == XK_QUEUE_AGAIN)
		return "queued after tick";
	if (kind < XK_RECORD_END)
		return xk_event_name(kind);
	return kind <= XK_RECORD_CPUS ? names[kind] : "invalid";
}

void xk_user_print(FILE *file, const struct xk_sched_record *record)
{
	const bool inside = record->kind >= XK_RECORD_END && record->kind < XK_RECORD_JOIN;

	fprintf(file, "%s%s", inside ? "  " : "", kind_name(record->kind));
	if (record->thread)
		fprintf(file, " thread %u %s", record->thread, xk_state_name(record->state));
	if (record->kind == XK_RECORD_JOIN)
		fprintf(file, " %.16s[%d]", record->comm, record->answer);
	if (record->kind == XK_RECORD_CPUS)
		fprintf(file, " %llx%s", record->allowed, record->answer ? "" : " (all)");
	else
		fprintf(file, " core %d", record->core);
	if (record->queue)
		fprintf(file, " queue %u", record->queue);
	if (record->answer && record->kind < XK_RECORD_JOIN)
		fprintf(file, " answer %d", record->answer);
	if (record->kind < XK_RECORD_END)
		fprintf(file, " ran %llu weight %u allowed %llx online %llx", record->ran,
			record->weight, record->allowed, record->online);
	fputc('\n', file);
}
