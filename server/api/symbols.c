/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives debug files by build-id, and lists those that the server has and those that are missing.
 */
#include <errno.h>
#include <string.h>

#include "server/api/internal.h"

#define PATH "/api/v1/symbols/"
#define MAX_MISSING 1000

/*
 * An upload in progress, which begins with the header of the request. Errors are reported at its
 * end.
 */
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

static void end_upload(void *userdata)
{
	struct incoming *in = userdata;

	if (in->upload)
		symstore_upload_free(in->upload);
	free(in);
}

static bool wants_replacement(const struct net_request *r)
{
	const char *value = net_parameter(r, "replace");

	return value && !strcmp(value, "1");
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
	/*
	 * Without the role, read the body to its end and drop it: only then does the client see the
	 * error.
	 */
	if (!(r->role & NET_ROLE_SYMBOLS))
		in->error = diag_set(&in->d, -EACCES, "this token may not upload symbols");
	else if (wants_replacement(r) && r->role != NET_ROLE_ADMIN)
		in->error = diag_set(&in->d, -EACCES, "replace=1 needs the token of an admin");
	else
		in->error = symstore_upload_begin(a->o.symbols, r->path + strlen(PATH),
						  r->content_encoding, wants_replacement(r), &in->d,
						  &in->upload);
	if (in->upload)
		symstore_upload_set_who(in->upload, &(struct symstore_who){r->token_name, r->peer});
	*ret = (struct net_sink){.part = take_part,
				 .end = end_upload,
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

static void put_file(struct json_writer *w, const char *key, const struct symstore_file *f)
{
	json_open_object(w, key);
	json_put_text(w, "build_id", f->build_id);
	json_put_text(w, "path", f->path);
	json_put_u64(w, "bytes", f->bytes);
	json_put_u64(w, "stored", f->stored_ms);
	json_put_text(w, "has", f->has ? f->has : "");
	json_put_u64(w, "named", f->named);
	json_put_bool(w, "waiting", f->waiting);
	json_put_text(w, "note", f->note);
	json_close(w);
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
	if (r)
		api_audit(c, wants_replacement(c->r) ? "symbols-replaced" : "symbols-uploaded",
			  build_id);
	json_open_object(&c->json, NULL);
	json_put_bool(&c->json, "new", r);
	r = symstore_file(c->a->o.symbols, build_id, &f);
	put_file(&c->json, "file", &f);
	json_close(&c->json);
	return r;
}

static int answer_file(struct api_call *c)
{
	struct symstore_file f;
	int r = need_symbols(c);

	if (r == 0)
		r = symstore_file(c->a->o.symbols, c->r->path + strlen(PATH), &f);
	if (r == -ENOENT)
		return diag_set(&c->d, r, "no symbols of this build-id are here");
	if (r == 0)
		put_file(&c->json, NULL, &f);
	return r;
}

static void put_list(struct json_writer *w, const struct symstore_list *l, const struct query *q,
		     const struct symstore_missing *m)
{
	json_open_object(w, NULL);
	json_put_u64(w, "bytes", l->bytes);
	json_put_u64(w, "max_bytes", l->max_bytes);
	json_open_array(w, "files");
	for (size_t i = 0; i < l->files.n; i++)
		put_file(w, NULL, &l->files.data[i]);
	json_close(w);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_open_array(w, "missing");
	for (size_t i = 0; i < m->binaries.n && i < MAX_MISSING; i++) {
		const struct symstore_nameless *b = &m->binaries.data[i];

		json_open_object(w, NULL);
		json_put_text(w, "build_id", b->build_id);
		json_put_text(w, "path", b->path);
		json_put_u64(w, "samples", b->samples);
		json_close(w);
	}
	json_close(w);
	json_close(w);
}

static int answer_list(struct api_call *c)
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
	if (r == 0)
		put_list(&c->json, &l, &q, &m);
	vec_deinit(&l.files);
	symstore_missing_deinit(&m);
	return r;
}

static int remove_file(struct api_call *c)
{
	const char *build_id = c->r->path + strlen(PATH);
	int r = need_symbols(c);

	if (r == 0)
		r = symstore_remove(c->a->o.symbols, build_id,
				    &(struct symstore_who){c->r->token_name, c->r->peer}, &c->d);
	if (r == -ENOENT)
		return diag_set(&c->d, r, "no symbols of this build-id are here");
	if (r < 0)
		return r;
	api_audit(c, "symbols-removed", build_id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

const struct api_route api_symbol_routes[] = {
	{"GET", "/api/v1/symbols", NET_ROLE_READ, API_STYLE_JSON, answer_list},
	/* A client that uploads asks first whether the file is needed. */
	{"GET", "/api/v1/symbols/{build_id}", NET_ROLE_WRITE, API_STYLE_JSON, answer_file},
	{"POST", "/api/v1/symbols/{build_id}", NET_ROLE_WRITE, API_STYLE_JSON, upload},
	{"DELETE", "/api/v1/symbols/{build_id}", NET_ROLE_ADMIN, API_STYLE_JSON, remove_file},
	{},
};
