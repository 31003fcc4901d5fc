/* SPDX-License-Identifier: Apache-2.0 */
/* Tracepoints as tracefs shows them: their list, ids, and the fields of their records. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/tracer/internal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/str.h"

#define MAX_FORMAT (64u << 10) /* the largest has about 8 KiB */
#define MAX_LINE 512

static int not_visible(struct diag *d)
{
	return diag_set(d, -ENOTSUP,
			"tracepoints are not visible here: run as root, and "
			"`mount -t tracefs nodev /sys/kernel/tracing`");
}

/* Whether the text can be a part of a path. */
static bool is_word(const char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((u8)text[i]) && text[i] != '_' && text[i] != '-')
			return false;
	return n > 0 && n < 100;
}

static int open_event(const char *category, const char *name, const char *file, struct diag *d)
{
	char path[256];
	int fd = -ENOENT;

	if (is_word(category) && is_word(name)) {
		snprintf(path, sizeof(path), "events/%s/%s/%s", category, name, file);
		fd = probe_open_tracefs(path, O_RDONLY);
	}
	if (fd == -ENOTSUP)
		return not_visible(d);
	if (fd < 0)
		return diag_set(d, fd,
				"no tracepoint '%s:%s'; culprit trace -l 'tracepoint:*' lists "
				"them",
				category, name);
	return fd;
}

int tracer_events_list(int (*fn)(void *arg, const char *category, const char *name), void *arg,
		       struct diag *d)
{
	int fd = probe_open_tracefs("available_events", O_RDONLY), r = 0;
	_cleanup_fclose_ FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[MAX_LINE];

	if (fd < 0)
		return not_visible(d);
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0 && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		line[strcspn(line, "\n")] = '\0';
		if (!colon)
			continue;
		*colon = '\0';
		r = fn(arg, line, colon + 1);
	}
	return r;
}

int tracer_event_id(const char *category, const char *name, u64 *ret, struct diag *d)
{
	_cleanup_close_ int fd = open_event(category, name, "id", d);
	_cleanup_str_ struct str text = {};
	int r;

	if (fd < 0)
		return fd;
	r = io_read_fd(fd, MAX_FORMAT, &text);
	if (r == 0 && text.n)
		text.data[strcspn(text.data, "\n")] = '\0';
	return r < 0 ? r : str_to_u64(str_get(&text), 10, ret);
}

static char *copy(struct arena *a, const char *text, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	if (p) {
		memcpy(p, text, n);
		p[n] = '\0';
	}
	return p;
}

/* The name is the last word, before the length of an array; the length belongs to the type. */
static int declare(const char *text, size_t n, struct arena *a, struct trace_field *f)
{
	const char *end = text + n, *bracket = memchr(text, '[', n), *name;
	char type[MAX_LINE];

	/* "__data_loc char[] name": these brackets are in front of the name. */
	if (bracket && end[-1] == ']')
		end = bracket;
	for (name = end; name > text && (isalnum((u8)name[-1]) || name[-1] == '_');)
		name--;
	if (name == end || name == text)
		return -EINVAL;
	f->is_data_loc = n > 11 && strncmp(text, "__data_loc ", 11) == 0;
	f->name = copy(a, name, (size_t)(end - name));
	while (name > text && name[-1] == ' ')
		name--;
	snprintf(type, sizeof(type), "%.*s%.*s", (int)(name - text), text, (int)(text + n - end),
		 end);
	f->type = copy(a, type, strlen(type));
	return f->name && f->type ? 0 : -ENOMEM;
}

/* "field:TYPE NAME[N];	offset:8;	size:4;	signed:0;" Without `ret`: only whether it is one. */
static int parse_line(const char *line, struct arena *a, struct trace_field *ret)
{
	const char *begin = strstr(line, "field:"), *end = begin ? strchr(begin, ';') : NULL;
	u32 offset, bytes, is_signed;

	if (!end ||
	    sscanf(end, "; offset:%u; size:%u; signed:%u", &offset, &bytes, &is_signed) != 3)
		return -ENOENT;
	begin += strlen("field:");
	*ret = (struct trace_field){.offset = offset, .bytes = bytes, .is_signed = is_signed};
	return declare(begin, (size_t)(end - begin), a, ret);
}

int tracer_fields_parse(const char *format, struct arena *a, struct trace_field **ret, u32 *ret_n)
{
	struct trace_field *fields;
	u32 max = 0, n = 0;
	int r;

	for (const char *at = format; (at = strstr(at, "field:")); at++)
		max++;
	fields = arena_calloc(a, MAX(max, 1u), sizeof(*fields));
	if (!fields)
		return -ENOMEM;
	for (const char *at = format; *at && n < max;) {
		size_t length = strcspn(at, "\n");
		char line[MAX_LINE];

		snprintf(line, sizeof(line), "%.*s", (int)MIN(length, sizeof(line) - 1), at);
		r = parse_line(line, a, &fields[n]);
		if (r == -ENOMEM)
			return r;
		n += r == 0;
		at += length + (at[length] == '\n');
	}
	*ret = fields;
	*ret_n = n;
	return 0;
}

int tracer_event_fields(const char *category, const char *name, struct arena *a,
			struct trace_field **ret, u32 *ret_n, struct diag *d)
{
	_cleanup_close_ int fd = open_event(category, name, "format", d);
	_cleanup_str_ struct str text = {};
	int r;

	if (fd < 0)
		return fd;
	r = io_read_fd(fd, MAX_FORMAT, &text);
	return r < 0 ? r : tracer_fields_parse(str_get(&text), a, ret, ret_n);
}
