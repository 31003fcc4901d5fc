/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of a kernel tracepoint: each sample stands for one event. The fields of the event that
 * the user names become attributes of the sample.
 */
#define SAMPLE_SECTION "tracepoint"
/* The event's record, laid out as the tracepoint's `format` file in tracefs says. */
#define SAMPLE_CONTEXT void
#define SAMPLE_RESULT 1
#define SAMPLE_ATTRIBUTES read_fields

struct scratch;
static __attribute__((always_inline)) void read_fields(struct scratch *s, void *ctx);

#include "bpf/prog/sample.h"

/* Room for a text of ATTRIBUTE_MAX_TEXT + 1 bytes and its NUL: a text of that length is cut. */
#define FIELD_TEXT_ROOM (ATTRIBUTE_MAX_TEXT + 2)

/* Reads a text. Returns its length, with ATTRIBUTE_CUT if it is cut; negative: unreadable. */
static __always_inline long read_text(void *to, const volatile struct sampler_field *f, void *ctx)
{
	const void *at = ctx + f->offset;
	__u32 kind = f->kind, room = FIELD_TEXT_ROOM, where = 0;
	__u64 address = 0;
	long n;

	switch (kind) {
	case FIELD_TEXT_AT:
	case FIELD_TEXT_BEHIND:
		if (bpf_probe_read_kernel(&where, sizeof(where), at) < 0)
			return -1;
		at = kind == FIELD_TEXT_AT ? ctx : at + sizeof(where);
		address = (__u64)at + (where & 0xffff);
		break;
	case FIELD_TEXT_OF_USER:
	case FIELD_TEXT_OF_KERNEL:
		if (bpf_probe_read_kernel(&address, sizeof(address), at) < 0)
			return -1;
		break;
	default: /* a full array has no NUL */
		address = (__u64)at;
		room = f->size + 1U < FIELD_TEXT_ROOM ? f->size + 1U : FIELD_TEXT_ROOM;
	}
	if (kind == FIELD_TEXT_OF_USER)
		n = bpf_probe_read_user_str(to, room, (const void *)address);
	else
		n = bpf_probe_read_kernel_str(to, room, (const void *)address);
	if (n <= 0)
		return -1;
	return n == FIELD_TEXT_ROOM ? ATTRIBUTE_MAX_TEXT | ATTRIBUTE_CUT : n - 1;
}

/* Appends {index, n, bytes} of a field to the gathered attributes. */
static __always_inline void read_field(struct gathered *g, __u32 index, void *ctx)
{
	const volatile struct sampler_field *f = &config.fields[index];
	__u32 at = g->n, size = f->size;
	long n;

	asm volatile("" : "+r"(at));
	if (at > ATTRIBUTES_LAST) {
		g->left_out++;
		return;
	}
	if (f->kind == FIELD_NUMBER) {
		if (size > 8)
			return; /* user space sets no such size */
		n = bpf_probe_read_kernel(&g->bytes[at + 2], size, ctx + f->offset) < 0 ? -1 : size;
	} else {
		n = read_text(&g->bytes[at + 2], f, ctx);
	}
	if (n < 0)
		n = ATTRIBUTE_CUT; /* cut before the first byte: it was not readable */
	g->bytes[at] = (__u8)index;
	g->bytes[at + 1] = (__u8)n;
	g->n = (__u16)(at + 2 + ((__u32)n & ~ATTRIBUTE_CUT));
}

static __always_inline void read_fields(struct scratch *s, void *ctx)
{
	struct gathered *g = &s->gathered;

	if (!config.n_fields)
		return;
	g->n = 0;
	g->left_out = 0;
	g->form = ATTRIBUTES_FIELDS;
	for (__u32 i = 0; i < SAMPLER_MAX_FIELDS && i < config.n_fields; i++)
		read_field(g, i, ctx);
	s->out.sample.event_attributes = attributes_send(s);
}

SEC("tracepoint")
int sample(void *ctx)
{
	return sample_event(ctx, NULL, 1);
}
