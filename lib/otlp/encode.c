/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes OTLP profiles. Samples are sorted by resource and stack, so that each Profile and each
 * Sample is a run of them. They refer to entries of the dictionary (encode_dictionary.c).
 */
#include "otlp/otlp.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "otlp/encoder.h"

#define WRITE_LIMIT_BYTES (16ULL << 30)
#define RESPONSE_LIMIT_BYTES (4ULL << 20)
#define MAX_ATTRIBUTES 8 /* of one sample, mapping, location or profile */

/* A sample, with the keys that it is sorted by. */
struct entry {
	u32 resource; /* id in writer.resources */
	u32 timed;    /* 0 or 1: all samples of a profile have the same shape */
	u32 stack;    /* index in the dictionary */
	u32 thread;   /* id in writer.attribute_sets: the thread, and its own attributes */
	u32 link;     /* index in the dictionary */
	u64 time_ns;
	u32 sample; /* index in the profile */
};

struct writer {
	const struct profile *p;
	const u8 *profile_id; /* or NULL */
	struct otlp_dict d;
	struct strtab resources;      /* packed Resource messages */
	struct strtab attribute_sets; /* of samples: arrays of s32 */
	/* Owned; indexed by thread; the last entry is for samples without a thread. */
	struct {
		u32 resource, set;
	} * threads;
	u8 *thread_done; /* owned; bool */
	vec(struct entry) entries;
	vec(Otlp__Profile *) profiles; /* of the current resource */
	u32 n_profiles;
	bool quality_done[PROFILE_MAX_TYPES], agent_done;
};

static void writer_deinit(struct writer *w)
{
	otlp_dict_deinit(&w->d);
	strtab_deinit(&w->resources);
	strtab_deinit(&w->attribute_sets);
	free(w->threads);
	free(w->thread_done);
	vec_deinit(&w->entries);
	vec_deinit(&w->profiles);
}

static int writer_init(struct writer *w)
{
	if (otlp_dict_init(&w->d) < 0 || strtab_init(&w->resources) < 0 ||
	    strtab_init(&w->attribute_sets) < 0)
		return -ENOMEM;
	w->threads = calloc(w->p->threads.n + 1, sizeof(*w->threads));
	w->thread_done = calloc(w->p->threads.n + 1, 1);
	return w->threads && w->thread_done ? 0 : -ENOMEM;
}

/* ---- resources and threads ---- */

/* Cleaning may have made names equal. */
static bool has_key(const Otlp__Resource *r, const char *key)
{
	for (size_t i = 0; i < r->n_attributes; i++)
		if (!strcmp(r->attributes[i]->key, key))
			return true;
	return false;
}

static void add_label(struct writer *w, Otlp__Resource *r, const char *key, const char *value,
		      bool number, s64 n)
{
	Otlp__KeyValue *kv = otlp_dict_alloc(&w->d, 1, sizeof(*kv));
	Otlp__AnyValue *v = otlp_dict_alloc(&w->d, 1, sizeof(*v));

	if (!kv || !v)
		return;
	otlp__key_value__init(kv);
	otlp__any_value__init(v);
	kv->key = otlp_dict_copy(&w->d, key);
	kv->value = v;
	v->value_case =
		number ? OTLP__ANY_VALUE__VALUE_INT_VALUE : OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	if (number)
		v->int_value = n;
	else
		v->string_value = otlp_dict_copy(&w->d, value);
	if (kv->key && *kv->key && (number || v->string_value) && !has_key(r, kv->key))
		r->attributes[r->n_attributes++] = kv;
}

/* Plain keys and values: receivers do not look up references to the dictionary here. */
static u32 make_resource(struct writer *w, const struct profile_thread *t)
{
	const struct profile_resource *labels = &w->p->resources.data[t->resource];
	const char *comm = profile_string(w->p, t->comm);
	const char *executable = profile_label(w->p, t->resource, OTLP_EXECUTABLE);
	Otlp__Resource r = OTLP__RESOURCE__INIT;

	r.attributes = otlp_dict_alloc(&w->d, labels->n + 3, sizeof(*r.attributes));
	if (!r.attributes)
		return 0;
	for (u32 i = 0; i < labels->n; i++) {
		const struct profile_label *l = &w->p->labels.data[labels->first + i];
		const char *name = profile_string(w->p, l->name);

		if (strcmp(name, OTLP_PID) || !t->pid)
			add_label(w, &r, name, profile_string(w->p, l->value), false, 0);
	}
	if (t->pid)
		add_label(w, &r, OTLP_PID, NULL, true, t->pid);
	if (*comm && !executable)
		add_label(w, &r, OTLP_EXECUTABLE, comm, false, 0);
	/* Write it even if it is "", or a reader takes the label for it. */
	else if (executable && strcmp(comm, executable) != 0)
		add_label(w, &r, OTLP_COMM, comm, false, 0);
	return w->d.failed ? 0 : otlp_dict_intern(&w->d, &w->resources, &r.base);
}

struct attribute_set {
	s32 ids[2 + PROFILE_MAX_LABELS], keys[2 + PROFILE_MAX_LABELS];
	size_t n;
};

/* Skip names that are there already, because cleaning may make names equal, and reserved names. */
static void add_attribute(struct writer *w, struct attribute_set *set,
			  const struct profile_label *l)
{
	const char *name = profile_string(w->p, l->name);
	s32 key = otlp_is_threads_own(name) ? 0 : otlp_dict_text(&w->d, name);

	for (size_t i = 0; i < set->n && key; i++)
		if (set->keys[i] == key)
			return;
	if (!key)
		return;
	set->keys[set->n] = key;
	set->ids[set->n++] = otlp_dict_attribute(&w->d, name, profile_string(w->p, l->value));
}

static u32 make_attribute_set(struct writer *w, const struct profile_thread *t)
{
	const struct profile_resource *more = &w->p->resources.data[t->attributes];
	const char *name = profile_string(w->p, t->thread_name);
	struct attribute_set set = {};
	u32 id = 0;

	if (*name)
		set.ids[set.n++] = otlp_dict_attribute(&w->d, OTLP_THREAD_NAME, name);
	if (t->tid)
		set.ids[set.n++] = otlp_dict_number(&w->d, OTLP_THREAD_ID, t->tid);
	for (u32 i = 0; i < more->n; i++)
		add_attribute(w, &set, &w->p->labels.data[more->first + i]);
	w->d.failed |= strtab_add(&w->attribute_sets, (const char *)set.ids,
				  set.n * sizeof(*set.ids), &id) < 0;
	return id;
}

/* The index of a sample's thread in w->threads. */
static size_t use_thread(struct writer *w, u32 thread)
{
	const struct profile *p = w->p;

	if (thread >= p->threads.n)
		return p->threads.n;
	if (!w->thread_done[thread]) {
		w->threads[thread].resource = make_resource(w, &p->threads.data[thread]);
		w->threads[thread].set = make_attribute_set(w, &p->threads.data[thread]);
		w->thread_done[thread] = 1;
	}
	return thread;
}

/* ---- samples ---- */

static int by_place(const void *a_, const void *b_)
{
	const struct entry *a = a_, *b = b_;

#define COMPARE(field)                                                                             \
	if (a->field != b->field)                                                                  \
	return a->field < b->field ? -1 : 1
	COMPARE(resource);
	COMPARE(timed);
	COMPARE(stack);
	COMPARE(thread);
	COMPARE(link);
	COMPARE(time_ns);
	COMPARE(sample);
#undef COMPARE
	return 0;
}

static int collect_entries(struct writer *w)
{
	int r = vec_reserve(&w->entries, w->p->n_samples + 1);

	for (size_t i = 0; i < w->p->n_samples && r == 0 && !w->d.failed; i++) {
		const struct profile_sample *s = profile_sample(w->p, i);
		size_t t = use_thread(w, s->thread);
		struct entry e = {
			.resource = w->threads[t].resource,
			.thread = w->threads[t].set,
			.timed = s->time_ns != 0,
			.stack = otlp_dict_stack(&w->d, s->stack),
			.link = otlp_dict_link(&w->d, s->link),
			.time_ns = s->time_ns,
			.sample = (u32)i,
		};

		r = vec_push(&w->entries, e);
	}
	if (r < 0 || w->d.failed)
		return -ENOMEM;
	if (w->entries.n)
		qsort(w->entries.data, w->entries.n, sizeof(struct entry), by_place);
	return 0;
}

static s64 value_of(const struct writer *w, const struct entry *e, u32 type)
{
	return profile_sample(w->p, e->sample)->value[type];
}

/*
 * Writes one Sample from n entries with the same stack, thread and link. Entries with value 0 are
 * left out.
 */
static Otlp__Sample *make_sample(struct writer *w, const struct entry *e, size_t n, u32 type,
				 bool with_values)
{
	Otlp__Sample *s = otlp_dict_alloc(&w->d, 1, sizeof(*s));
	const char *set = strtab_get(&w->attribute_sets, e->thread);
	u32 set_bytes = w->attribute_sets.lengths[e->thread];
	size_t any = 0;

	for (size_t i = 0; i < n; i++)
		any += value_of(w, &e[i], type) != 0;
	if (!any || !s)
		return NULL;
	otlp__sample__init(s);
	s->stack_index = (s32)e->stack;
	s->link_index = (s32)e->link;
	s->n_attribute_indices = set_bytes / sizeof(s32);
	s->attribute_indices = otlp_dict_alloc(&w->d, 1, set_bytes);
	s->values = otlp_dict_alloc(&w->d, e->timed ? any : 1, sizeof(*s->values));
	if (e->timed)
		s->timestamps_unix_nano =
			otlp_dict_alloc(&w->d, any, sizeof(*s->timestamps_unix_nano));
	if (w->d.failed)
		return NULL;
	memcpy(s->attribute_indices, set, set_bytes);
	for (size_t i = 0; i < n; i++) {
		s64 value = value_of(w, &e[i], type);

		if (!value)
			continue;
		if (e->timed)
			s->timestamps_unix_nano[s->n_timestamps_unix_nano++] = e[i].time_ns;
		if (e->timed && with_values)
			s->values[s->n_values++] = value;
		else if (!e->timed)
			s->values[0] += value;
	}
	if (!e->timed)
		s->n_values = 1;
	return s;
}

/* How many of the entries form one Sample: those with the same stack, thread and link. */
static size_t sample_length(const struct entry *e, size_t n)
{
	size_t i = 1;

	while (i < n && e[i].stack == e->stack && e[i].thread == e->thread && e[i].link == e->link)
		i++;
	return i;
}

/* ---- profiles ---- */

static Otlp__ValueType *value_type(struct writer *w, u32 name, u32 unit)
{
	Otlp__ValueType *t = otlp_dict_alloc(&w->d, 1, sizeof(*t));

	if (t) {
		otlp__value_type__init(t);
		t->type_strindex = otlp_dict_string(&w->d, name);
		t->unit_strindex = otlp_dict_string(&w->d, unit);
	}
	return t;
}

/* Sets the time range of the profile, widened to include all its samples. */
static void set_time(struct writer *w, Otlp__Profile *out)
{
	u64 start = w->p->time_ns, end = start + w->p->duration_ns;

	for (size_t i = 0; i < out->n_samples; i++) {
		const Otlp__Sample *s = out->samples[i];

		if (!s->n_timestamps_unix_nano)
			continue;
		if (!start || s->timestamps_unix_nano[0] < start)
			start = s->timestamps_unix_nano[0];
		if (s->timestamps_unix_nano[s->n_timestamps_unix_nano - 1] >= end)
			end = s->timestamps_unix_nano[s->n_timestamps_unix_nano - 1] + 1;
	}
	out->time_unix_nano = start;
	out->duration_nano = end - start;
}

static void add_quality(struct writer *w, Otlp__Profile *out)
{
	static const struct otlp_quality_field fields[] = OTLP_QUALITY_FIELDS;
	const char *title = profile_string(w->p, w->p->title);

	out->attribute_indices =
		otlp_dict_alloc(&w->d, MAX_ATTRIBUTES, sizeof(*out->attribute_indices));
	if (w->d.failed)
		return;
	if (*title)
		out->attribute_indices[out->n_attribute_indices++] =
			otlp_dict_attribute(&w->d, OTLP_TITLE, title);
	for (size_t i = 0; w->p->quality.measured && i < ARRAY_SIZE(fields); i++) {
		u64 v;

		memcpy(&v, (const u8 *)&w->p->quality + fields[i].offset, sizeof(v));
		out->attribute_indices[out->n_attribute_indices++] =
			otlp_dict_number(&w->d, fields[i].name, (s64)MIN(v, (u64)INT64_MAX));
	}
}

static void set_id(struct writer *w, Otlp__Profile *out)
{
	u8 *id;
	u32 n = w->n_profiles++;

	if (!w->profile_id)
		return;
	id = otlp_dict_alloc(&w->d, 1, 16);
	if (!id)
		return;
	memcpy(id, w->profile_id, 16);
	for (u32 i = 0; i < 4; i++)
		id[15 - i] ^= (u8)(n >> (8 * i));
	out->profile_id.data = id;
	out->profile_id.len = 16;
}

/* Writes a Profile: one value type, and n entries with the same resource and shape. */
static Otlp__Profile *make_profile(struct writer *w, const struct entry *e, size_t n, u32 type)
{
	Otlp__Profile *out = otlp_dict_alloc(&w->d, 1, sizeof(*out));
	const struct profile *p = w->p;
	bool with_values = false;

	if (!out)
		return NULL;
	otlp__profile__init(out);
	out->samples = otlp_dict_alloc(&w->d, n, sizeof(*out->samples));
	for (size_t i = 0; i < n; i++)
		with_values |= value_of(w, &e[i], type) != 0 && value_of(w, &e[i], type) != 1;
	for (size_t i = 0; i < n && !w->d.failed;) {
		size_t k = sample_length(e + i, n - i);
		Otlp__Sample *s = make_sample(w, e + i, k, type, with_values);

		if (s)
			out->samples[out->n_samples++] = s;
		i += k;
	}
	if (w->d.failed || (n && !out->n_samples))
		return NULL;
	out->sample_type = value_type(w, p->types[type].name, p->types[type].unit);
	if (p->period_name || p->period) {
		out->period_type = value_type(w, p->period_name, p->period_unit);
		out->period = p->period;
	}
	set_time(w, out);
	set_id(w, out);
	if (!w->quality_done[type])
		add_quality(w, out);
	w->quality_done[type] = true;
	return out;
}

/* Writes the Profiles of one resource into w->profiles. */
static void make_profiles(struct writer *w, const struct entry *e, size_t n)
{
	size_t untimed = 0;

	vec_clear(&w->profiles);
	while (untimed < n && !e[untimed].timed)
		untimed++;
	for (u32 type = 0; type < w->p->n_types && !w->d.failed; type++) {
		Otlp__Profile *a = NULL, *b = NULL;

		if (untimed || !n)
			a = make_profile(w, e, untimed, type);
		if (untimed < n)
			b = make_profile(w, e + untimed, n - untimed, type);
		if ((a && vec_push(&w->profiles, a) < 0) || (b && vec_push(&w->profiles, b) < 0))
			w->d.failed = true;
	}
}

/* Once in a request is enough. Receivers that do not know these attributes keep them. */
static void add_agent(struct writer *w, Otlp__InstrumentationScope *scope)
{
	const struct profile_resource *labels = &w->p->resources.data[w->p->agent];
	Otlp__Resource r = OTLP__RESOURCE__INIT;

	r.attributes = otlp_dict_alloc(&w->d, labels->n + 1, sizeof(*r.attributes));
	for (u32 i = 0; r.attributes && i < labels->n; i++) {
		const struct profile_label *l = &w->p->labels.data[labels->first + i];

		add_label(w, &r, profile_string(w->p, l->name), profile_string(w->p, l->value),
			  false, 0);
	}
	scope->attributes = r.attributes;
	scope->n_attributes = r.n_attributes;
}

static Otlp__PackedResourceProfiles *make_resource_profiles(struct writer *w, u32 resource)
{
	Otlp__PackedResourceProfiles *out = otlp_dict_alloc(&w->d, 1, sizeof(*out));
	Otlp__ScopeProfiles *scope = otlp_dict_alloc(&w->d, 1, sizeof(*scope));
	Otlp__InstrumentationScope *name = otlp_dict_alloc(&w->d, 1, sizeof(*name));

	if (!out || !scope || !name)
		return NULL;
	otlp__packed_resource_profiles__init(out);
	otlp__scope_profiles__init(scope);
	otlp__instrumentation_scope__init(name);
	name->name = otlp_dict_copy(&w->d, "culprit");
	name->version = otlp_dict_copy(&w->d, CULPRIT_VERSION);
	if (w->p->agent && !w->agent_done)
		add_agent(w, name);
	w->agent_done = true;
	scope->scope = name;
	scope->n_profiles = w->profiles.n;
	scope->profiles = otlp_dict_alloc(&w->d, w->profiles.n, sizeof(*scope->profiles));
	out->scope_profiles = otlp_dict_alloc(&w->d, 1, sizeof(*out->scope_profiles));
	if (w->d.failed)
		return NULL;
	memcpy(scope->profiles, w->profiles.data, w->profiles.n * sizeof(*scope->profiles));
	out->scope_profiles[out->n_scope_profiles++] = scope;
	out->resource.len = w->resources.lengths[resource];
	out->resource.data = (u8 *)w->resources.bytes + w->resources.offsets[resource];
	return out;
}

static void make_request(struct writer *w, Otlp__PackedRequest *out)
{
	size_t n = w->entries.n;

	out->resource_profiles =
		otlp_dict_alloc(&w->d, w->resources.n + 1, sizeof(*out->resource_profiles));
	for (size_t i = 0, k; i <= n && !w->d.failed; i += MAX(k, (size_t)1)) {
		const struct entry *e = w->entries.data + i;

		/* A request without samples still reports lost samples. */
		if (i == n && out->n_resource_profiles)
			break;
		for (k = 0; i + k < n && e[k].resource == e->resource;)
			k++;
		make_profiles(w, e, k);
		if (w->profiles.n && !w->d.failed)
			out->resource_profiles[out->n_resource_profiles++] =
				make_resource_profiles(w, k ? e->resource : 0);
	}
}

static int pack(const Otlp__PackedRequest *request, struct str *out)
{
	size_t n = otlp__packed_request__get_packed_size(request);
	_cleanup_free_ u8 *bytes = malloc(n + 1);

	if (!bytes)
		return -ENOMEM;
	otlp__packed_request__pack(request, bytes);
	return str_append(out, bytes, n);
}

static int encode(struct writer *w, struct str *out)
{
	Otlp__PackedRequest request = OTLP__PACKED_REQUEST__INIT;
	Otlp__PackedDictionary dictionary = OTLP__PACKED_DICTIONARY__INIT;
	int r = writer_init(w);

	if (r < 0)
		return r;
	r = collect_entries(w);
	if (r < 0)
		return r;
	make_request(w, &request);
	if (!w->d.failed)
		otlp_dict_write(&w->d, &dictionary);
	if (w->d.failed)
		return -ENOMEM;
	request.dictionary = &dictionary;
	return pack(&request, out);
}

int otlp_profiles_encode(const struct profile *p, const u8 profile_id[16], struct str *out,
			 struct diag *reterr_diag)
{
	__attribute__((cleanup(writer_deinit))) struct writer w = {
		.p = p,
		.profile_id = profile_id,
		.d = {.p = p, .arena = ARENA_INIT(WRITE_LIMIT_BYTES)},
	};
	int r;

	if (!p->n_types)
		return diag_set(reterr_diag, -EINVAL, "a profile without a value type");
	if (p->n_samples > UINT32_MAX)
		return diag_set(reterr_diag, -E2BIG, "a profile of %zu samples", p->n_samples);
	r = encode(&w, out);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot write OTLP: %s", strerror(-r));
	return 0;
}

int otlp_profiles_response(u64 rejected, const char *message, struct str *out)
{
	Otlp__ExportProfilesPartialSuccess partial = OTLP__EXPORT_PROFILES_PARTIAL_SUCCESS__INIT;
	Otlp__ExportProfilesServiceResponse response = OTLP__EXPORT_PROFILES_SERVICE_RESPONSE__INIT;
	u8 bytes[1024];
	char text[512] = "";

	/* Without a rejection or a text the message is empty. */
	if (rejected || (message && *message)) {
		snprintf(text, sizeof(text), "%s", message ? message : "");
		partial.rejected_profiles = (s64)MIN(rejected, (u64)INT64_MAX);
		partial.error_message = text;
		response.partial_success = &partial;
	}
	return str_append(out, bytes,
			  otlp__export_profiles_service_response__pack(&response, bytes));
}

int otlp_profiles_read_response(const u8 *data, size_t n, u64 *ret_rejected,
				struct diag *ret_message)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(RESPONSE_LIMIT_BYTES);
	ProtobufCAllocator allocator = pb_allocator(&arena);
	const Otlp__ExportProfilesServiceResponse *in =
		otlp__export_profiles_service_response__unpack(&allocator, n, data);

	if (!in)
		return -EBADMSG;
	if (!in->partial_success)
		return 0;
	*ret_rejected = (u64)MAX(in->partial_success->rejected_profiles, (int64_t)0);
	if (*in->partial_success->error_message)
		diag_set(ret_message, 0, "%s", in->partial_success->error_message);
	return 0;
}
