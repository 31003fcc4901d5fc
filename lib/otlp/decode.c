/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads OTLP profiles. The bytes are foreign: the message is unpacked into an arena with a limit.
 * The profiles that are made from it count against the same limit, because a few indices can name
 * many frames.
 *
 * Each profile of the request is checked as a whole before anything of it is kept, so that it is
 * accepted or rejected, but never accepted in part. Profiles of one value type and period form a
 * group, which becomes one struct profile. An entry of the dictionary is copied into a group once,
 * when a sample of the group first needs it.
 */
#include "otlp/otlp.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "otlp/decoder.h"
#include "profile/profile.h"

static void group_deinit(struct otlp_group *g)
{
	profile_destroy(g->p);
	free(g->strings);
	free(g->mappings);
	free(g->functions);
	free(g->stacks);
	free(g->kinds);
	free(g->locations);
	vec_deinit(&g->location_frames);
}

static void decoder_deinit(struct otlp_decoder *d)
{
	vec_foreach (&d->groups, g)
		group_deinit(g);
	vec_deinit(&d->groups);
	vec_deinit(&d->frames);
}

/* ---- resources and threads ---- */

/* The text of a value, for a label. Borrowed, or in `scratch`. */
static const char *value_text(const struct otlp_decoder *d, const Otlp__AnyValue *v,
			      struct str *scratch)
{
	const char *s;

	str_clear(scratch);
	switch (v ? v->value_case : OTLP__ANY_VALUE__VALUE__NOT_SET) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		return v->string_value;
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX:
		s = otlp_string_at(d, v->string_value_strindex);
		return s ? s : "";
	default:
		if (v)
			otlp_any_text(v, scratch);
		return str_get(scratch);
	}
}

static const char *key_text(const struct otlp_decoder *d, const Otlp__KeyValue *kv)
{
	const char *s = kv->key;

	if (!*s && kv->key_strindex)
		s = otlp_string_at(d, kv->key_strindex);
	return s ? s : "";
}

/* Takes the attributes of a resource that describe the process. The others become labels. */
static void read_process(struct otlp_decoder *d, const Otlp__Resource *r)
{
	const char *comm = NULL, *executable = NULL;

	d->resource = r;
	d->pid = 0;
	for (size_t i = 0; r && i < r->n_attributes; i++) {
		const Otlp__KeyValue *kv = r->attributes[i];
		const char *key = key_text(d, kv);
		const Otlp__AnyValue *v = kv->value;
		bool is_text = v && v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE;

		if (!strcmp(key, OTLP_PID) && v &&
		    v->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE)
			d->pid = otlp_u32(v->int_value);
		else if (!strcmp(key, OTLP_COMM) && is_text)
			comm = v->string_value;
		else if (!strcmp(key, OTLP_EXECUTABLE) && is_text)
			executable = v->string_value;
	}
	d->comm = comm ? comm : executable ? executable : "";
}

static bool is_label(const struct otlp_decoder *d, const Otlp__KeyValue *kv)
{
	const char *key = key_text(d, kv);

	if (!strcmp(key, OTLP_PID))
		return !d->pid;
	if (!strcmp(key, OTLP_EXECUTABLE))
		return kv->value && (kv->value->value_case != OTLP__ANY_VALUE__VALUE_STRING_VALUE ||
				     strcmp(kv->value->string_value, d->comm) != 0);
	return *key && strcmp(key, OTLP_COMM) != 0;
}

static int take_labels(struct otlp_decoder *d, struct otlp_group *g, Otlp__KeyValue *const *kvs,
		       size_t n_kvs, u32 *ret_id)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	_cleanup_str_ struct str scratch = {};
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < n_kvs && r == 0; i++) {
		/* OpenTelemetry's SDKs keep as many. */
		if (n == PROFILE_MAX_LABELS)
			break;
		if (!is_label(d, kvs[i]))
			continue;
		r = otlp_add_text(g->p, key_text(d, kvs[i]), &labels[n].name);
		if (r == 0)
			r = otlp_add_text(g->p, value_text(d, kvs[i]->value, &scratch),
					  &labels[n].value);
		n++;
	}
	return r < 0 ? r : profile_add_resource(g->p, labels, n, ret_id);
}

static int take_resource(struct otlp_decoder *d, struct otlp_group *g, u32 *ret_id)
{
	const Otlp__Resource *in = d->resource;
	int r;

	if (g->resource && g->resource == in) {
		*ret_id = g->resource_id;
		return 0;
	}
	r = take_labels(d, g, in ? in->attributes : NULL, in ? in->n_attributes : 0,
			&g->resource_id);
	if (r < 0)
		return r;
	g->resource = in;
	*ret_id = g->resource_id;
	return 0;
}

/* Makes labels of the other attributes of a sample. */
static int take_attributes(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Sample *s,
			   u32 *ret_id)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	_cleanup_str_ struct str scratch = {};
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < s->n_attribute_indices && n < PROFILE_MAX_LABELS && r == 0; i++) {
		const Otlp__KeyValueAndUnit *a = otlp_attribute_at(d, s->attribute_indices[i]);
		const char *key = a ? otlp_string_at(d, a->key_strindex) : NULL;

		if (!key || !*key || otlp_is_threads_own(key))
			continue;
		r = otlp_add_text(g->p, key, &labels[n].name);
		if (r == 0)
			r = otlp_add_text(g->p, value_text(d, a->value, &scratch),
					  &labels[n].value);
		n++;
	}
	return r < 0 || !n ? r : profile_add_resource(g->p, labels, n, ret_id);
}

static int take_thread(struct otlp_decoder *d, struct otlp_group *g, u32 resource,
		       const Otlp__Sample *s, u32 *ret_id)
{
	const s32 *a = s->attribute_indices;
	size_t n = s->n_attribute_indices;
	struct profile_thread t = {.pid = d->pid, .resource = resource};
	const char *comm = d->comm;
	u64 number;
	int r;

	if (otlp_find_number(d, a, n, OTLP_THREAD_ID, &number))
		t.tid = otlp_u32((s64)number);
	/* Some senders put the process here. */
	if (!t.pid && otlp_find_number(d, a, n, OTLP_PID, &number))
		t.pid = otlp_u32((s64)number);
	if (!*comm)
		comm = otlp_find_text(d, a, n, OTLP_EXECUTABLE);
	r = otlp_add_name(g->p, comm, &t.comm);
	if (r == 0)
		r = otlp_add_name(g->p, otlp_find_text(d, a, n, OTLP_THREAD_NAME), &t.thread_name);
	if (r == 0)
		r = take_attributes(d, g, s, &t.attributes);
	if (r < 0)
		return r;
	if (!t.pid && !t.tid && !t.comm && !t.thread_name && !t.resource && !t.attributes) {
		*ret_id = PROFILE_NONE;
		return 0;
	}
	return profile_add_thread(g->p, &t, ret_id);
}

/* ---- samples ---- */

/* The index was checked before. Entry 0 means none, whatever it holds. */
static int take_link(struct otlp_decoder *d, struct otlp_group *g, s32 index, u32 *ret_id)
{
	struct profile_link link = {};
	const Otlp__Link *in;

	if (index) {
		in = d->d->link_table[index];
		if (in->trace_id.len)
			memcpy(link.trace_id, in->trace_id.data, sizeof(link.trace_id));
		if (in->span_id.len)
			memcpy(link.span_id, in->span_id.data, sizeof(link.span_id));
	}
	return profile_add_link(g->p, &link, ret_id);
}

static int take_sample(struct otlp_decoder *d, struct otlp_group *g, u32 resource,
		       const Otlp__Profile *in, const Otlp__Sample *s)
{
	u64 untimed = g->times_differ ? in->time_unix_nano : 0;
	u32 thread, stack, link;
	int r = take_thread(d, g, resource, s, &thread);

	if (r == 0)
		r = otlp_take_stack(d, g, s->stack_index, &stack);
	if (r == 0)
		r = take_link(d, g, s->link_index, &link);
	if (r == 0 && !s->n_timestamps_unix_nano) {
		s64 value = s->values[0];

		return profile_add_linked_sample(g->p, untimed, thread, stack, link, &value);
	}
	for (size_t i = 0; i < s->n_timestamps_unix_nano && r == 0; i++) {
		s64 value = s->n_values ? s->values[i] : 1;

		r = profile_add_linked_sample(g->p, s->timestamps_unix_nano[i], thread, stack, link,
					      &value);
	}
	return r;
}

static void take_quality(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Profile *in)
{
	static const struct otlp_quality_field fields[] = OTLP_QUALITY_FIELDS;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		u8 *at = (u8 *)&g->p->quality + fields[i].offset;
		u64 more, v;

		if (!otlp_find_number(d, in->attribute_indices, in->n_attribute_indices,
				      fields[i].name, &more))
			continue;
		memcpy(&v, at, sizeof(v));
		if (__builtin_add_overflow(v, more, &v))
			v = UINT64_MAX;
		memcpy(at, &v, sizeof(v));
		g->p->quality.measured = true;
	}
}

static int take_profile(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Profile *in)
{
	const char *title =
		otlp_find_text(d, in->attribute_indices, in->n_attribute_indices, OTLP_TITLE);
	u32 resource;
	int r;

	d->used_bytes = d->arena->used + d->groups.n * d->group_bytes;
	vec_foreach (&d->groups, other)
		d->used_bytes += other == g ? 0 : otlp_group_bytes(other);
	r = take_resource(d, g, &resource);
	for (size_t i = 0; i < in->n_samples && r == 0; i++) {
		r = take_sample(d, g, resource, in, in->samples[i]);
		if (r == 0)
			r = otlp_check_memory(d, g, 0);
	}
	if (r == 0 && *title && !g->p->title)
		r = otlp_add_text(g->p, title, &g->p->title);
	if (r == 0)
		take_quality(d, g, in);
	return r;
}

/* ---- groups ---- */

struct group_key {
	const char *type, *unit, *period_type, *period_unit;
	s64 period;
};

static int read_key(struct otlp_decoder *d, const Otlp__Profile *in, struct group_key *ret)
{
	struct group_key k = {.period_type = "", .period_unit = "", .period = in->period};
	int r = otlp_check_value_type(d, in->sample_type);

	if (r == 0)
		r = otlp_check_value_type(d, in->period_type);
	if (r < 0)
		return r;
	if (!in->sample_type || !*otlp_string_at(d, in->sample_type->type_strindex))
		return diag_set(d->diag, -EBADMSG, "a profile has no sample type" OTLP_OLD_LAYOUT);
	k.type = otlp_string_at(d, in->sample_type->type_strindex);
	k.unit = otlp_string_at(d, in->sample_type->unit_strindex);
	if (in->period_type) {
		k.period_type = otlp_string_at(d, in->period_type->type_strindex);
		k.period_unit = otlp_string_at(d, in->period_type->unit_strindex);
	}
	if (strnlen(k.type, OTLP_MAX_TYPE_BYTES + 1) > OTLP_MAX_TYPE_BYTES ||
	    strnlen(k.unit, OTLP_MAX_TYPE_BYTES + 1) > OTLP_MAX_TYPE_BYTES ||
	    strnlen(k.period_type, OTLP_MAX_TYPE_BYTES + 1) > OTLP_MAX_TYPE_BYTES ||
	    strnlen(k.period_unit, OTLP_MAX_TYPE_BYTES + 1) > OTLP_MAX_TYPE_BYTES)
		return diag_set(d->diag, -EBADMSG, "a sample type's name is longer than %d bytes",
				OTLP_MAX_TYPE_BYTES);
	*ret = k;
	return 0;
}

static int init_group(struct otlp_decoder *d, struct otlp_group *g, const struct group_key *k)
{
	const Otlp__ProfilesDictionary *t = d->d;
	struct profile *p = g->p = profile_create();
	int r;

	g->type = k->type;
	g->unit = k->unit;
	g->period_type = k->period_type;
	g->period_unit = k->period_unit;
	g->period = k->period;
	g->left = INT64_MAX;
	g->strings = calloc(t->n_string_table + 1, sizeof(u32));
	g->mappings = calloc(t->n_mapping_table + 1, sizeof(u32));
	g->functions = calloc(t->n_function_table + 1, sizeof(u32));
	g->stacks = calloc(t->n_stack_table + 1, sizeof(u32));
	g->kinds = calloc(t->n_mapping_table + 1, 1);
	g->locations = calloc(t->n_location_table + 1, sizeof(struct otlp_location));
	if (!p || !g->strings || !g->mappings || !g->functions || !g->stacks || !g->kinds ||
	    !g->locations)
		return -ENOMEM;
	r = profile_add_type(p, k->type, k->unit);
	if (r == 0)
		r = otlp_add_text(p, k->period_type, &p->period_name);
	if (r == 0)
		r = otlp_add_text(p, k->period_unit, &p->period_unit);
	p->period = k->period;
	return r;
}

static struct otlp_group *find_group(struct otlp_decoder *d, const struct group_key *k)
{
	vec_foreach (&d->groups, g)
		if (!strcmp(g->type, k->type) && !strcmp(g->unit, k->unit) &&
		    !strcmp(g->period_type, k->period_type) &&
		    !strcmp(g->period_unit, k->period_unit) && g->period == k->period)
			return g;
	return NULL;
}

static int get_group(struct otlp_decoder *d, const Otlp__Profile *in, struct otlp_group **ret)
{
	struct group_key k = {};
	struct otlp_group *g;
	int r = read_key(d, in, &k);

	if (r < 0)
		return r;
	g = find_group(d, &k);
	if (!g) {
		if (d->groups.n == OTLP_MAX_GROUPS)
			return diag_set(d->diag, -EBADMSG,
					"more than %d value types in one request", OTLP_MAX_GROUPS);
		if (d->arena->used + (d->groups.n + 1) * d->group_bytes > d->arena->limit)
			return -E2BIG;
		r = vec_push(&d->groups, (struct otlp_group){});
		if (r < 0)
			return r;
		g = &d->groups.data[d->groups.n - 1];
		r = init_group(d, g, &k);
		if (r < 0)
			return r;
	}
	*ret = g;
	return 0;
}

static u64 end_of(const Otlp__Profile *in)
{
	u64 end;

	return __builtin_add_overflow(in->time_unix_nano, in->duration_nano, &end) ? UINT64_MAX
										   : end;
}

/* Sets the time range of the group, before its first sample is added. */
static void note_time(struct otlp_group *g, const Otlp__Profile *in)
{
	if (!in->time_unix_nano)
		return;
	if (g->time_ns && g->time_ns != in->time_unix_nano)
		g->times_differ = true;
	if (!g->time_ns || in->time_unix_nano < g->time_ns)
		g->time_ns = in->time_unix_nano;
	g->end_ns = MAX(g->end_ns, end_of(in));
}

/* ---- the request ---- */

typedef int profile_fn(struct otlp_decoder *d, const Otlp__Profile *in);

/* Whether the error lies in the profile. Any other error, such as -ENOMEM, ends the request. */
static bool is_own_error(int r)
{
	return r == -EBADMSG || r == -ERANGE;
}

static int first_pass(struct otlp_decoder *d, const Otlp__Profile *in)
{
	struct diag *outer = d->diag, later = {};
	struct otlp_group *g = NULL;
	int r;

	/* The second pass says what is wrong. */
	d->diag = &later;
	r = get_group(d, in, &g);
	d->diag = outer;
	if (g)
		note_time(g, in);
	return is_own_error(r) ? 0 : r;
}

static int second_pass(struct otlp_decoder *d, const Otlp__Profile *in)
{
	struct diag why = {}, *outer = d->diag;
	struct otlp_group *g = NULL;
	s64 left = 0;
	int r;

	d->diag = &why;
	r = get_group(d, in, &g);
	if (g)
		r = otlp_check_profile(d, g, in, &left);
	if (g && r == 0) {
		g->left = left;
		r = take_profile(d, g, in);
	}
	d->diag = outer;
	if (is_own_error(r)) {
		if (!d->out->rejected++)
			d->out->why = why;
		return 0;
	}
	return r < 0 && why.text[0] ? diag_set(outer, r, "%s", why.text) : r;
}

static int each_profile(struct otlp_decoder *d, profile_fn *fn)
{
	int r = 0;

	for (size_t i = 0; i < d->in->n_resource_profiles && r == 0; i++) {
		const Otlp__ResourceProfiles *rp = d->in->resource_profiles[i];

		read_process(d, rp->resource);
		for (size_t j = 0; j < rp->n_scope_profiles && r == 0; j++)
			for (size_t k = 0; k < rp->scope_profiles[j]->n_profiles && r == 0; k++)
				r = fn(d, rp->scope_profiles[j]->profiles[k]);
	}
	return r;
}

/* Takes the report of the sender: the attributes of the first scope that has any. */
static int take_agent(struct otlp_decoder *d, struct otlp_group *g)
{
	for (size_t i = 0; i < d->in->n_resource_profiles; i++) {
		const Otlp__ResourceProfiles *rp = d->in->resource_profiles[i];

		for (size_t j = 0; j < rp->n_scope_profiles; j++) {
			const Otlp__InstrumentationScope *s = rp->scope_profiles[j]->scope;

			if (s && s->n_attributes)
				return take_labels(d, g, s->attributes, s->n_attributes,
						   &g->p->agent);
		}
	}
	return 0;
}

static int hand_over(struct otlp_decoder *d)
{
	int r = vec_reserve(&d->out->profiles, d->groups.n);

	if (r < 0)
		return r;
	vec_foreach (&d->groups, g) {
		struct profile_quality *q = &g->p->quality;

		g->p->time_ns = g->time_ns;
		g->p->duration_ns = g->end_ns - g->time_ns;
		if (!q->measured)
			profile_derive_quality(g->p);
		/* All profiles of the group were rejected. */
		if (!g->p->n_samples && !q->measured)
			continue;
		if (!d->out->profiles.n)
			r = take_agent(d, g);
		if (r == 0)
			r = vec_push(&d->out->profiles, take_ptr(g->p));
		if (r < 0)
			return r;
	}
	return 0;
}

int otlp_decode_request(const Otlp__ExportProfilesServiceRequest *in, struct arena *arena,
			struct otlp_profiles *ret, struct diag *reterr_diag)
{
	static const Otlp__ProfilesDictionary empty = OTLP__PROFILES_DICTIONARY__INIT;
	struct otlp_profiles out = {};
	__attribute__((cleanup(decoder_deinit))) struct otlp_decoder d = {
		.in = in,
		.d = in->dictionary ? in->dictionary : &empty,
		.arena = arena,
		.out = &out,
		.diag = reterr_diag,
	};
	int r;

	d.mapping_verdicts = arena_calloc(arena, d.d->n_mapping_table + 1, 1);
	d.location_verdicts = arena_calloc(arena, d.d->n_location_table + 1, 1);
	d.stack_verdicts = arena_calloc(arena, d.d->n_stack_table + 1, 1);
	if (!d.mapping_verdicts || !d.location_verdicts || !d.stack_verdicts)
		return diag_set(reterr_diag, -E2BIG, "the request needs too much memory");
	d.group_bytes = d.d->n_string_table * 4 + d.d->n_mapping_table * 5 +
			d.d->n_function_table * 4 + d.d->n_stack_table * 4 +
			d.d->n_location_table * sizeof(struct otlp_location);
	r = each_profile(&d, first_pass);
	if (r == 0)
		r = each_profile(&d, second_pass);
	if (r == 0)
		r = hand_over(&d);
	if (r < 0) {
		otlp_profiles_deinit(&out);
		return diag_set(reterr_diag, r, "cannot read the request: %s", strerror(-r));
	}
	*ret = out;
	return 0;
}

int otlp_profiles_decode(const u8 *data, size_t n, size_t max_bytes, struct otlp_profiles *ret,
			 struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCMessage *in = NULL;
	int r = pb_unpack(&otlp__export_profiles_service_request__descriptor,
			  "an OTLP profiles request" OTLP_OLD_LAYOUT, data, n, &arena, &in,
			  reterr_diag);

	if (r < 0)
		return r;
	return otlp_decode_request((const Otlp__ExportProfilesServiceRequest *)in, &arena, ret,
				   reterr_diag);
}

void otlp_profiles_deinit(struct otlp_profiles *p)
{
	vec_foreach (&p->profiles, profile)
		profile_destroy(*profile);
	vec_deinit(&p->profiles);
}
