/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people and pipelines leave on the server for each other: annotations (a text at a time, with
 * labels, such as a deploy) and saved views (a name for an address of the page). Both are in
 * notes.json of the data directory; a change replaces the file. A store that is not in a directory
 * has none.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/io.h"
#include "server/api/internal.h"

#define FILE_BYTES (8 << 20)
#define MAX_NOTES 1000 /* annotations; the earliest makes room */
#define MAX_VIEWS 200
#define TEXT_BYTES 500
#define NAME_BYTES 100
#define ADDRESS_BYTES 4000
#define MAX_LABELS 8
#define ID_DIGITS 16

/* ---- the file ---- */

/* The object with both lists. Under notes_lock, as save(). */
static int load(struct api_call *c, json_t **ret)
{
	_cleanup_str_ struct str text = {};
	const char *path = c->a->o.notes;
	int r = path ? io_read(path, FILE_BYTES, &text) : -ENOENT;

	*ret = NULL;
	if (r == -ENOENT)
		*ret = json_pack("{s:[], s:[]}", "annotations", "views");
	else if (r == 0)
		r = json_read(str_get(&text), text.n, 0, ret, &c->d);
	if (*ret && json_is_array(json_object_get(*ret, "annotations")) &&
	    json_is_array(json_object_get(*ret, "views")))
		return 0;
	json_decref(*ret);
	*ret = NULL;
	return r == -ENOMEM ? r : diag_set(&c->d, -EIO, "%s cannot be read: it is damaged", path);
}

static int save(struct api_call *c, const json_t *all)
{
	char *text = json_dumps(all, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	int r = !text ? -ENOMEM : n > FILE_BYTES ? -E2BIG : io_replace(c->a->o.notes, text, n);

	free(text);
	return r < 0 ? diag_set(&c->d, r, "%s cannot be written: %s", c->a->o.notes, strerror(-r))
		     : 0;
}

static int new_id(char ret[ID_DIGITS + 1])
{
	u8 random[ID_DIGITS / 2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	text_hex(random, sizeof(random), ret);
	return 0;
}

/* ---- what a client sends ---- */

static int check_members(struct api_call *c, json_t *o, const char *const *names, size_t n)
{
	const char *key;
	json_t *value;
	size_t k;

	if (!json_is_object(o))
		return diag_set(&c->d, -EINVAL, "the body is not an object");
	json_object_foreach(o, key, value)
	{
		for (k = 0; k < n && strcmp(names[k], key) != 0; k++)
			;
		if (k == n)
			return diag_set(&c->d, -EINVAL, "no member '%.30s' here", key);
	}
	return 0;
}

static int check_text(struct api_call *c, json_t *o, const char *name, size_t max)
{
	const char *text = json_string_value(json_object_get(o, name));

	if (!text || !*text || strlen(text) > max)
		return diag_set(&c->d, -EINVAL, "%s: a text of 1 to %zu bytes", name, max);
	return 0;
}

static int check_labels(struct api_call *c, json_t *labels)
{
	const char *key;
	json_t *value;
	bool good = !labels || (json_is_object(labels) && json_object_size(labels) <= MAX_LABELS);

	json_object_foreach(good ? labels : NULL, key, value)
	{
		const char *text = json_string_value(value);

		good &= *key && strlen(key) <= NAME_BYTES && text && strlen(text) <= NAME_BYTES;
	}
	return good ? 0
		    : diag_set(&c->d, -EINVAL, "labels: at most %d texts of at most %d bytes",
			       MAX_LABELS, NAME_BYTES);
}

/* Texts as in parameters, or a number of ms; without a time it is now. */
static int read_time(struct api_call *c, json_t *o, u64 *ret_ms)
{
	json_t *time = json_object_get(o, "time");
	u64 now = clock_epoch_ms();

	*ret_ms = now;
	if (!time)
		return 0;
	if (json_is_integer(time) && json_integer_value(time) > 0) {
		*ret_ms = (u64)json_integer_value(time);
		return 0;
	}
	if (json_is_string(time) && api_time(json_string_value(time), now, ret_ms) == 0)
		return 0;
	return diag_set(&c->d, -EINVAL,
			"time: milliseconds since 1970, or a text: now-5m, 2026-01-31T12:00:00Z");
}

static int read_annotation(struct api_call *c, json_t *body, json_t **ret)
{
	static const char *const names[] = {"time", "text", "labels"};
	json_t *labels = json_object_get(body, "labels");
	char id[ID_DIGITS + 1];
	u64 time_ms;
	int r = check_members(c, body, names, ARRAY_SIZE(names));

	if (r == 0)
		r = check_text(c, body, "text", TEXT_BYTES);
	if (r == 0)
		r = check_labels(c, labels);
	if (r == 0)
		r = read_time(c, body, &time_ms);
	if (r == 0)
		r = new_id(id);
	if (r < 0)
		return r;
	*ret = json_pack("{s:s, s:I, s:O, s:o, s:s}", "id", id, "time", (json_int_t)time_ms, "text",
			 json_object_get(body, "text"), "labels",
			 labels ? json_incref(labels) : json_object(), "by", c->r->token_name);
	return *ret ? 0 : -ENOMEM;
}

static int read_view(struct api_call *c, json_t *body, json_t **ret)
{
	static const char *const names[] = {"name", "address"};
	char id[ID_DIGITS + 1];
	const char *address;
	int r = check_members(c, body, names, ARRAY_SIZE(names));

	if (r == 0)
		r = check_text(c, body, "name", NAME_BYTES);
	if (r == 0)
		r = check_text(c, body, "address", ADDRESS_BYTES);
	address = json_string_value(json_object_get(body, "address"));
	/* The page appends it to its own path: it cannot lead elsewhere. */
	if (r == 0 && *address != '?' && *address != '#')
		r = diag_set(&c->d, -EINVAL, "address: the page's, from its ? or # on");
	if (r == 0)
		r = new_id(id);
	if (r < 0)
		return r;
	*ret = json_pack("{s:s, s:O, s:O, s:s}", "id", id, "name", json_object_get(body, "name"),
			 "address", json_object_get(body, "address"), "by", c->r->token_name);
	return *ret ? 0 : -ENOMEM;
}

/* ---- changes ---- */

static size_t find(const json_t *list, const char *member, const char *value)
{
	size_t i = 0;

	while (i < json_array_size(list) &&
	       strcmp(json_string_value(json_object_get(json_array_get(list, i), member)), value))
		i++;
	return i;
}

static json_int_t time_of(const json_t *list, size_t i)
{
	return json_integer_value(json_object_get(json_array_get(list, i), "time"));
}

/* The list is sorted by time. */
static int insert_annotation(struct api_call *c, json_t *list, json_t *note)
{
	json_int_t at = json_integer_value(json_object_get(note, "time"));
	size_t i = json_array_size(list);

	while (i && time_of(list, i - 1) > at)
		i--;
	if (json_array_insert(list, i, note) < 0)
		return -ENOMEM;
	return json_array_size(list) > MAX_NOTES ? json_array_remove(list, 0) : 0;
}

static int insert_view(struct api_call *c, json_t *list, json_t *view)
{
	const char *name = json_string_value(json_object_get(view, "name"));

	if (find(list, "name", name) < json_array_size(list))
		return diag_set(&c->d, -EEXIST, "there is a view with this name");
	if (json_array_size(list) >= MAX_VIEWS)
		return diag_set(&c->d, -E2BIG, "at most %d views", MAX_VIEWS);
	return json_array_append(list, view) < 0 ? -ENOMEM : 0;
}

struct kind {
	const char *list, *added, *removed;
	int (*read)(struct api_call *c, json_t *body, json_t **ret);
	int (*insert)(struct api_call *c, json_t *list, json_t *note);
};

static const struct kind annotation = {"annotations", "annotation-added", "annotation-removed",
				       read_annotation, insert_annotation};
static const struct kind view = {"views", "view-added", "view-removed", read_view, insert_view};

static int check_change(struct api_call *c)
{
	return c->a->o.notes ? 0
			     : diag_set(&c->d, -ENOSYS,
					"this is kept only with a store in a data directory");
}

/* Puts a note that this server has written. */
static int put_note(struct api_call *c, const json_t *note)
{
	char *text = json_dumps(note, JSON_COMPACT);

	if (text)
		json_put_written(&c->json, NULL, text);
	free(text);
	return text ? 0 : -ENOMEM;
}

static int add(struct api_call *c, const struct kind *k)
{
	json_t *body = NULL, *note = NULL, *all = NULL;
	int r = check_change(c);

	if (r == 0)
		r = api_json_body(c, &body);
	if (r == 0)
		r = k->read(c, body, &note);
	if (r == 0) {
		pthread_mutex_lock(&c->a->notes_lock);
		r = load(c, &all);
		if (r == 0)
			r = k->insert(c, json_object_get(all, k->list), note);
		if (r == 0)
			r = save(c, all);
		pthread_mutex_unlock(&c->a->notes_lock);
	}
	if (r == 0)
		api_audit(c, k->added, json_string_value(json_object_get(note, "id")));
	if (r == 0)
		r = put_note(c, note);
	json_decref(all);
	json_decref(note);
	json_decref(body);
	return r;
}

static int drop(struct api_call *c, const struct kind *k)
{
	const char *id = strrchr(c->r->path, '/') + 1;
	json_t *all = NULL, *list;
	int r = check_change(c);
	size_t at;

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->a->notes_lock);
	r = load(c, &all);
	list = json_object_get(all, k->list);
	at = r == 0 ? find(list, "id", id) : 0;
	if (r == 0 && at == json_array_size(list))
		r = diag_set(&c->d, -ENOENT, "there is none with this id");
	if (r == 0 && json_array_remove(list, at) == 0)
		r = save(c, all);
	pthread_mutex_unlock(&c->a->notes_lock);
	json_decref(all);
	if (r < 0)
		return r;
	api_audit(c, k->removed, id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

/* ---- answers ---- */

static int put_list(struct api_call *c, const struct kind *k, const struct query *range)
{
	json_t *all = NULL, *note;
	size_t i;
	int r;

	pthread_mutex_lock(&c->a->notes_lock);
	r = load(c, &all);
	pthread_mutex_unlock(&c->a->notes_lock);
	json_open_array(&c->json, k->list);
	json_array_foreach(json_object_get(all, k->list), i, note)
	{
		u64 at = (u64)json_integer_value(json_object_get(note, "time"));

		if (r == 0 && (!range || (at >= range->from_ms && at < range->to_ms)))
			r = put_note(c, note);
	}
	json_close(&c->json);
	json_decref(all);
	return r;
}

static void put_deploys(struct json_writer *w, const struct query_deploys *d)
{
	json_open_array(w, "deploys");
	vec_foreach (&d->list, e) {
		json_open_object(w, NULL);
		json_put_u64(w, "time", e->time_ms);
		json_put_text(w, "service", e->service);
		json_put_text(w, "version", e->version);
		json_put_text(w, "before", e->before);
		json_close(w);
	}
	json_close(w);
	json_put_u64(w, "step", d->step_ms);
	json_put_bool(w, "damaged", d->damaged);
}

static int list_annotations(struct api_call *c)
{
	_cleanup_query_deploys_ struct query_deploys d = {};
	_cleanup_query_ struct query q = {};
	int r = api_query(c, "", &q);

	/* No sample needs to have a version, or the label of a selector. */
	q.strict = false;
	if (r == 0)
		r = query_deploys(c->a->o.store, &q, &d, &c->d);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_u64(&c->json, "from", q.from_ms);
	json_put_u64(&c->json, "to", q.to_ms);
	r = put_list(c, &annotation, &q);
	put_deploys(&c->json, &d);
	json_close(&c->json);
	return r;
}

static int list_views(struct api_call *c)
{
	int r;

	json_open_object(&c->json, NULL);
	r = put_list(c, &view, NULL);
	json_close(&c->json);
	return r;
}

static int add_annotation(struct api_call *c)
{
	return add(c, &annotation);
}

static int drop_annotation(struct api_call *c)
{
	return drop(c, &annotation);
}

static int add_view(struct api_call *c)
{
	return add(c, &view);
}

static int drop_view(struct api_call *c)
{
	return drop(c, &view);
}

#define R NET_ROLE_READ
#define W NET_ROLE_WRITE
const struct api_route api_note_routes[] = {
	{"GET", "/api/v1/annotations", R, API_STYLE_JSON, list_annotations},
	{"POST", "/api/v1/annotations", W, API_STYLE_JSON, add_annotation},
	{"DELETE", "/api/v1/annotations/{id}", W, API_STYLE_JSON, drop_annotation},
	{"GET", "/api/v1/views", R, API_STYLE_JSON, list_views},
	{"POST", "/api/v1/views", W, API_STYLE_JSON, add_view},
	{"DELETE", "/api/v1/views/{id}", W, API_STYLE_JSON, drop_view},
	{},
};
