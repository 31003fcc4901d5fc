/* SPDX-License-Identifier: Apache-2.0 */
/* Page faults with the memory that they bring: the user half of bpf/prog/faults.bpf.c. */
#include <errno.h>
#include <linux/perf_event.h>

#include "agent/sampler/source.h"
#include "faults.skel.h"

SOURCE_SKELETON(faults)

void source_follow_faults(struct source *s, struct bpf_program *begin, struct bpf_program *minor,
			  struct bpf_program *major)
{
	/* The ends first, so that no fault begins that is not seen to end. */
	s->entries[s->n_entries++] = (struct source_entry){minor, PERF_COUNT_SW_PAGE_FAULTS_MIN};
	s->entries[s->n_entries++] = (struct source_entry){major, PERF_COUNT_SW_PAGE_FAULTS_MAJ};
	s->entries[s->n_entries++] = (struct source_entry){begin, PERF_COUNT_SW_PAGE_FAULTS};
}

static int open_faults(struct source *s)
{
	struct faults_bpf *skeleton;
	int r = faults_open(s);

	if (r < 0)
		return r;
	skeleton = s->skeleton;
	s->about.bytes_type = SAMPLE_TYPE_FAULT_BYTES;
	source_follow_faults(s, skeleton->progs.begin, skeleton->progs.minor,
			     skeleton->progs.sample);
	return 0;
}

/* The program gathers {0, 1, is_major}. */
static u16 attributes(const struct source *s, const u8 *bytes, u32 n, u8 ret[FIELDS_MAX_BYTES])
{
	(void)s;
	return n == 3 ? fields_add_named(ret, 0, "fault", bytes[2] ? "major" : "minor") : 0;
}

const struct source_ops source_faults = {
	.open = open_faults,
	.load = faults_load,
	.destroy = faults_destroy,
	.start = source_start_perf,
	.follow_cpus = source_follow_cpus_perf,
	.attributes = attributes,
};
