/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenTelemetry's process context (OTEP 4719): a page that is found by its name in /proc/PID/maps,
 * and a message that it points to. The process may write while culprit reads: the result is valid
 * if the page's time was the same before and after.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/context/internal.h"
#include "agent/runtime/runtime.h"
#include "otlp/otlp.h"
#include "proc/proc.h"

#define SIGNATURE "OTEL_CTX"
#define VERSION 2
#define MAX_PAYLOAD 65536
#define MAX_MEMORY (8u << 20) /* memory that unpacking such a payload may take */
#define MAX_TRIES 3
#define MAX_MAPPINGS 65536 /* that are searched for the name */

struct header {
	char signature[8];
	u32 version, payload_bytes;
	u64 published; /* 0: the process is writing it */
	u64 payload;   /* avma */
};
_Static_assert(sizeof(struct header) == 32, "OTEP 4719");

/* ---- finding it ---- */

struct search {
	u64 address;
	u32 n;
};

static bool is_named(const char *path)
{
	static const char *const names[] = {
		"/memfd:" SIGNATURE,	  /* a memfd without another name */
		"[anon_shmem:" SIGNATURE, /* a memfd with a name */
		"[anon:" SIGNATURE,	  /* anonymous memory */
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(path, names[i], strlen(names[i])))
			return true;
	return false;
}

static int find_page(void *arg, const struct proc_mapping *m)
{
	struct search *f = arg;

	if (++f->n > MAX_MAPPINGS)
		return -E2BIG;
	if (m->prot & PROT_EXEC || !(m->prot & PROT_READ) || !is_named(m->path))
		return 0;
	f->address = m->start;
	return 1;
}

/* ---- reading it ---- */

struct receiver {
	int (*said)(void *arg, const struct otlp_said *s);
	void *arg;
};

static bool is_sound(const struct header *h)
{
	return !memcmp(h->signature, SIGNATURE, sizeof(h->signature)) && h->version == VERSION &&
	       h->payload_bytes && h->payload_bytes <= MAX_PAYLOAD;
}

/* One attempt. -EAGAIN: the process wrote meanwhile. */
static int read_once(u32 pid, u64 address, struct process_context *c, u8 *payload,
		     struct header *ret)
{
	struct runtime_memory m = {pid};
	struct header h, again;

	if (runtime_read(&m, address, &h, sizeof(h)) < 0 || !is_sound(&h))
		return -ENOENT;
	if (!h.published)
		return -EAGAIN;
	if (address == c->header && h.published == c->published)
		return 0;
	if (runtime_read(&m, h.payload, payload, h.payload_bytes) < 0 ||
	    runtime_read(&m, address, &again, sizeof(again)) < 0 || memcmp(&h, &again, sizeof(h)))
		return -EAGAIN;
	*ret = h;
	return 1;
}

static int read_at(u32 pid, u64 address, struct process_context *c, struct receiver *t)
{
	_cleanup_free_ u8 *payload = malloc(MAX_PAYLOAD);
	struct header h;
	int r = -EAGAIN;

	for (int i = 0; payload && i < MAX_TRIES && r == -EAGAIN; i++)
		r = read_once(pid, address, c, payload, &h);
	if (r <= 0)
		return r;
	r = otlp_process_context_decode(payload, h.payload_bytes, MAX_MEMORY, t->said, t->arg);
	/* An invalid message is not read again before it changes. */
	*c = (struct process_context){address, h.published};
	return r < 0 ? r : 1;
}

int process_context_read(u32 pid, struct process_context *c,
			 int (*said)(void *arg, const struct otlp_said *s), void *arg)
{
	struct receiver t = {said, arg};
	struct search f = {};
	int r = -ENOENT;

	if (c->header)
		r = read_at(pid, c->header, c, &t);
	if (r != -ENOENT)
		return r;
	*c = (struct process_context){};
	if (proc_maps_read(pid, PROC_MAPS_ALL, find_page, &f) != 1)
		return -ENOENT;
	return read_at(pid, f.address, c, &t);
}
