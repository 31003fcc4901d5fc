/* SPDX-License-Identifier: Apache-2.0 */
/* Sources that are tracepoints of the kernel: bpf/prog/tracepoint.bpf.c. Names are as perf(1) has
 * them: "sched:sched_process_exec". */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/sampler/source.h"
#include "tracepoint.skel.h"

SOURCE_SKELETON(tracepoint)

/* Where tracefs is, the newer place first. */
static const char *const tracefs[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};

/* A part of the name becomes a part of a path. */
static bool is_word(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((u8)text[i]) && text[i] != '_' && text[i] != '-')
			return false;
	return n > 0;
}

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	const char *colon = strchr(name, ':');
	char path[256];
	bool mounted = false;

	(void)s;
	if (!colon || !is_word(name, (size_t)(colon - name)) ||
	    !is_word(colon + 1, strlen(colon + 1)))
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(tracefs); i++) {
		snprintf(path, sizeof(path), "%s/events", tracefs[i]);
		mounted |= access(path, F_OK) == 0;
		snprintf(path, sizeof(path), "%s/events/%.*s/%s/id", tracefs[i],
			 (int)(colon - name), name, colon + 1);
		if (access(path, R_OK) == 0)
			return 0;
	}
	if (!mounted)
		return diag_set(reterr_diag, -ENOTSUP,
				"tracepoints are not visible here: run as root, and "
				"`mount -t tracefs nodev /sys/kernel/tracing`");
	return diag_set(reterr_diag, -EINVAL,
			"no tracepoint '%s'; ls /sys/kernel/tracing/events/* shows what there is",
			name);
}

static int start(struct source *s, struct diag *reterr_diag)
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
	.open = tracepoint_open,
	.load = tracepoint_load,
	.destroy = tracepoint_destroy,
	.start = start,
};
