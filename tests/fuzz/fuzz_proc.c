/* SPDX-License-Identifier: Apache-2.0 */
/* Files of /proc. The first byte chooses the parser; what it accepts must be within its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proc/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_maps(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *line = malloc(n + 1);
	struct proc_mapping m;

	if (!line)
		return;
	memcpy(line, data, n);
	if (proc_maps_parse_line(line, n, &m) < 0)
		return;
	if (m.start >= m.end || m.path < line || m.path + strlen(m.path) > line + n)
		abort();
}

static void fuzz_memory(const char *text, size_t n)
{
	_cleanup_free_ char *copy = strndup(text, n);
	struct proc_memory_state state = {};
	struct proc_memory m = {};

	for (char *line = copy, *end; line && (end = strchr(line, '\n')); line = end + 1) {
		if (proc_memory_line(&state, line, (size_t)(end - line), &m) && m.start >= m.end)
			abort();
	}
}

static int ignore_cpu(void *arg, u32 cpu)
{
	if (cpu >= 1024)
		abort();
	return ++*(u32 *)arg > 100000;
}

static void fuzz_owner(const char *text, size_t n)
{
	_cleanup_free_ char *path = strndup(text, n);
	struct proc_cgroup_owner o;

	if (!path)
		return;
	proc_cgroup_describe(path, &o);
	if (strlen(o.container_id) > 64 || strlen(o.unit) > 127 ||
	    (o.pod_uid[0] && strlen(o.pod_uid) != 36))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_str_ struct str path = {};
	struct proc_stat stat = {};
	struct proc_status status;
	const char *text = (const char *)data + 1;
	u32 n = 0;

	if (!size)
		return 0;
	switch (data[0]) {
	case 'm':
		fuzz_maps(data + 1, size - 1);
		break;
	case 's':
		if (proc_stat_parse(text, size - 1, &stat) == 0 &&
		    strnlen(stat.comm, sizeof(stat.comm)) == sizeof(stat.comm))
			abort();
		break;
	case 't':
		(void)proc_status_parse(text, size - 1, &status);
		break;
	case 'g':
		if (proc_cgroup_parse(text, size - 1, &path) == 0 && str_get(&path)[0] != '/')
			abort();
		(void)proc_cgroup_unified_parse(text, size - 1, &path);
		break;
	case 'o':
		fuzz_owner(text, size - 1);
		break;
	case 'r':
		fuzz_memory(text, size - 1);
		break;
	case 'e': {
		static const char *const names[] = {"A", "OTEL_SERVICE_NAME"};
		struct str values[2] = {};

		proc_environ_parse(text, size - 1, names, 2, values);
		str_deinit(&values[0]);
		str_deinit(&values[1]);
		break;
	}
	case 'c':
		(void)proc_cpulist_parse(text, size - 1, 1024, ignore_cpu, &n);
		break;
	}
	return 0;
}
