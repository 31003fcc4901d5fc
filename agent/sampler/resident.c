/* SPDX-License-Identifier: Apache-2.0 */
/* Page faults of pages that are followed: the user half of bpf/prog/resident.bpf.c. */
#include <errno.h>
#include <string.h>

#include "agent/sampler/source.h"
#include "base/log.h"
#include "resident.skel.h"

#ifdef __x86_64__
#define MREMAP "__x64_sys_mremap"
#else
#define MREMAP "__arm64_sys_mremap"
#endif

SOURCE_SKELETON(resident)

static int open_resident(struct source *s)
{
	struct resident_bpf *skeleton;
	int r = resident_open(s);

	if (r < 0)
		return r;
	skeleton = s->skeleton;
	source_follow_faults(s, skeleton->progs.begin, skeleton->progs.minor,
			     skeleton->progs.sample);
	return 0;
}

static int attach(struct source *s, struct bpf_link *link)
{
	if (!link)
		return -errno;
	return source_attach(s, -1, -1, link);
}

/*
 * By kprobes on the system call's function; on a kernel without them by tracepoints, with which
 * every system call on the machine takes its slow path. The ends first.
 */
static int follow_mremap(struct source *s)
{
	const struct resident_bpf *skeleton = s->skeleton;
	int r = attach(s, bpf_program__attach_kprobe(skeleton->progs.move_ends, true, MREMAP));

	if (r == 0)
		return attach(
			s, bpf_program__attach_kprobe(skeleton->progs.move_begins, false, MREMAP));
	r = attach(s, bpf_program__attach(skeleton->progs.mremap_exits));
	if (r == 0)
		r = attach(s, bpf_program__attach(skeleton->progs.mremap_enters));
	return r;
}

static int start(struct source *s, struct diag *reterr_diag)
{
	int r = source_start_perf(s, reterr_diag);

	if (r < 0)
		return r;
	r = follow_mremap(s);
	if (r < 0)
		log_warn("memory that mremap() moves is shown as [unknown]: its calls cannot be "
			 "followed (%s)",
			 strerror(-r));
	return 0;
}

const struct source_ops source_resident = {
	.open = open_resident,
	.load = resident_load,
	.destroy = resident_destroy,
	.start = start,
	.follow_cpus = source_follow_cpus_perf,
	.never_pauses = true,
};
