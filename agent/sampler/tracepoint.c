/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources that are tracepoints of the kernel: bpf/prog/tracepoint.bpf.c. Names are those of
 * perf(1): "sched:sched_process_exec".
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/str.h"
#include "tracepoint.skel.h"

SOURCE_SKELETON(tracepoint)

/* Whether the text is a word: it becomes part of a path. */
static bool is_word(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((u8)text[i]) && text[i] != '_' && text[i] != '-')
			return false;
	return n > 0;
}

/* Opens a file of the tracepoint `name`, "CATEGORY:NAME". */
static int open_file(const char *name, const char *file)
{
	const char *colon = strchr(name, ':');
	char path[256];

	snprintf(path, sizeof(path), "events/%.*s/%s/%s", (int)(colon - name), name, colon + 1,
		 file);
	return probe_open_tracefs(path, O_RDONLY);
}

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	const char *colon = strchr(name, ':');
	_cleanup_close_ int fd = -1;

	(void)s;
	if (!colon || !is_word(name, (size_t)(colon - name)) ||
	    !is_word(colon + 1, strlen(colon + 1)))
		return -ENOENT;
	fd = open_file(name, "id");
	if (fd >= 0)
		return 0;
	if (fd == -ENOTSUP)
		return diag_set(reterr_diag, -ENOTSUP,
				"tracepoints are not visible here: run as root, and "
				"`mount -t tracefs nodev /sys/kernel/tracing`");
	return diag_set(reterr_diag, -EINVAL,
			"no tracepoint '%s'; ls /sys/kernel/tracing/events/* lists them", name);
}

#define MAX_FORMAT (64 << 10) /* the largest has about 8 KiB */

static int field(const struct source *s, const char *name, struct source_field *ret,
		 struct diag *reterr_diag)
{
	const char *event = s->about.event;
	_cleanup_str_ struct str format = {};
	_cleanup_close_ int fd = -1;
	int r;

	fd = open_file(event, "format");
	r = fd < 0 ? fd : io_read_fd(fd, MAX_FORMAT, &format);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read the format of '%s': %s", event,
				strerror(-r));
	return field_find(str_get(&format), name,
			  strncmp(event, "syscalls:", strlen("syscalls:")) == 0, ret, reterr_diag);
}

static int start_tracepoints(struct source *s, struct diag *reterr_diag)
{
	const char *colon = strchr(s->about.event, ':');
	char category[64];
	struct bpf_link *link;
	int r;

	snprintf(category, sizeof(category), "%.*s", (int)(colon - s->about.event), s->about.event);
	link = bpf_program__attach_tracepoint(s->entry, category, colon + 1);
	if (!link)
		return diag_set(reterr_diag, -errno, "cannot attach to tracepoint '%s': %s",
				s->about.event, strerror(errno));
	r = source_attach(s, -1, -1, link);
	if (r < 0)
		bpf_link__destroy(link);
	return r;
}

const struct source_ops source_tracepoint = {
	.parse = parse,
	.field = field,
	.open = tracepoint_open,
	.load = tracepoint_load,
	.destroy = tracepoint_destroy,
	.start = start_tracepoints,
};
