/* SPDX-License-Identifier: Apache-2.0 */
/* Debug files: they come in by build-id, and one can ask which are here and which are missing. */
#include <errno.h>
#include <string.h>

#include "server/api/internal.h"

#define PATH "/api/v1/symbols/"
#define MAX_MISSING 1000

/* An upload, from its header on; its errors are told when it is whole. */
struct incoming {
	struct symstore_upload *upload; /* owned; NULL: refused */
	int error;
	struct diag d;
};

static void take_part(void *userdata, const void *data, size_t n)
{
	struct incoming *in = userdata;

	if (in->upload)
		symstore_upload_part(in->upload, data, n);
}

static void end(void *userdata)
{
	struct incoming *in = userdata;

	if (in->upload)
		symstore_upload_free(in->upload);
	free(in);
}

bool api_sink(void *userdata, const struct net_request *r, struct net_sink *ret)
{
	struct api *a = userdata;
	struct incoming *in;

	if (!a->o.symbols || strcmp(r->method, "POST") != 0 || !str_starts(r->path, PATH))
		return false;
	in = calloc(1, sizeof(*in));
	if (!in)
		return false;
	/* Without the role it is read to its end and dropped, to be told so. */
	if (r->role & NET_ROLE_WRITE)
		in->error = symstore_upload_begin(a->o.symbols, r->path + strlen(PATH),
						  r->content_encoding, &in->d, &in->upload);
	*ret = (struct net_sink){.part = take_part,
				 .end = end,
				 .userdata = in,
				 .max_body = symstore_max_file(a->o.symbols)};
	return true;
}

static int need_symbols(struct api_call *c)
{
	if (c->a->o.symbols)
		return 0;
	return diag_set(&c->d, -ENOSYS,
			"this server keeps no symbols: start it with --symbols-dir");
}

static void put_file(struct str *out, const struct symstore_file *f)
{
	str_printf(out, "{\"build_id\":\"%s\",\"path\":", f->build_id);
	text_append_json(out, f->path);
	str_printf(out, ",\"bytes\":%llu,\"stored\":%llu,\"has\":\"%s\",\"named\":%llu,", f->bytes,
		   f->stored_ms, f->has ? f->has : "", f->named);
	str_printf(out, "\"waiting\":%s,\"note\":", f->waiting ? "true" : "false");
	text_append_json(out, f->note);
	str_putc(out, '}');
}

static int upload(struct api_call *c)
{
	struct incoming *in = c->r->sink;
	const char *build_id = c->r->path + strlen(PATH);
	struct symstore_file f = {};
	int r = need_symbols(c);

	if (r < 0)
		return r;
	if (!in)
		return diag_set(&c->d, -EINVAL, "no file came");
	if (in->error < 0)
		return diag_set(&c->d, in->error, "%s",
				in->d.text[0] ? in->d.text : strerror(-in->error));
	r = symstore_upload_end(in->upload, &c->d);
	if (r < 0)
		return r;
	str_printf(c->out, "{\"new\":%s,\"file\":", r ? "true" : "false");
	r = symstore_file(c->a->o.symbols, build_id, &f);
	put_file(c->out, &f);
	str_putc(c->out, '}');
	return r;
}

static int one(struct api_call *c)
{
	struct symstore_file f;
	int r = need_symbols(c);

	if (r == 0)
		r = symstore_file(c->a->o.symbols, c->r->path + strlen(PATH), &f);
	if (r == -ENOENT)
		return diag_set(&c->d, r, "no symbols of this build-id are here");
	if (r == 0)
		put_file(c->out, &f);
	return r;
}

static void put_missing(struct str *out, const struct symstore_missing *m)
{
	for (size_t i = 0; i < m->binaries.n && i < MAX_MISSING; i++) {
		const struct symstore_nameless *b = &m->binaries.data[i];

		str_puts(out, i ? ",{\"build_id\":" : "{\"build_id\":");
		text_append_json(out, b->build_id);
		str_puts(out, ",\"path\":");
		text_append_json(out, b->path);
		str_printf(out, ",\"samples\":%llu}", b->samples);
	}
}

static int list(struct api_call *c)
{
	struct symstore_missing m = {};
	struct symstore_list l = {};
	_cleanup_query_ struct query q = {};
	int r = need_symbols(c);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = symstore_missing(c->a->o.store, q.from_ms, q.to_ms, &m, &c->d);
	if (r == 0)
		r = symstore_files(c->a->o.symbols, &l);
	if (r == 0) {
		str_printf(c->out, "{\"bytes\":%llu,\"max_bytes\":%llu,\"files\":[", l.bytes,
			   l.max_bytes);
		for (size_t i = 0; i < l.files.n; i++) {
			if (i)
				str_putc(c->out, ',');
			put_file(c->out, &l.files.data[i]);
		}
		str_printf(c->out, "],\"from\":%llu,\"to\":%llu,\"missing\":[", q.from_ms, q.to_ms);
		put_missing(c->out, &m);
		str_puts(c->out, "]}");
	}
	vec_deinit(&l.files);
	symstore_missing_deinit(&m);
	return r;
}

const struct api_route api_symbol_routes[] = {
	{"GET", "/api/v1/symbols", NET_ROLE_READ, API_STYLE_JSON, list},
	/* Whoever uploads asks first. */
	{"GET", "/api/v1/symbols/{build_id}", NET_ROLE_WRITE, API_STYLE_JSON, one},
	{"POST", "/api/v1/symbols/{build_id}", NET_ROLE_WRITE, API_STYLE_JSON, upload},
	{},
};
