/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's push API: push.v1.PusherService/Push by Connect. A request has a series for each
 * resource, with the labels of the resource and a pprof file, in which processes and threads are
 * labels.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "agent/export/export_private.h"
#include "base/arena.h"
#include "base/text.h"
#include "base/vocab.h"
#include "format/format.h"
#include "format/pyroscope.pb-c.h"

#define ARENA_BYTES (1ULL << 30)

static int open_push(struct destination *d, struct diag *reterr_diag)
{
	static const struct http_options o = {
		.path = "/push.v1.PusherService/Push",
		.default_port = "4040",
		.content_type = "application/proto",
	};

	return http_open(d, &o, reterr_diag, (struct http **)&d->private);
}

static void send_push(struct destination *d, const u8 *data, size_t n, struct export_result *ret)
{
	http_post(d->private, data, n, ret);
}

/* The name that Pyroscope gives to profiles of these types: "process_cpu", "page_faults". */
static const char *profile_name(const struct profile *p)
{
	struct vocab_value_type types[PROFILE_MAX_TYPES + 1] = {
		{profile_string(p, p->period_name), profile_string(p, p->period_unit)}};
	size_t n = 1;

	for (u32 i = 0; i < p->n_types; i++)
		types[n++] = (struct vocab_value_type){profile_string(p, p->types[i].name),
						       profile_string(p, p->types[i].unit)};
	return vocab_profile_group(types, n);
}

static char *copy_text(struct arena *a, const char *s)
{
	char *out = arena_alloc(a, strlen(s) + 1);

	return out ? memcpy(out, s, strlen(s) + 1) : NULL;
}

void export_clean_label(char *name)
{
	for (char *c = name; *c; c++)
		if (!isalnum((u8)*c) || (c == name && isdigit((u8)*c)))
			*c = '_';
}

static char *label_name(struct arena *a, const char *name)
{
	char *out = copy_text(a, name);

	if (out)
		export_clean_label(out);
	return out;
}

static int add_label(struct arena *a, Pyroscope__RawProfileSeries *s, char *name, const char *value)
{
	Pyroscope__LabelPair *l = arena_alloc(a, sizeof(*l));
	_cleanup_str_ struct str clean = {};

	text_append_clean(&clean, value, 0);
	if (!l || !name || clean.failed)
		return -ENOMEM;
	pyroscope__label_pair__init(l);
	l->name = name;
	l->value = copy_text(a, str_get(&clean));
	if (!l->value)
		return -ENOMEM;
	/* Two names may be equal after the replacement: the first one counts. */
	for (size_t i = 0; i < s->n_labels; i++)
		if (!strcmp(s->labels[i]->name, name))
			return 0;
	s->labels[s->n_labels++] = l;
	return 0;
}

static int add_labels(struct arena *a, Pyroscope__RawProfileSeries *s, const struct profile *p,
		      u32 resource)
{
	const struct profile_resource *res = &p->resources.data[resource];
	int r = add_label(a, s, copy_text(a, "__name__"), profile_name(p));

	for (u32 i = 0; i < res->n && r == 0; i++) {
		const struct profile_label *l = &p->labels.data[res->first + i];

		r = add_label(a, s, label_name(a, profile_string(p, l->name)),
			      profile_string(p, l->value));
	}
	/* Pyroscope requires this label. */
	return r < 0 ? r : add_label(a, s, copy_text(a, "service_name"), "unknown_service");
}

u32 export_resource_of(const struct profile *p, size_t sample)
{
	u32 thread = profile_sample(p, sample)->thread;

	return thread < p->threads.n ? p->threads.data[thread].resource : 0;
}

struct profile export_select_resource(const struct profile *p, u32 resource, u8 *samples)
{
	size_t size = profile_sample_size(p);
	struct profile view = *p;

	view.samples = samples;
	view.n_samples = 0;
	for (size_t i = 0; i < p->n_samples; i++)
		if (export_resource_of(p, i) == resource)
			memcpy(samples + size * view.n_samples++, profile_sample(p, i), size);
	return view;
}

static int add_series(struct arena *a, Pyroscope__PushRequest *request, const struct profile *p,
		      u32 resource, u8 *samples, struct diag *reterr_diag)
{
	static const struct profile_write_options none = {};
	struct profile view = export_select_resource(p, resource, samples);
	Pyroscope__RawProfileSeries *s = arena_alloc(a, sizeof(*s));
	Pyroscope__RawSample *raw = arena_alloc(a, sizeof(*raw));
	_cleanup_str_ struct str bytes = {};
	int r;

	if (!view.n_samples)
		return 0;
	if (!s || !raw)
		return -ENOMEM;
	pyroscope__raw_profile_series__init(s);
	pyroscope__raw_sample__init(raw);
	s->labels = arena_calloc(a, p->resources.data[resource].n + 2, sizeof(*s->labels));
	s->samples = arena_calloc(a, 1, sizeof(*s->samples));
	if (!s->labels || !s->samples)
		return -ENOMEM;
	/* The quality describes the whole profile: only the first series has it. */
	if (request->n_series)
		view.quality = (struct profile_quality){};
	r = add_labels(a, s, p, resource);
	if (r == 0)
		r = profile_format_by_name("pprof")->write(&view, &none, &bytes, reterr_diag);
	if (r < 0)
		return r;
	raw->raw_profile.len = bytes.n;
	raw->raw_profile.data = arena_alloc(a, bytes.n);
	if (!raw->raw_profile.data)
		return -ENOMEM;
	memcpy(raw->raw_profile.data, str_get(&bytes), bytes.n);
	s->samples[s->n_samples++] = raw;
	request->series[request->n_series++] = s;
	return 0;
}

static int encode_push(struct destination *d, const struct profile *p, struct str *out,
		       struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Pyroscope__PushRequest request = PYROSCOPE__PUSH_REQUEST__INIT;
	_cleanup_free_ u8 *samples = malloc(p->n_samples * profile_sample_size(p) + 1);
	_cleanup_free_ u8 *bytes = NULL;
	size_t n;
	int r = 0;

	request.series = arena_calloc(&a, p->resources.n, sizeof(*request.series));
	if (!samples || !request.series)
		return -ENOMEM;
	for (u32 i = 0; i < p->resources.n && r == 0; i++)
		r = add_series(&a, &request, p, i, samples, reterr_diag);
	if (r < 0 || !request.n_series)
		return r;
	n = pyroscope__push_request__get_packed_size(&request);
	bytes = malloc(n + 1);
	if (!bytes)
		return -ENOMEM;
	pyroscope__push_request__pack(&request, bytes);
	return str_append(out, bytes, n);
}

const struct export_ops export_pyroscope = {
	.scheme = "pyroscope",
	.open = open_push,
	.close = http_close,
	.encode = encode_push,
	.send = send_push,
};
