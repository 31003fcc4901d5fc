/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of every request: decompress within a limit, read into profiles, complete labels and
 * times, write. The quota of the request's thread (base/quota.h) bounds its memory and time. A
 * request is acknowledged after it was written; otherwise the response says why, and whether a
 * retry can succeed (-EAGAIN).
 */
#include "server/ingest/ingest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/json.h"
#include "compress/compress.h"
#include "otlp/otlp.h"
#include "server/ingest/internal.h"

#define DEFAULT_REQUEST_BYTES (64ULL << 20)
#define LEARN_MS 9000ULL
#define FIRST_REPORTS_MS 86400000ULL /* how old reports of other servers a server asks for first */

static struct ingest_limits limits_of(const struct ingest_limits *l)
{
	return (struct ingest_limits){.services = l->services ? l->services : 10000,
				      .series = l->series ? l->series : 50000,
				      .labels = l->labels ? l->labels : 64,
				      .label_bytes = l->label_bytes ? l->label_bytes : 2048,
				      .stacks = l->stacks ? l->stacks : 250000};
}

int ingest_create(struct store *s, const struct ingest_options *o, struct ingest **ret)
{
	struct ingest *i = calloc(1, sizeof(*i));
	int r;

	if (!i)
		return -ENOMEM;
	r = agents_create(&i->agents);
	if (r == 0)
		r = ingest_segments_create(&i->segments);
	if (r < 0) {
		agents_destroy(i->agents);
		free(i);
		return r;
	}
	i->store = s;
	if (o)
		i->o = *o;
	if (!i->o.max_request_bytes)
		i->o.max_request_bytes = DEFAULT_REQUEST_BYTES;
	i->o.limits = limits_of(&i->o.limits);
	limiter_init(&i->limiter);
	*ret = i;
	return 0;
}

void ingest_destroy(struct ingest *i)
{
	if (!i)
		return;
	agents_destroy(i->agents);
	ingest_segments_destroy(i->segments);
	limiter_deinit(&i->limiter);
	free(i);
}

int ingest_agents(struct ingest *i, u64 from_ms, u64 to_ms, struct agent_state **ret, size_t *ret_n)
{
	return agents_list(i->agents, from_ms, to_ms, ret, ret_n);
}

static int learn_agents(struct ingest *i, u64 now_ms, struct diag *reterr_diag)
{
	_cleanup_store_reports_ struct store_reports theirs = {};
	u64 age_ms = i->learnt_ms ? 2 * AGENTS_SHARE_MS : FIRST_REPORTS_MS;
	int r;

	if (i->learnt_ms && now_ms - i->learnt_ms < LEARN_MS)
		return 0;
	r = store_reports_init(&theirs, i->server);
	if (r == 0)
		r = store_find_reports(i->store, now_ms - MIN(now_ms, age_ms), &theirs,
				       reterr_diag);
	if (r < 0)
		return r;
	agents_learn(i->agents, &theirs);
	i->learnt_ms = now_ms;
	return 0;
}

int ingest_share_agents(struct ingest *i, u64 now_ms, struct diag *reterr_diag)
{
	_cleanup_store_reports_ struct store_reports ours = {};
	int r;

	if (!store_is_shared(i->store))
		return 0;
	while (!i->server)
		if (getrandom(&i->server, sizeof(i->server), 0) < 0)
			return diag_set(reterr_diag, -EIO, "no random numbers");
	r = agents_take_reports(i->agents, i->server, &ours);
	if (r == 0)
		r = learn_agents(i, now_ms, reterr_diag);
	/* A report that cannot be shared is followed by a newer one. */
	if (r == 0 && ours.list.n)
		r = store_share_reports(i->store, &ours, reterr_diag);
	return r;
}

void ingest_stats(struct ingest *i, struct ingest_stats *ret)
{
	*ret = (struct ingest_stats){
		.requests = atomic_load(&i->requests),
		.refused = atomic_load(&i->refused),
		.profiles = atomic_load(&i->profiles),
		.samples = atomic_load(&i->samples),
		.bytes = atomic_load(&i->bytes),
		.spans = atomic_load(&i->spans),
		.clock_doubted = i->o.clock && clock_watch_doubts(i->o.clock, clock_pair_now()),
	};
	for (int k = 0; k < INGEST_REASON_N; k++) {
		ret->refused_samples[k] = atomic_load(&i->refused_samples[k]);
		ret->refused_spans[k] = atomic_load(&i->refused_spans[k]);
	}
	for (u32 k = 0; k < INGEST_LIMITS; k++)
		ret->limited[k] = atomic_load(&i->limiter.counts[k]);
}

int ingest_decode(struct ingest *i, const u8 *data, size_t n, const char *encoding, struct str *own,
		  const u8 **ret_data, size_t *ret_n, struct diag *reterr_diag)
{
	int r;

	/* No format that the server reads begins like gzip, so a forgotten header is none. */
	if ((!encoding || !*encoding) && gzip_is(data, n))
		encoding = "gzip";
	if (!encoding || !*encoding || !strcasecmp(encoding, "identity")) {
		if (n > i->o.max_request_bytes)
			return diag_set(reterr_diag, -EFBIG, "more than %zu MiB",
					i->o.max_request_bytes >> 20);
		*ret_data = data;
		*ret_n = n;
		return 0;
	}
	if (!strcasecmp(encoding, "gzip") || !strcasecmp(encoding, "x-gzip"))
		r = gzip_inflate(data, n, i->o.max_request_bytes, own, reterr_diag);
	else if (!strcasecmp(encoding, "zstd"))
		r = zstd_inflate(data, n, i->o.max_request_bytes, own, reterr_diag);
	else
		return diag_set(reterr_diag, -ENOTSUP,
				"unknown content encoding; supported are gzip, zstd and identity");
	if (r < 0)
		return r;
	*ret_data = (const u8 *)str_get(own);
	*ret_n = own->n;
	return 0;
}

/* ---- writing ---- */

/* What it allocates belongs to all requests. */
static void note_written(struct ingest *i, const struct profile *p)
{
	QUOTA_PAUSED;

	if (i->o.written)
		i->o.written(i->o.userdata, p);
}

static int make_batch(struct ingest *i, const struct profile *p, const char *name,
		      struct store_batch *ret, struct diag *reterr_diag)
{
	int r = store_batch_init(ret, p, name, reterr_diag);

	return r < 0 ? r : ingest_check_batch(i, ret, reterr_diag);
}

static void count_written(struct ingest *i, const struct store_batch *b)
{
	atomic_fetch_add(&i->profiles, 1);
	atomic_fetch_add(&i->samples, b->samples.n);
	note_written(i, b->profile);
}

int ingest_write(struct ingest *i, const struct profile *p, const char *name, const u8 *token,
		 struct diag *reterr_diag)
{
	_cleanup_store_batch_ struct store_batch b = {};
	int r = make_batch(i, p, name, &b, reterr_diag);

	if (r == 0)
		r = store_write(i->store, &b, token, reterr_diag);
	if (r == 0)
		count_written(i, &b);
	return r;
}

int ingest_done(struct ingest *i, size_t n, int r)
{
	atomic_fetch_add(&i->requests, 1);
	atomic_fetch_add(&i->bytes, n);
	if (r < 0)
		atomic_fetch_add(&i->refused, 1);
	return r;
}

/* ---- files ---- */

/* A file that is being read. */
struct reading {
	struct str own; /* decompressed data */
	const u8 *data;
	size_t n;
	struct profile *profile;
};

static void reading_deinit(struct reading *f)
{
	str_deinit(&f->own);
	profile_destroy(f->profile);
}
#define _cleanup_reading_ __attribute__((cleanup(reading_deinit)))

static int read_file(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		     struct reading *at, struct diag *reterr_diag)
{
	int r = ingest_decode(i, data, n, f->encoding, &at->own, &at->data, &at->n, reterr_diag);

	if (r == 0)
		r = profile_read_bytes("body", at->data, at->n, f->format, i->o.max_request_bytes,
				       &at->profile, reterr_diag);
	return r;
}

int ingest_read(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct profile **ret, struct diag *reterr_diag)
{
	_cleanup_reading_ struct reading at = {};
	int r = read_file(i, data, n, f, &at, reterr_diag);

	if (r == 0)
		*ret = take_ptr(at.profile);
	return r;
}

static int file(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct diag *reterr_diag)
{
	_cleanup_labels_ struct ingest_labels labels = {};
	_cleanup_reading_ struct reading at = {};
	struct diag warning = {};
	u8 token[16];
	int r = read_file(i, data, n, f, &at, reterr_diag);

	if (r == 0 && f->labels)
		r = ingest_labels_parse(&labels, at.profile, f->labels, strlen(f->labels),
					reterr_diag);
	if (r < 0)
		return r;
	ingest_set_time(at.profile, f->from_ms, f->to_ms);
	r = ingest_complete(i, at.profile, &labels, &warning);
	if (r == 0)
		r = ingest_set_host(at.profile, f->host, reterr_diag);
	if (r < 0)
		return r;
	ingest_token(at.data, at.n, f->labels, at.profile->time_ns, token);
	r = ingest_write(i, at.profile, f->name, token, reterr_diag);
	if (r == 0 && f->ret_samples)
		*f->ret_samples = at.profile->n_samples;
	return ingest_warn(r, &warning, reterr_diag);
}

int ingest_file(struct ingest *i, const u8 *data, size_t n, const struct ingest_file *f,
		struct diag *reterr_diag)
{
	return ingest_done(i, n, file(i, data, n, f, reterr_diag));
}

/* ---- OTLP ---- */

void ingest_json_response(const char *what, u64 rejected, const char *message, struct str *out)
{
	struct json_writer w = {.out = out};
	char key[32], count[24];

	snprintf(key, sizeof(key), "rejected%s", what);
	snprintf(count, sizeof(count), "%llu", rejected);
	json_open_object(&w, NULL);
	if (rejected || message) {
		json_open_object(&w, "partialSuccess");
		json_put_text(&w, key, count);
		if (message)
			json_put_text(&w, "errorMessage", message);
		json_close(&w);
	}
	json_close(&w);
}

#define TOGETHER 64		    /* profiles that are written together, at most */
#define TOGETHER_SAMPLES (1u << 17) /* or so many samples */

/* Profiles of a request that are written together. */
struct together {
	struct store_request list[TOGETHER];
	struct store_batch batches[TOGETHER]; /* owned */
	u8 tokens[TOGETHER][16];
	size_t n, samples;
};

static void together_clear(struct together *t)
{
	for (size_t k = 0; k < t->n; k++)
		store_batch_deinit(&t->batches[k]);
	t->n = t->samples = 0;
}

static inline void cleanup_together(struct together **t)
{
	if (*t)
		together_clear(*t);
	free(*t);
}

/*
 * A profile that the store refuses as invalid counts as rejected; a temporary failure fails the
 * whole request.
 */
static int judge(struct otlp_profiles *all, int r, const struct diag *why, struct diag *reterr_diag)
{
	if (r == -EINVAL || r == -ERANGE) {
		all->rejected++;
		(void)diag_set(&all->why, r, "%s", why->text);
		return 0;
	}
	return r < 0 ? diag_set(reterr_diag, r, "%s", why->text[0] ? why->text : strerror(-r)) : 0;
}

static int write_together(struct ingest *i, struct otlp_profiles *all, struct together *t,
			  struct diag *reterr_diag)
{
	int r = 0;

	store_write_all(i->store, t->list, t->n);
	for (size_t k = 0; k < t->n; k++) {
		int e = t->list[k].r < 0 ? judge(all, t->list[k].r, &t->list[k].diag,
						 r < 0 ? NULL : reterr_diag)
					 : 0;

		if (t->list[k].r == 0)
			count_written(i, &t->batches[k]);
		r = r < 0 ? r : e;
	}
	together_clear(t);
	return r;
}

/* Takes the k-th profile of a request, which is `data`. */
static int add_together(struct ingest *i, struct otlp_profiles *all, size_t k, const u8 *data,
			size_t n, struct together *t, struct diag *reterr_diag)
{
	const struct ingest_labels none = {};
	struct profile *p = all->profiles.data[k];
	struct store_batch *b = &t->batches[t->n];
	struct diag why = {}, warning = {};
	int r;

	ingest_set_time(p, 0, 0);
	*b = (struct store_batch){};
	r = quota_check(&why);
	if (r == 0)
		r = ingest_complete(i, p, &none, &warning);
	if (r == 0)
		r = make_batch(i, p, NULL, b, &why);
	(void)ingest_warn(r, &warning, &all->why);
	if (r < 0) {
		store_batch_deinit(b);
		return judge(all, r, &why, reterr_diag);
	}
	ingest_token(data, n, NULL, k, t->tokens[t->n]);
	t->list[t->n] = (struct store_request){.batch = b, .token = t->tokens[t->n]};
	t->samples += b->samples.n;
	t->n++;
	return 0;
}

static int write_profiles(struct ingest *i, struct otlp_profiles *all, const u8 *data, size_t n,
			  const char *host, struct diag *reterr_diag)
{
	_cleanup_(together) struct together *t = calloc(1, sizeof(*t));
	int r = t ? 0 : -ENOMEM;

	for (size_t k = 0; k < all->profiles.n && r == 0; k++)
		r = ingest_set_host(all->profiles.data[k], host, reterr_diag);
	if (r < 0)
		return r;
	/* The agent's report is the same in all profiles of a request. */
	if (all->profiles.n)
		agents_see(i->agents, all->profiles.data[0], clock_epoch_ms());
	for (size_t k = 0; k < all->profiles.n && r == 0; k++) {
		r = add_together(i, all, k, data, n, t, reterr_diag);
		if (r == 0 && (t->n == TOGETHER || t->samples >= TOGETHER_SAMPLES))
			r = write_together(i, all, t, reterr_diag);
	}
	return r < 0 ? r : write_together(i, all, t, reterr_diag);
}

static int otlp(struct ingest *i, const u8 *data, size_t n, const char *encoding, const char *host,
		bool json, struct str *ret_response, struct diag *reterr_diag)
{
	__attribute__((cleanup(otlp_profiles_deinit))) struct otlp_profiles all = {};
	_cleanup_str_ struct str own = {};
	const u8 *plain = NULL;
	const char *why;
	size_t plain_n = 0;
	int r = ingest_decode(i, data, n, encoding, &own, &plain, &plain_n, reterr_diag);

	if (r < 0)
		return r;
	if (json)
		r = otlp_profiles_decode_json((const char *)plain, plain_n, ingest_decoded_bytes(i),
					      &all, reterr_diag);
	else
		r = otlp_profiles_decode(plain, plain_n, ingest_decoded_bytes(i), &all,
					 reterr_diag);
	if (r == 0)
		r = write_profiles(i, &all, plain, plain_n, host, reterr_diag);
	if (r < 0)
		return r;
	why = all.why.text[0] ? all.why.text : NULL;
	if (json)
		ingest_json_response("Profiles", all.rejected, why, ret_response);
	else
		r = otlp_profiles_response(all.rejected, why, ret_response);
	return r;
}

int ingest_otlp_profiles(struct ingest *i, const u8 *data, size_t n, const char *encoding,
			 const char *host, bool json, struct str *ret_response,
			 struct diag *reterr_diag)
{
	return ingest_done(i, n, otlp(i, data, n, encoding, host, json, ret_response, reterr_diag));
}
