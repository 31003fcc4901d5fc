/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_stacks FILE SYMBOL [PID]: counts the calls of a function by their stacks, as a script with
 * @[kstack, ustack, pid] = count() does (bpf/test/halves.bpf.c). With "SYMBOL%return" its returns.
 * Prints "ready" once it is attached; when standard input ends, prints
 *
 *	events N handled N nested N full N deferred N
 *	stack COUNT PID	and the frames of the stack, leaf first: KIND NAME FILE:LINE
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/vocab.h"
#include "halves.skel.h"

struct event_key {
	u64 kernel, user, pid;
};

static void print_stack(const struct profile *p, u32 stack)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	_cleanup_str_ struct str scratch = {};

	for (u32 i = 0; i < s->n; i++) {
		u32 id = p->stack_frames.data[s->first + i];
		const struct profile_frame *f = &p->frames.data[id];
		u32 file = f->function == PROFILE_NONE ? 0 : p->functions.data[f->function].file;

		printf("%s\t%s\t%s:%u\n", vocab_frame_kind(f->kind)->name,
		       profile_frame_name(p, id, &scratch), profile_string(p, file), f->line);
	}
}

static int print_event(struct recording *r, const struct event_key *key, u64 n)
{
	struct recording_stack stacks[2];
	u32 ids[2], n_stacks = 0;
	int e;

	if (key->kernel)
		stacks[n_stacks++] = (struct recording_stack){.id = key->kernel};
	if (key->user)
		stacks[n_stacks++] = (struct recording_stack){key->user, (u32)key->pid};
	e = recording_name_stacks(r, stacks, n_stacks, ids);
	if (e < 0)
		return e;
	printf("stack %llu %llu%s\n", n, key->pid,
	       recording_stack_id(r, key->user) == key->user ? "" : " finished");
	for (u32 i = 0; i < n_stacks; i++)
		print_stack(recording_names(r), ids[i]);
	return 0;
}

static int print_events(struct recording *r, struct halves_bpf *h)
{
	static const char *const names[] = {"events", "handled", "nested", "full"};
	struct event_key key, *last = NULL;
	struct pipeline_stats stats;

	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		u64 n = 0;

		bpf_map__lookup_elem(h->maps.counts, &i, sizeof(i), &n, sizeof(n), 0);
		printf("%s %llu ", names[i], n);
	}
	recording_stats(r, &stats);
	printf("deferred %llu walk_ns %llu\n", stats.counts.deferred, stats.stall_ns);
	for (; bpf_map__get_next_key(h->maps.events, last, &key, sizeof(key)) == 0; last = &key) {
		u64 n = 0;
		int e;

		bpf_map__lookup_elem(h->maps.events, &key, sizeof(key), &n, sizeof(n), 0);
		e = print_event(r, &key, n);
		if (e < 0)
			return e;
	}
	return 0;
}

static int load(struct halves_bpf *h, const struct recording *r)
{
	struct sampler_trace at;
	u32 slot = 1;
	int fd, e = recording_trace(r, BPF_PROG_TYPE_KPROBE, &at);

	if (e == 0)
		e = bpf_map__reuse_fd(h->maps.slots, at.slots_fd);
	if (e == 0)
		e = bpf_map__reuse_fd(h->maps.stacks, at.stacks_fd);
	if (e == 0)
		e = halves_bpf__load(h);
	fd = e == 0 ? bpf_program__fd(h->progs.second) : -1;
	return e < 0 ? e
		     : bpf_map__update_elem(h->maps.slots, &slot, sizeof(slot), &fd, sizeof(fd), 0);
}

static int trace(struct recording *r, const char *file, char *symbol, u32 pid)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char *at_return = strchr(symbol, '%');
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = symbol, .retprobe = at_return != NULL);
	struct halves_bpf *h = halves_bpf__open();
	struct bpf_link *link = NULL;
	struct diag d = {};
	int e;

	if (!h)
		return -ENOMEM;
	if (at_return)
		*at_return = 0;
	h->rodata->after_call = at_return != NULL;
	h->rodata->only_pid = pid;
	e = load(h, r);
	if (e == 0)
		e = recording_start(r, &d);
	if (e == 0) {
		link = bpf_program__attach_uprobe_opts(h->progs.first, -1, file, 0, &opts);
		e = link ? 0 : -errno;
	}
	if (e == 0) {
		puts("ready");
		fflush(stdout);
	}
	while (e == 0 && poll(&in, 1, 0) == 0)
		e = recording_poll(r, 20);
	bpf_link__destroy(link);
	recording_stop(r);
	if (e == 0)
		e = print_events(r, h);
	halves_bpf__destroy(h);
	if (d.text[0])
		fprintf(stderr, "%s\n", d.text);
	return e;
}

int main(int argc, char **argv)
{
	struct recording_options o = {.trace = 1ULL << BPF_PROG_TYPE_KPROBE};
	struct diag d = {};
	struct recording *r = NULL;
	u64 pid = 0;
	int e;

	if (argc > 1 && !strcmp(argv[1], "parsers"))
		return parsers_main();
	if (argc < 3 || (argc > 3 && str_to_u64(argv[3], 10, &pid) < 0))
		return 2;
	e = parsers_start(&d, &o.parsers);
	if (e == 0)
		e = recording_create(&o, &d, &r);
	if (e < 0) {
		fprintf(stderr, "%s\n", d.text);
		return 1;
	}
	e = trace(r, argv[1], argv[2], (u32)pid);
	recording_destroy(r);
	parsers_stop(o.parsers);
	if (e < 0)
		fprintf(stderr, "trace_stacks: %s\n", strerror(-e));
	return e < 0;
}
