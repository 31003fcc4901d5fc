/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's two protocols: /ingest, with all parameters in the query string, and the push API,
 * with labels and pprof in a message. Labels that begin with "__" are internal labels of the
 * client: __name__ is the first part of the type; ingest drops the other internal labels, as
 * Pyroscope does: __session_id__ would make new series at each start of a program.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/pb.h"
#include "base/pbjson.h"
#include "base/text.h"
#include "base/vocab.h"
#include "compress/compress.h"
#include "format/pyroscope.pb-c.h"
#include "server/ingest/internal.h"
#include "server/ingest/multipart.h"

#define MAX_NAME_BYTES 8192
#define DEFAULT_HZ 100
#define NS_PER_S 1000000000ULL
#define SECONDS_1970 (365ULL * 86400) /* of the year 1970 */
/* Pyroscope's label of the client that took a profile. */
#define SPY "pyroscope_spy"

/* ---- values of folded text: what the end of the name says ---- */

struct kind {
	const char *suffix;
	enum sample_type type;
	bool ticks; /* values are ticks of a clock */
	const char *period, *period_unit;
};

static const struct kind kinds[] = {
#define INGEST_KIND(suffix, type, ticks, period, period_unit)                                      \
	{suffix, SAMPLE_TYPE_##type, ticks, period, period_unit},
#include "abi/tbl/ingest_kind.tbl"
#undef INGEST_KIND
};

/* Cuts the suffix off the name of the application, if the suffix is in `kinds`. */
static const struct kind *take_kind(const char *app, size_t *n)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t k = strlen(kinds[i].suffix);

		if (*n > k + 1 && app[*n - k - 1] == '.' &&
		    !memcmp(app + *n - k, kinds[i].suffix, k)) {
			*n -= k + 1;
			return &kinds[i];
		}
	}
	return &kinds[0];
}

/* Sets two types, as agents do: samples, and the values of this kind. */
static int set_kind(struct profile *p, const struct kind *k, u64 hz)
{
	const struct vocab_sample_type *type = vocab_sample_type(k->type);
	s64 factor = k->ticks ? (s64)(vocab_per_second(type->unit) / hz) : 1;
	size_t old_size = profile_sample_size(p), size = sizeof(struct profile_sample) + 16;
	u8 *samples = calloc(p->n_samples + 1, size);
	int r = 0;

	if (!samples)
		return -ENOMEM;
	for (size_t i = 0; i < p->n_samples; i++) {
		struct profile_sample *to = (void *)(samples + i * size);

		memcpy(to, p->samples + i * old_size, sizeof(*to) + 8);
		if (__builtin_mul_overflow(to->value[0], factor, &to->value[1]))
			r = -ERANGE;
	}
	free(p->samples);
	p->samples = samples;
	p->cap_samples = p->n_samples;
	p->n_types = 2;
	p->default_type = 1;
	if (r == 0)
		r = profile_add_string(p, type->name, strlen(type->name), &p->types[1].name);
	if (r == 0)
		r = profile_add_string(p, type->unit, strlen(type->unit), &p->types[1].unit);
	if (r == 0)
		r = profile_add_string(p, k->period, strlen(k->period), &p->period_name);
	if (r == 0)
		r = profile_add_string(p, k->period_unit, strlen(k->period_unit), &p->period_unit);
	p->period = k->ticks ? factor : 1;
	return r;
}

/*
 * Adds a process to each line: Culprit's folded lines begin with the process, Pyroscope's do not.
 * `lines`: adds the missing counts, too.
 */
static int folded_with_process(const u8 *data, size_t n, bool lines, struct str *out)
{
	const char *s = (const char *)data, *end = s + n;

	while (s < end) {
		const char *eol = memchr(s, '\n', (size_t)(end - s));
		size_t len = (size_t)((eol ? eol : end) - s);

		while (len && (s[len - 1] == '\r' || s[len - 1] == ' '))
			len--;
		if (len) {
			str_puts(out, "-;");
			str_append(out, s, len);
			str_puts(out, lines ? " 1\n" : "\n");
		}
		s = (eol ? eol : end - 1) + 1;
	}
	return out->failed ? -ENOMEM : 0;
}

static int read_folded(const u8 *data, size_t n, bool lines, u64 limit, struct profile **ret,
		       struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_str_ struct str text = {};
	int r = folded_with_process(data, n, lines, &text);

	if (r == 0)
		r = profile_read_bytes("body", (const u8 *)str_get(&text), text.n, "folded",
				       4 * limit, &p, reterr_diag);
	if (r < 0)
		return r;
	if (p->n_types != 1)
		return diag_set(reterr_diag, -EBADMSG, "folded text with one count a line");
	vec_foreach (&p->threads, t)
		t->comm = 0;
	*ret = take_ptr(p);
	return 0;
}

/* ---- /ingest ---- */

struct request {
	struct ingest *i;
	const struct ingest_pyroscope *in;
	const char *app; /* borrowed from in->name */
	size_t app_n;
	const char *labels;
	size_t labels_n;
	const struct kind *kind;
	struct diag *diag;
};

/* "app.cpu{env=prod}" */
static int split_name(struct request *q)
{
	const char *name = q->in->name, *brace;
	size_t n;

	if (!name || !*name)
		return diag_set(q->diag, -EINVAL, "/ingest needs ?name=APPLICATION");
	n = strlen(name);
	if (n > MAX_NAME_BYTES)
		return diag_set(q->diag, -EINVAL, "name: more than %d bytes", MAX_NAME_BYTES);
	brace = strchr(name, '{');
	q->app = name;
	q->app_n = brace ? (size_t)(brace - name) : n;
	if (brace && name[n - 1] != '}')
		return diag_set(q->diag, -EINVAL, "name: APPLICATION{label=value,...}");
	if (brace) {
		q->labels = brace + 1;
		q->labels_n = n - q->app_n - 2;
	}
	q->kind = take_kind(q->app, &q->app_n);
	return q->app_n ? 0 : diag_set(q->diag, -EINVAL, "name: the application is missing");
}

static int name_service(struct request *q, struct profile *p, struct diag *ret_warning)
{
	_cleanup_labels_ struct ingest_labels l = {};
	bool named = false;
	int r = 0;

	if (q->labels)
		r = ingest_labels_parse(&l, p, q->labels, q->labels_n, q->diag);
	vec_foreach (&l.labels, label)
		named |= !strcmp(profile_string(p, label->name), "service.name");
	if (r == 0 && !named)
		r = ingest_label_add(&l, p, "service.name", 12, q->app, q->app_n);
	if (r == 0 && q->in->spy && *q->in->spy)
		r = ingest_label_add(&l, p, SPY, strlen(SPY), q->in->spy, strlen(q->in->spy));
	if (r == 0)
		r = ingest_complete(q->i, p, &l, ret_warning);
	return r < 0 ? r : ingest_set_host(p, q->in->host, q->diag);
}

static bool is_one_of(const char *s, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(s, *names))
			return true;
	return false;
}

/* Finds the file in the body: a part of a form, or the whole body. */
static int find_file(struct request *q, const u8 **data, size_t *n)
{
	static const char *const parts[] = {"profile", "jfr", "profile.pprof", NULL};
	const u8 *part;
	size_t part_n;
	int r;

	if (!multipart_is(q->in->content_type))
		return 0;
	r = multipart_find(q->in->content_type, *data, *n, "prev_profile", &part, &part_n);
	if (r == 0)
		return diag_set(q->diag, -ENOTSUP,
				"prev_profile: only profiles that stand for themselves are taken");
	for (size_t i = 0; parts[i] && r == -ENOENT; i++)
		r = multipart_find(q->in->content_type, *data, *n, parts[i], &part, &part_n);
	if (r < 0)
		return diag_set(q->diag, -EBADMSG, "the form has no part named profile or jfr");
	*data = part;
	*n = part_n;
	return 0;
}

/* Whether the request has a pprof file. */
static bool is_pprof(const struct request *q)
{
	const char *format = q->in->format ? q->in->format : "";

	return !strcmp(format, "pprof") || (!*format && multipart_is(q->in->content_type));
}

static int read_profile(struct request *q, const u8 *data, size_t n, struct profile **ret)
{
	static const char *const as_folded[] = {"folded", "groups", "collapsed", "", NULL};
	static const char *const as_is[] = {"pprof", "jfr", "speedscope", NULL};
	const char *format = q->in->format ? q->in->format : "";
	u64 hz = DEFAULT_HZ, limit = q->i->o.max_request_bytes;
	int r;

	if (is_pprof(q))
		format = "pprof";
	r = find_file(q, &data, &n);
	if (r < 0)
		return r;
	if (is_one_of(format, as_is))
		return profile_read_bytes("body", data, n, format, limit, ret, q->diag);
	if (strcmp(format, "lines") != 0 && !is_one_of(format, as_folded))
		return diag_set(
			q->diag, -ENOTSUP,
			"formats here are pprof, folded, groups, lines, jfr and speedscope");
	if (q->in->sample_rate &&
	    (str_to_u64(q->in->sample_rate, 10, &hz) < 0 || !hz || hz > NS_PER_S))
		return diag_set(q->diag, -EINVAL, "sampleRate: 1 to 1000000000");
	r = read_folded(data, n, !strcmp(format, "lines"), limit, ret, q->diag);
	if (r < 0)
		return r;
	r = set_kind(*ret, q->kind, hz);
	if (r == -ERANGE)
		return diag_set(q->diag, -EINVAL, "counts add up to more than 63 bits");
	return r;
}

/* The names of the types that a client has sent beside its pprof file, if it has. */
static int read_config(struct request *q, const u8 *data, size_t n, json_t **ret)
{
	const u8 *part;
	size_t part_n;

	if (!multipart_is(q->in->content_type) ||
	    multipart_find(q->in->content_type, data, n, "sample_type_config", &part, &part_n) < 0)
		return 0;
	return json_read((const char *)part, part_n, 0, ret, q->diag);
}

static int complete_pprof(struct request *q, const u8 *data, size_t n, struct profile *p)
{
	json_t *config = NULL;
	int r = read_config(q, data, n, &config);

	if (r == 0)
		r = ingest_name_groups(p, q->in->spy, config);
	json_decref(config);
	/* Old clients for Python, Ruby and Rust send microseconds where pprof has nanoseconds. */
	if (p->time_ns < SECONDS_1970 * NS_PER_S)
		p->time_ns = 0;
	return r;
}

static int pyroscope(struct request *q, const u8 *data, size_t n)
{
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_str_ struct str own = {};
	u64 from = ingest_time_ms(q->in->from), until = ingest_time_ms(q->in->until);
	const u8 *plain = NULL;
	size_t plain_n = 0;
	const struct vocab_sample_type *type;
	struct diag warning = {};
	bool folded;
	u8 token[16];
	int r = split_name(q);

	if (r == 0)
		r = ingest_decode(q->i, data, n, q->in->encoding, &own, &plain, &plain_n, q->diag);
	if (r == 0)
		r = read_profile(q, plain, plain_n, &p);
	if (r == 0)
		r = is_pprof(q) ? complete_pprof(q, plain, plain_n, p) : 0;
	if (r < 0)
		return r;
	type = vocab_sample_type(q->kind->type);
	folded = !is_pprof(q) && p->n_types == 2 &&
		 !strcmp(profile_string(p, p->types[1].name), type->name);
	ingest_set_time(p, from, until);
	r = name_service(q, p, &warning);
	if (r < 0)
		return r;
	ingest_token(plain, plain_n, q->in->name, p->time_ns, token);
	r = ingest_write(q->i, p, folded ? type->profile : NULL, token, q->diag);
	return ingest_warn(r, &warning, q->diag);
}

static int count_request(struct ingest *i, size_t n, int r)
{
	atomic_fetch_add(&i->requests, 1);
	atomic_fetch_add(&i->bytes, n);
	if (r < 0)
		atomic_fetch_add(&i->refused, 1);
	return r;
}

int ingest_pyroscope(struct ingest *i, const u8 *data, size_t n, const struct ingest_pyroscope *p,
		     struct diag *reterr_diag)
{
	struct request q = {.i = i, .in = p, .diag = reterr_diag};

	return count_request(i, n, pyroscope(&q, data, n));
}

/* ---- push.v1 ---- */

struct pusher {
	struct ingest *i;
	u64 left; /* decompressed bytes that the profiles may still have */
	const char *host;
	struct diag *diag, warning;
};

static int push_labels(struct pusher *u, const Pyroscope__RawProfileSeries *s, struct profile *p,
		       struct ingest_labels *l, const char **ret_name)
{
	int r = 0;

	for (size_t i = 0; i < s->n_labels && r == 0; i++) {
		const Pyroscope__LabelPair *pair = s->labels[i];

		if (!strcmp(pair->name, "__name__"))
			*ret_name = pair->value;
		else
			r = ingest_label_add(l, p, pair->name, strlen(pair->name), pair->value,
					     strlen(pair->value));
	}
	if (r == -EINVAL || r == -E2BIG)
		return diag_set(u->diag, r, "push: a series has too many labels, or too long ones");
	return r;
}

static int push_sample(struct pusher *u, const Pyroscope__RawProfileSeries *s,
		       const ProtobufCBinaryData *raw, u64 number)
{
	_cleanup_labels_ struct ingest_labels l = {};
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_str_ struct str own = {};
	const u8 *plain = raw->data;
	const char *name = NULL;
	size_t n = raw->len;
	u8 token[16];
	int r = quota_check(u->diag);

	if (r == 0 && gzip_is(raw->data, raw->len)) {
		r = gzip_inflate(raw->data, raw->len, u->left, &own, u->diag);
		plain = (const u8 *)str_get(&own);
		n = own.n;
	}
	if (r == 0 && n > u->left)
		r = diag_set(u->diag, -EFBIG, "push: profiles of more than %zu MiB together",
			     u->i->o.max_request_bytes >> 20);
	if (r < 0)
		return r;
	u->left -= n;
	r = profile_read_bytes("push", plain, n, "pprof", n, &p, u->diag);
	if (r == 0)
		r = push_labels(u, s, p, &l, &name);
	if (r < 0)
		return r;
	ingest_set_time(p, 0, 0);
	r = ingest_complete(u->i, p, &l, &u->warning);
	if (r == 0)
		r = ingest_set_host(p, u->host, u->diag);
	if (r < 0)
		return r;
	ingest_token(
		plain, n,
		profile_label(p, p->threads.n ? p->threads.data[0].resource : 0, "service.name"),
		number, token);
	return ingest_write(u->i, p, name, token, u->diag);
}

static int push(struct ingest *i, const u8 *data, size_t n, const char *encoding, const char *host,
		bool json, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(ingest_decoded_bytes(i));
	struct pusher u = {
		.i = i, .left = i->o.max_request_bytes, .host = host, .diag = reterr_diag};
	const Pyroscope__PushRequest *in;
	_cleanup_str_ struct str own = {};
	ProtobufCMessage *m = NULL;
	const u8 *plain = NULL;
	size_t plain_n = 0;
	int refused = 0,
	    r = ingest_decode(i, data, n, encoding, &own, &plain, &plain_n, reterr_diag);

	if (r == 0 && json)
		r = pbjson_read(&pbjson_plain, &pyroscope__push_request__descriptor,
				(const char *)plain, plain_n, &arena, &m, reterr_diag);
	else if (r == 0)
		r = pb_unpack(&pyroscope__push_request__descriptor, "a push request", plain,
			      plain_n, &arena, &m, reterr_diag);
	if (r < 0)
		return r;
	in = (const Pyroscope__PushRequest *)m;
	for (size_t k = 0; k < in->n_series && r == 0; k++)
		for (size_t s = 0; s < in->series[k]->n_samples && r == 0; s++) {
			r = push_sample(&u, in->series[k], &in->series[k]->samples[s]->raw_profile,
					(u64)k << 32 | s);
			/* A wrong clock of one service is no reason to refuse the others. */
			refused = r == -ERANGE ? r : refused;
			r = r == -ERANGE ? 0 : r;
		}
	return ingest_warn(r < 0 ? r : refused, &u.warning, reterr_diag);
}

int ingest_push(struct ingest *i, const u8 *data, size_t n, const char *encoding, const char *host,
		bool json, struct diag *reterr_diag)
{
	return count_request(i, n, push(i, data, n, encoding, host, json, reterr_diag));
}
