/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of threads that carry a span: the user half of bpf/prog/request_clock.bpf.c. */
#include <errno.h>
#include <linux/perf_event.h>

#include "agent/sampler/source.h"
#include "base/log.h"
#include "request_clock.skel.h"

SOURCE_SKELETON(request_clock)

/* The kernel refuses a higher rate than its limit, which it lowers itself on slow machines. */
static int start(struct source *s, struct diag *reterr_diag)
{
	u64 max = source_max_rate();

	if (max && s->about.hz > max) {
		log_info("requests are sampled %llu times a second, not %llu: sysctl "
			 "kernel.perf_event_max_sample_rate",
			 max, s->about.hz);
		s->about.hz = max;
		s->about.period = 1000000000 / max;
	}
	return source_start_perf(s, reterr_diag);
}

const struct source_ops source_request_clock = {
	.open = request_clock_open,
	.load = request_clock_load,
	.destroy = request_clock_destroy,
	.start = start,
	.follow_cpus = source_follow_cpus_perf,
};
