/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations: the user half of bpf/prog/alloc.bpf.c. It only loads the programs; agent/alloc
 * attaches them to processes, and detaches them, in a thread of its own.
 */
#include <errno.h>

#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "alloc.skel.h"

SOURCE_SKELETON(alloc)

/* All programs that call each other have the type of attachment of the first. */
static int open_alloc(struct source *s)
{
	struct alloc_bpf *skeleton;
	struct bpf_program *p;
	bool sessions = probe_uprobe_sessions();
	int r = alloc_open(s);

	if (r < 0)
		return r;
	skeleton = s->skeleton;
	s->about.bytes_type = SAMPLE_TYPE_ALLOC_OBJECTS;
	s->entry = sessions ? skeleton->progs.session : skeleton->progs.sample;
	bpf_object__for_each_program(p, s->object) if (sessions)
		bpf_program__set_expected_attach_type(p, ALLOC_UPROBE_SESSION);
	bpf_program__set_autoload(skeleton->progs.session, sessions);
	bpf_program__set_autoload(skeleton->progs.begins_malloc, !sessions);
	bpf_program__set_autoload(skeleton->progs.begins_calloc, !sessions);
	bpf_program__set_autoload(skeleton->progs.begins_realloc, !sessions);
	bpf_program__set_autoload(skeleton->progs.begins_memalign, !sessions);
	bpf_program__set_autoload(skeleton->progs.begins_posix, !sessions);
	bpf_program__set_autoload(skeleton->progs.begins_free, !sessions);
	bpf_program__set_autoload(skeleton->progs.sample, !sessions);
	return 0;
}

int source_alloc_programs(const struct source *s, struct alloc_programs *ret)
{
	const struct alloc_bpf *skeleton = s->skeleton;

	*ret = (struct alloc_programs){
		.session = bpf_program__autoload(skeleton->progs.session) ? skeleton->progs.session
									  : NULL,
		.begins = {[ALLOC_MALLOC] = skeleton->progs.begins_malloc,
			   [ALLOC_CALLOC] = skeleton->progs.begins_calloc,
			   [ALLOC_REALLOC] = skeleton->progs.begins_realloc,
			   [ALLOC_MEMALIGN] = skeleton->progs.begins_memalign,
			   [ALLOC_POSIX] = skeleton->progs.begins_posix,
			   [ALLOC_FREE] = skeleton->progs.begins_free},
		.ends = skeleton->progs.sample,
		.processes = bpf_map__fd(skeleton->maps.alloc_processes),
		.threads = bpf_map__fd(skeleton->maps.alloc_threads),
		.objects = bpf_map__fd(skeleton->maps.alloc_objects),
		.all = s->about.period == 1,
	};
	return 0;
}

static int start(struct source *s, struct diag *reterr_diag)
{
	(void)s;
	(void)reterr_diag;
	return 0;
}

const struct source_ops source_alloc = {
	.open = open_alloc,
	.load = alloc_load,
	.destroy = alloc_destroy,
	.start = start,
	.never_pauses = true,
};
