// SPDX-License-Identifier: GPL-2.0-only
/*
 * A policy in user space: replays a recording of `xk sched record`, prints it, or lets the policy
 * schedule random threads of a made-up machine. `gdb --args PROGRAM replay FILE` debugs it.
 */
#include "user.h"

static const char usage[] =
	"usage: %s replay FILE [PARAMETER=VALUE..]\n"
	"       %s print FILE\n"
	"       %s fuzz SEED STEPS [--record FILE] [PARAMETER=VALUE..]\n";

#define MAX_PARAMETERS 16

static struct {
	const char *name;
	const char *type;
	void *variable;
} parameters[MAX_PARAMETERS];
static unsigned int nr_parameters;

void xk_user_parameter(const char *name, const char *type, void *variable)
{
	if (nr_parameters == MAX_PARAMETERS)
		abort();
	parameters[nr_parameters].name = name;
	parameters[nr_parameters].type = type;
	parameters[nr_parameters++].variable = variable;
}

static bool set(unsigned int index, const char *value)
{
	const char *type = parameters[index].type;
	void *variable = parameters[index].variable;

	if (!strcmp(type, "bool"))
		*(bool *)variable = strchr("1yY", *value);
	else if (!strcmp(type, "charp"))
		*(const char **)variable = value;
	else if (!strcmp(type, "int") || !strcmp(type, "uint"))
		*(unsigned int *)variable = strtoul(value, NULL, 0);
	else if (!strcmp(type, "long") || !strcmp(type, "ulong"))
		*(unsigned long *)variable = strtoul(value, NULL, 0);
	else
		return false;
	return true;
}

static bool set_parameter(const char *text)
{
	const char *value = strchr(text, '=');
	unsigned int i;

	for (i = 0; value && i < nr_parameters; i++)
		if (strlen(parameters[i].name) == (size_t)(value - text) &&
		    !strncmp(parameters[i].name, text, value - text))
			return set(i, value + 1);
	return false;
}

/* What is allocated lives as long as the program. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static int print(const char *path)
{
	const struct xk_sched_record *records;
	size_t nr, i;
	const struct xk_sched_recording_head *head = xk_user_load(path, &nr, &records);

	printf("policy %s, %u cores, Linux %s\n", head->policy, head->nr_cores, head->release);
	for (i = 0; i < nr; i++)
		xk_user_print(stdout, &records[i]);
	return 0;
}

int main(int argc, char **argv)
{
	struct xk_user_fuzz fuzz = {};
	bool is_fuzz = argc >= 4 && !strcmp(argv[1], "fuzz");
	int next = is_fuzz ? 4 : 3;

	if (argc == 3 && !strcmp(argv[1], "print"))
		return print(argv[2]);
	if (is_fuzz && next + 1 < argc && !strcmp(argv[next], "--record")) {
		fuzz.record = argv[next + 1];
		next += 2;
	}
	for (; next < argc; next++)
		if (!set_parameter(argv[next]))
			goto usage;
	if (argc >= 3 && !strcmp(argv[1], "replay"))
		return xk_user_replay(argv[2]);
	if (is_fuzz) {
		fuzz.seed = strtoull(argv[2], NULL, 0);
		fuzz.steps = strtoull(argv[3], NULL, 0);
		return xk_user_fuzz(&fuzz);
	}
usage:
	fprintf(stderr, usage, argv[0], argv[0], argv[0]);
	return 2;
}
