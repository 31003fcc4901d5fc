/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes the attributes that threads publish into labels. The bytes come from the process and may
 * be anything: an incomplete attribute ends the set, texts become clean UTF-8, and names that
 * identify a thread or process are rejected.
 *
 * Each set of labels is a series of its own wherever profiles are stored. The number of values per
 * name, of values, and of sets that a process can create in an hour is therefore bounded; labels
 * above the bounds are omitted and counted.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/context/internal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_NAME 128
#define HOUR_NS 3600000000000ULL

bool attribute_next(struct buf *b, u32 form, struct attribute *ret)
{
	struct attribute a = {};
	u8 first, n;

	if (!buf_u8(b, &first) || !buf_u8(b, &n))
		return false;
	if (form == ATTRIBUTES_NUMBERED) {
		a.number = first;
	} else {
		a.cut = n & ATTRIBUTE_CUT;
		n &= (u8)~ATTRIBUTE_CUT;
		if (!buf_take(b, first, &a.name))
			return false;
	}
	if (!buf_take(b, n, &a.text))
		return false;
	*ret = a;
	return true;
}

/* ---- names ---- */

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, list[i]))
			return true;
	return false;
}

bool attribute_is_taken(const char *name)
{
	/* Prefixes of names that the agent determines itself, and ids, which samples carry as
	 * links. */
	static const char *const of_others[] = {"process.", "thread.",	  "service.",
						"host.",    "container.", "k8s.",
						"culprit.", "telemetry.", "threadlocal."};
	static const char *const ids[] = {
		"trace_id",   "trace id",	    "span_id",	    "span id",
		"profile_id", "local root span id", "otel.traceid", "datadog.local_root_span_id",
	};

	for (size_t i = 0; i < ARRAY_SIZE(of_others); i++)
		if (str_starts(name, of_others[i]))
			return true;
	return !*name || strlen(name) > MAX_NAME || is_one_of(name, ids, ARRAY_SIZE(ids));
}

/* ---- values ---- */

/* Returns the length of the text without an incomplete character at its end. */
static size_t complete_length(const char *s, size_t n)
{
	u32 c;

	for (size_t back = 1; back <= 3 && back <= n; back++) {
		if (((u8)s[n - back] & 0xc0) == 0x80)
			continue;
		return text_decode(s + n - back, back, &c) ? n : n - back;
	}
	return n;
}

/* Appends the text to `out` as clean UTF-8, with a NUL. */
static void append_text(struct str *out, const struct buf *bytes, bool cut)
{
	char text[256];
	size_t n = MIN(buf_left(bytes), sizeof(text) - 1);

	if (n)
		memcpy(text, bytes->pos, n);
	for (size_t i = 0; i < n; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[cut ? complete_length(text, n) : n] = '\0';
	text_append_clean(out, text, 0);
	str_puts(out, cut ? "…" : "");
	(void)str_append(out, "", 1);
}

/* ---- bounds ---- */

void attribute_bounds_deinit(struct attribute_bounds *b)
{
	map_deinit(&b->known);
}

void attribute_bounds_begin(struct attribute_bounds *b, u64 now_ns)
{
	if (b->hour && now_ns - b->since_ns < HOUR_NS)
		return;
	map_clear(&b->known);
	b->since_ns = now_ns;
	b->hour++;
}

static u64 key_of(u64 owner, const char *name, const char *text)
{
	u64 parts[] = {owner, name ? hash_bytes(name, strlen(name)) : 0,
		       text ? hash_bytes(text, strlen(text)) + 1 : 0};

	return hash_bytes(parts, sizeof(parts)) >> 1;
}

/* Whether `key` is known already, or there is room for it. */
static bool admit_key(struct attribute_bounds *b, u64 key, u32 *n, u32 max)
{
	if (map_get(&b->known, key))
		return true;
	if (*n >= max || b->known.n >= ATTRIBUTES_MAX_KNOWN || map_put(&b->known, key, 1) < 0)
		return false;
	++*n;
	return true;
}

bool attribute_admit(struct attribute_bounds *b, struct attribute_share *s, const char *name,
		     const char *text)
{
	u64 name_key = key_of(s->owner, name, NULL), *of_name;
	u32 n;

	if (s->hour != b->hour)
		*s = (struct attribute_share){.owner = s->owner, .hour = b->hour};
	if (map_get(&b->known, key_of(s->owner, name, text)))
		return true;
	of_name = map_get(&b->known, name_key);
	n = of_name ? (u32)*of_name : 0;
	return n < ATTRIBUTES_MAX_OF_NAME &&
	       admit_key(b, key_of(s->owner, name, text), &s->n_texts, ATTRIBUTES_MAX_TEXTS) &&
	       map_put(&b->known, name_key, n + 1) == 0;
}

static bool admit_set(struct attribute_bounds *b, struct attribute_share *s,
		      const struct context_label *labels, u32 n)
{
	u64 sum = 0;

	/* The sum does not depend on the order of the labels. */
	for (u32 i = 0; i < n; i++)
		sum += key_of(s->owner, labels[i].name, labels[i].value);
	return admit_key(b, hash_u64(sum) >> 1, &s->n_sets, ATTRIBUTES_MAX_SETS);
}

static void warn_once(struct attribute_share *s, u32 pid, const char *what)
{
	if (!s->said)
		log_warn("pid %u: too many distinct attributes (%s): further ones are omitted "
			 "from its samples for an hour, and counted",
			 pid, what);
	s->said = true;
}

/* ---- sets ---- */

static const char *name_of(const struct attribute_names *names, u32 number)
{
	return number < names->at.n ? names->text.data + names->at.data[number] : NULL;
}

/* Appends name and value of an attribute to `out`. False: the name is not allowed. */
static bool append_label(struct str *out, const struct attribute *a, u32 form,
			 const struct attribute_names *names, size_t *ret_name, size_t *ret_value)
{
	const char *known = form == ATTRIBUTES_NUMBERED ? name_of(names, a->number) : NULL;
	struct buf name = known ? buf_of(known, strlen(known)) : a->name;

	*ret_name = out->n;
	append_text(out, &name, false);
	*ret_value = out->n;
	append_text(out, &a->text, a->cut);
	return !out->failed && out->data[*ret_value] && !attribute_is_taken(out->data + *ret_name);
}

u32 attributes_decode(const struct record_attributes *head, const u8 *bytes,
		      const struct attribute_names *names, struct attribute_bounds *bounds,
		      struct attribute_share *share, struct str *texts,
		      struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial)
{
	size_t at[CONTEXT_MAX_ATTRIBUTES][2];
	struct buf b = buf_of(bytes, head->n);
	bool partial = head->left_out;
	struct attribute a;
	u32 n = 0;

	str_clear(texts);
	while (attribute_next(&b, head->form, &a)) {
		size_t name, value;

		if (!append_label(texts, &a, head->form, names, &name, &value))
			continue;
		if (n == CONTEXT_MAX_ATTRIBUTES ||
		    !attribute_admit(bounds, share, texts->data + name, texts->data + value)) {
			warn_once(share, head->pid, texts->data + name);
			partial = true;
			continue;
		}
		at[n][0] = name;
		at[n++][1] = value;
	}
	for (u32 i = 0; i < n; i++)
		ret[i] = (struct context_label){texts->data + at[i][0], texts->data + at[i][1]};
	if (n && !admit_set(bounds, share, ret, n)) {
		warn_once(share, head->pid, "combinations");
		partial = true;
		n = 0;
	}
	*ret_partial = partial;
	return n;
}

bool attributes_have_names(const struct record_attributes *head, const u8 *bytes,
			   const struct attribute_names *names)
{
	struct buf b = buf_of(bytes, head->n);
	struct attribute a;

	while (head->form == ATTRIBUTES_NUMBERED && attribute_next(&b, head->form, &a))
		if (a.number >= names->at.n)
			return false;
	return true;
}

/* ---- the names of a process ---- */

void attribute_names_deinit(struct attribute_names *n)
{
	vec_deinit(&n->at);
	str_deinit(&n->text);
}

int attribute_names_add(struct attribute_names *n, const char *name)
{
	u32 at = (u32)n->text.n;
	int r;

	if (n->at.n == ATTRIBUTES_MAX_NAMES)
		return 0;
	r = str_append(&n->text, name, strlen(name) + 1);
	return r < 0 ? r : vec_push(&n->at, at);
}
