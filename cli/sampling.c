/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)
#define HZ_DEFAULTS                                                                                \
	TEXT(SAMPLER_DEFAULT_HZ)                                                                   \
	" in record and top, " TEXT(AGENT_DEFAULT_HZ) " in agent and up,\n" TEXT(                  \
		SAMPLER_EVENTS_HZ) " for page faults and other events of the kernel"

#define A struct sampling_arguments
const struct option sampling_options[] = {
	OPTION_U64("frequency", 'F', "HZ", A, what.hz, 1, SAMPLER_MAX_HZ,
		   "samples per second on each CPU, at most " TEXT(
			   SAMPLER_MAX_HZ) "\n(default " HZ_DEFAULTS ")"),
	OPTION_STRING(
		"event", 'e', "EVENT,...", A, what.events,
		"events to sample: cpu-clock (default; in agent and up with off-cpu), page-faults,\n"
		"context-switches, cycles, cache-misses, a tracepoint CATEGORY:NAME ...\n"
		"(culprit-record(1))"),
	OPTION_FLAG("off-cpu", 0, A, what.off_cpu,
		    "record where threads wait, for what and how long, instead of events"),
	OPTION_FLAG("wall", 0, A, what.wall,
		    "record the whole time of each thread: running, waiting for a CPU, blocked"),
	OPTION_FLAG("wakers", 0, A, what.wakers,
		    "with --off-cpu or --wall: show above each wait who ended it"),
	OPTION_FLAG("faults", 0, A, what.faults,
		    "record page faults and the memory that they bring, instead of events"),
	OPTION_FLAG("resident", 0, A, what.resident,
		    "record who owns the memory that is resident at the end, by page faults;\n"
		    "in agent and up beside the other events"),
	OPTION_FLAG("heap", 0, A, what.heap,
		    "record the memory profiles that language runtimes keep themselves (Go): live\n"
		    "objects at the end, and allocations; in agent and up beside the other events"),
	OPTION_FLAG(
		"alloc", 0, A, what.alloc,
		"record who allocates memory (malloc, new ...), and what of it lives at the end;\n"
		"in agent and up beside the other events"),
	OPTION_FLAG(
		"attach-java", 0, A, what.attach_java,
		"record what Java programs allocate; in agent and up beside the other events.\n"
		"This makes each sampled JVM start a recording of its own Flight Recorder, which\n"
		"costs it some CPU time and files in its /tmp; see culprit-record(1)"),
	OPTION_FLAG("block-io", 0, A, what.block_io,
		    "record requests to disks with their time and bytes, instead of events"),
	OPTION_U64("count", 'c', "N", A, what.period, 1, 1ULL << 40,
		   "take a sample every N events, instead of at a frequency"),
	OPTION_F64("budget", 0, "PERCENT", A, what.budget, 0.01, 100,
		   "CPU time of the machine for stacks of waits, faults and requests to disks\n"
		   "(default 0.5): above it short waits share samples, and sums stay right;\n"
		   "with --alloc time of each process for probes of allocators (default 1)"),
	OPTION_STRING("pid", 'p', "PID,...", A, what.pids, "only these processes"),
	OPTION_STRING("comm", 0, "NAME,...", A, what.comms, "only processes with these names"),
	OPTION_STRING("cgroup", 0, "PATH,...", A, what.cgroups,
		      "only these cgroups (v2) and their descendants"),
	OPTION_STRING("uid", 0, "UID,...", A, what.uids,
		      "only processes of these users, by name or number"),
	OPTION_FLAG("kernel-only", 0, A, what.kernel_only, "record no user stacks"),
	OPTION_FLAG("user-only", 0, A, what.user_only, "record no kernel stacks"),
	OPTION_FLAG("no-inline", 0, A, what.no_inline, "leave out inlined functions"),
	OPTION_FLAG("runtime-frames", 0, A, what.runtime_frames,
		    "show the native frames of interpreters below the functions that they run"),
	OPTION_U64("memory-limit", 0, "MB", A, what.memory_limit_mb, 8, 4096,
		   "memory limit: in record and top of the unwind tables (default 256), in\n"
		   "agent and up of the whole agent (default 384)"),
	OPTION_STRING("cache-dir", 0, "DIR", A, what.cache_dir,
		      "keep unwind tables and names of functions in this folder, an absolute path\n"
		      "(default: /var/cache/culprit for root, else ~/.cache/culprit), or none"),
	OPTION_FLAG("verbose", 'v', A, verbose, "log debug messages to standard error"),
	{},
};
#undef A

const char *sampling_cache_dir(void)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	static char dir[512];

	if (geteuid() == 0)
		return "/var/cache/culprit";
	if (xdg && xdg[0] == '/')
		snprintf(dir, sizeof(dir), "%s/culprit", xdg);
	else if (home && home[0] == '/')
		snprintf(dir, sizeof(dir), "%s/.cache/culprit", home);
	return dir[0] ? dir : NULL;
}

void sampling_apply(struct sampling_arguments *a)
{
	if (!a->what.cache_dir)
		a->what.cache_dir = sampling_cache_dir();
	else if (!strcmp(a->what.cache_dir, "none"))
		a->what.cache_dir = NULL;
	a->what.debuginfod_urls = getenv("DEBUGINFOD_URLS");
	if (a->verbose)
		log_set_level(LOG_LEVEL_DEBUG);
}
