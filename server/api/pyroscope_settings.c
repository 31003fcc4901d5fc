/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's settings.v1.SettingsService: names and values that clients keep on the server, as
 * Drilldown does for all of its users. They are in a file of the data directory, in the JSON of the
 * answer to Get; a change replaces the file. A store that is not in a directory has none.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/pbjson.h"
#include "server/api/querier.h"

#define FILE_BYTES (256 << 10)
#define MAX_SETTINGS 64
#define MAX_NAME 256
#define ARENA_BYTES (16ULL << 20)

static int read_file(const char *path, char *to, size_t room, size_t *ret_n)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	*ret_n = 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while ((n = read(fd, to + *ret_n, room - *ret_n)) > 0)
		*ret_n += (size_t)n;
	if (n < 0)
		return -errno;
	return *ret_n < room ? 0 : -EFBIG;
}

/* The list has room for one more. */
static int load(struct api_call *c, struct arena *a, Pyroscope__GetSettingsResponse *ret)
{
	Pyroscope__GetSettingsResponse *m = NULL;
	char *text = arena_alloc(a, FILE_BYTES);
	size_t n = 0;
	int r = text ? 0 : -ENOMEM;

	if (r == 0 && c->a->o.settings)
		r = read_file(c->a->o.settings, text, FILE_BYTES, &n);
	if (r == 0 && n)
		r = pbjson_read(&pbjson_plain, &pyroscope__get_settings_response__descriptor, text,
				n, a, (ProtobufCMessage **)&m, &c->d);
	if (r < 0)
		return diag_set(&c->d, -EIO, "%s cannot be read: %s", c->a->o.settings,
				strerror(-r));
	ret->settings = arena_calloc(a, MAX_SETTINGS + 1, sizeof(*ret->settings));
	if (!ret->settings)
		return -ENOMEM;
	for (size_t i = 0; m && i < MIN(m->n_settings, (size_t)MAX_SETTINGS); i++)
		ret->settings[ret->n_settings++] = m->settings[i];
	return 0;
}

static int save(struct api_call *c, const Pyroscope__GetSettingsResponse *m)
{
	_cleanup_str_ struct str text = {};
	int r;

	pbjson_write(&m->base, &text);
	if (text.failed)
		return -ENOMEM;
	if (text.n >= FILE_BYTES)
		return diag_set(&c->d, -E2BIG, "settings have at most %d KiB together",
				FILE_BYTES >> 10);
	r = io_replace(c->a->o.settings, str_get(&text), text.n);
	return r < 0 ? diag_set(&c->d, r, "%s cannot be written: %s", c->a->o.settings,
				strerror(-r))
		     : 0;
}

static size_t find(const Pyroscope__GetSettingsResponse *m, const char *name)
{
	size_t i = 0;

	while (i < m->n_settings && strcmp(m->settings[i]->name, name) != 0)
		i++;
	return i;
}

static int get(struct api_call *c)
{
	Pyroscope__GetSettingsResponse all = PYROSCOPE__GET_SETTINGS_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	void *in;
	int r = querier_request(c, &pyroscope__get_settings_request__descriptor, &a, &in);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->a->settings_lock);
	r = load(c, &a, &all);
	pthread_mutex_unlock(&c->a->settings_lock);
	return r < 0 ? r : querier_answer(c, &all.base);
}

static int check_change(struct api_call *c, const char *name)
{
	if (!c->a->o.settings)
		return diag_set(&c->d, -ENOSYS,
				"settings are kept only with a store in a data directory");
	if (!*name || strlen(name) > MAX_NAME)
		return diag_set(&c->d, -EINVAL, "a setting has a name of at most %d bytes",
				MAX_NAME);
	return 0;
}

/* The caller holds the lock. A value that is older than the stored one is refused. */
static int put(struct api_call *c, Pyroscope__Setting *e, struct arena *a)
{
	Pyroscope__GetSettingsResponse all = PYROSCOPE__GET_SETTINGS_RESPONSE__INIT;
	int r = load(c, a, &all);
	size_t at = find(&all, e->name);

	if (r < 0)
		return r;
	if (at < all.n_settings && all.settings[at]->modifiedat > e->modifiedat)
		return diag_set(&c->d, -EEXIST, "a newer update of %.80s is already written",
				e->name);
	if (at == MAX_SETTINGS)
		return diag_set(&c->d, -E2BIG, "at most %d settings", MAX_SETTINGS);
	all.settings[at] = e;
	all.n_settings = MAX(all.n_settings, at + 1);
	return save(c, &all);
}

static int set(struct api_call *c)
{
	Pyroscope__SetSettingsResponse out = PYROSCOPE__SET_SETTINGS_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Pyroscope__SetSettingsRequest *in = NULL;
	int r = querier_request(c, &pyroscope__set_settings_request__descriptor, &a, &in);

	if (r == 0 && !in->setting)
		r = diag_set(&c->d, -EINVAL, "no setting values provided");
	if (r == 0)
		r = check_change(c, in->setting->name);
	if (r < 0)
		return r;
	if (in->setting->modifiedat <= 0)
		in->setting->modifiedat = (s64)clock_epoch_ms();
	pthread_mutex_lock(&c->a->settings_lock);
	r = put(c, in->setting, &a);
	pthread_mutex_unlock(&c->a->settings_lock);
	if (r < 0)
		return r;
	api_audit(c, "setting-changed", in->setting->name);
	out.setting = in->setting;
	return querier_answer(c, &out.base);
}

/* The caller holds the lock. */
static int drop(struct api_call *c, const char *name, struct arena *a)
{
	Pyroscope__GetSettingsResponse all = PYROSCOPE__GET_SETTINGS_RESPONSE__INIT;
	int r = load(c, a, &all);
	size_t at = find(&all, name);

	if (r < 0 || at == all.n_settings)
		return r;
	all.settings[at] = all.settings[--all.n_settings];
	return save(c, &all);
}

static int delete (struct api_call *c)
{
	Pyroscope__DeleteSettingsResponse out = PYROSCOPE__DELETE_SETTINGS_RESPONSE__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	Pyroscope__DeleteSettingsRequest *in = NULL;
	int r = querier_request(c, &pyroscope__delete_settings_request__descriptor, &a, &in);

	if (r == 0)
		r = check_change(c, in->name);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->a->settings_lock);
	r = drop(c, in->name, &a);
	pthread_mutex_unlock(&c->a->settings_lock);
	if (r < 0)
		return r;
	api_audit(c, "setting-removed", in->name);
	return querier_answer(c, &out.base);
}

#define ROUTE(method, role, fn)                                                                    \
	{                                                                                          \
		"POST", "/settings.v1.SettingsService/" method, role, API_STYLE_CONNECT, fn        \
	}
const struct api_route api_settings_routes[] = {
	ROUTE("Get", NET_ROLE_READ, get),
	ROUTE("Set", NET_ROLE_WRITE, set),
	ROUTE("Delete", NET_ROLE_WRITE, delete),
	{},
};
