/* SPDX-License-Identifier: Apache-2.0 */
/* Adds labels and times that a profile does not contain. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/clock.h"
#include "server/ingest/internal.h"

#define MAX_LABELS 64
#define MAX_VALUE_BYTES 2048
#define NS_PER_MS 1000000ULL

/* Pyroscope's names have no dots; everything is sorted by service. */
static const struct {
	const char *theirs, *ours;
} renamed[] = {
	{"service_name", "service.name"},
	{"service_namespace", "service.namespace"},
	{"service_version", "service.version"},
	{"host_name", "host.name"},
};

static int add_text(struct profile *p, const char *s, size_t n, u32 *ret)
{
	return profile_add_string(p, s, n, ret);
}

int ingest_label_add(struct ingest_labels *l, struct profile *p, const char *name, size_t name_n,
		     const char *value, size_t value_n)
{
	struct profile_label label;
	int r;

	if (!name_n || name_n > MAX_VALUE_BYTES || value_n > MAX_VALUE_BYTES)
		return -EINVAL;
	if (name_n > 1 && name[0] == '_' && name[1] == '_')
		return 0;
	if (l->labels.n >= MAX_LABELS)
		return -E2BIG;
	for (size_t i = 0; i < ARRAY_SIZE(renamed); i++)
		if (strlen(renamed[i].theirs) == name_n &&
		    !memcmp(renamed[i].theirs, name, name_n)) {
			name = renamed[i].ours;
			name_n = strlen(name);
			break;
		}
	r = add_text(p, name, name_n, &label.name);
	if (r == 0)
		r = add_text(p, value, value_n, &label.value);
	return r < 0 ? r : vec_push(&l->labels, label);
}

void ingest_labels_deinit(struct ingest_labels *l)
{
	vec_deinit(&l->labels);
}

static size_t skip_spaces(const char *s, size_t n, size_t at)
{
	while (at < n && (s[at] == ',' || isspace((u8)s[at])))
		at++;
	return at;
}

static size_t trimmed(const char *s, size_t from, size_t to)
{
	while (to > from && isspace((u8)s[to - 1]))
		to--;
	return to - from;
}

int ingest_labels_parse(struct ingest_labels *l, struct profile *p, const char *text, size_t n,
			struct diag *reterr_diag)
{
	size_t at = skip_spaces(text, n, 0);
	int r = 0;

	while (at < n && r == 0) {
		const char *equals = memchr(text + at, '=', n - at);
		size_t name = at, value, end;
		bool quoted;

		if (!equals)
			return diag_set(reterr_diag, -EINVAL, "labels are name=value,...");
		value = (size_t)(equals - text) + 1;
		quoted = value < n && text[value] == '"';
		value += quoted;
		for (end = value; end < n && text[end] != (quoted ? '"' : ','); end++)
			;
		if (quoted && end == n)
			return diag_set(reterr_diag, -EINVAL,
					"the value of a label lacks its closing quote");
		r = ingest_label_add(l, p, text + name,
				     trimmed(text, name, (size_t)(equals - text)), text + value,
				     quoted ? end - value : trimmed(text, value, end));
		at = skip_spaces(text, n, end + quoted);
	}
	if (r == -EINVAL || r == -E2BIG)
		return diag_set(reterr_diag, r,
				"labels: at most %d, each with a name, of at most %d bytes",
				MAX_LABELS, MAX_VALUE_BYTES);
	return r;
}

/* Completes the resource of a thread. */
static int complete_resource(struct ingest *i, struct profile *p, const struct ingest_labels *l,
			     u32 resource, u32 comm, u64 *n_limited, u32 *ret)
{
	struct profile_label all[PROFILE_MAX_LABELS + MAX_LABELS + 2];
	const struct profile_resource *old = &p->resources.data[resource];
	u32 service, executable, unknown;
	bool named = false, has_executable = false;
	size_t n = 0;
	int r = add_text(p, "service.name", 12, &service);

	if (r == 0)
		r = add_text(p, "process.executable.name", 23, &executable);
	if (r == 0)
		r = add_text(p, "unknown_service", 15, &unknown);
	if (r < 0)
		return r;
	for (u32 k = 0; k < old->n && k < PROFILE_MAX_LABELS; k++)
		all[n++] = p->labels.data[old->first + k];
	for (size_t k = 0; k < l->labels.n && k < MAX_LABELS; k++)
		all[n++] = l->labels.data[k];
	for (size_t k = 0; k < n; k++) {
		named |= all[k].name == service && all[k].value;
		has_executable |= all[k].name == executable;
	}
	if (comm && !has_executable)
		all[n++] = (struct profile_label){executable, comm};
	if (!named)
		all[n++] = (struct profile_label){service, comm ? comm : unknown};
	r = ingest_limit_labels(i, p, all, &n, n_limited);
	return r < 0 ? r : profile_add_resource(p, all, n, ret);
}

static int thread_for_nobody(struct profile *p, u32 *ret)
{
	bool any = false;

	for (size_t i = 0; i < p->n_samples; i++)
		any |= profile_sample(p, i)->thread == PROFILE_NONE;
	return any ? profile_add_thread(p, &(struct profile_thread){}, ret) : 0;
}

int ingest_complete(struct ingest *i, struct profile *p, const struct ingest_labels *l,
		    struct diag *ret_warning)
{
	u32 nobody = PROFILE_NONE;
	u64 n_limited = 0;
	int r = thread_for_nobody(p, &nobody);

	for (size_t k = 0; k < p->threads.n && r == 0; k++) {
		u32 resource = PROFILE_NONE;

		r = complete_resource(i, p, l, p->threads.data[k].resource, p->threads.data[k].comm,
				      &n_limited, &resource);
		if (r == 0)
			p->threads.data[k].resource = resource;
	}
	for (size_t k = 0; k < p->n_samples && r == 0; k++) {
		struct profile_sample *s = (struct profile_sample *)profile_sample(p, k);

		if (s->thread == PROFILE_NONE)
			s->thread = nobody;
	}
	if (r == 0)
		r = ingest_tell_threads_apart(i, p);
	return r < 0 ? r : ingest_limit(i, p, n_limited, ret_warning);
}

int ingest_warn(int r, const struct diag *warning, struct diag *ret)
{
	return r < 0 || !warning->text[0] ? r : diag_set(ret, r, "%s", warning->text);
}

void ingest_set_time(struct profile *p, u64 from_ms, u64 to_ms)
{
	if (p->time_ns)
		return;
	if (!to_ms)
		to_ms = from_ms ? from_ms : clock_epoch_ms();
	if (!from_ms || from_ms > to_ms)
		from_ms = to_ms;
	p->time_ns = MIN(from_ms, ~0ULL / NS_PER_MS) * NS_PER_MS;
	if (!p->duration_ns)
		p->duration_ns = MIN(to_ms - from_ms, ~0ULL / NS_PER_MS) * NS_PER_MS;
}

u64 ingest_time_ms(const char *text)
{
	u64 v;

	if (!text || str_to_u64(text, 10, &v) < 0)
		return 0;
	if (v < 100000000000ULL) /* s, until the year 5138 */
		return v * 1000;
	if (v < 100000000000000ULL)
		return v;
	return v < 100000000000000000ULL ? v / 1000 : v / 1000000;
}

void ingest_token(const void *data, size_t n, const char *more, u64 number, u8 ret[16])
{
	XXH3_state_t *state = XXH3_createState();
	XXH128_canonical_t c = {};

	if (state) {
		XXH3_128bits_reset(state);
		XXH3_128bits_update(state, data, n);
		XXH3_128bits_update(state, &number, sizeof(number));
		if (more)
			XXH3_128bits_update(state, more, strlen(more));
		XXH128_canonicalFromHash(&c, XXH3_128bits_digest(state));
		XXH3_freeState(state);
	}
	memcpy(ret, c.digest, 16);
}
