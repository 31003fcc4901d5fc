/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/map.h"
#include "base/str.h"
#include "base/text.h"
#include "proc/proc.h"

#define MAX_LABELS 64
/* An attribute of a hostile process must not become a label of megabytes. */
#define MAX_VALUE 1024
#define MAX_STRING_BYTES (8u << 20)

struct label {
	u32 name, value; /* in identities.strings */
};

struct identity {
	u32 n;
	bool asked, asked_before; /* since the last sweep, since the one before */
	struct label labels[];
};

struct identities {
	pthread_mutex_t lock; /* of all below */
	struct strtab strings;
	struct map known;      /* hash of pid and image → struct identity *, owned */
	struct identity *host; /* owned: what all have */
};

static u64 key_of(u32 pid, u64 image_ns)
{
	u64 key[2] = {pid, image_ns};

	return hash_bytes(key, sizeof(key)) >> 1;
}

/* ---- labels being collected ---- */

struct collecting {
	struct identities *s;
	struct label labels[MAX_LABELS];
	u32 n;
};

static const char *label_of(const struct collecting *c, const char *name)
{
	for (u32 i = 0; i < c->n; i++)
		if (!strcmp(strtab_get(&c->s->strings, c->labels[i].name), name))
			return strtab_get(&c->s->strings, c->labels[i].value);
	return NULL;
}

/* Keeps what is there; says nothing of what is empty. */
static int add_label(void *arg, const char *name, const char *value)
{
	struct collecting *c = arg;
	_cleanup_str_ struct str clean = {};
	struct label l;
	int r;

	if (!name[0] || !value[0] || c->n == MAX_LABELS || label_of(c, name))
		return 0;
	text_append_clean(&clean, value, 0);
	r = strtab_add(&c->s->strings, name, MIN(strlen(name), (size_t)MAX_VALUE), &l.name);
	if (r == 0)
		r = strtab_add(&c->s->strings, str_get(&clean), MIN(clean.n, (size_t)MAX_VALUE),
			       &l.value);
	if (r == 0)
		c->labels[c->n++] = l;
	return r;
}

static struct identity *collected(const struct collecting *c)
{
	struct identity *i = malloc(sizeof(*i) + c->n * sizeof(i->labels[0]));

	if (!i)
		return NULL;
	*i = (struct identity){.n = c->n, .asked = true};
	memcpy(i->labels, c->labels, c->n * sizeof(i->labels[0]));
	return i;
}

/* ---- OTEL_RESOURCE_ATTRIBUTES ---- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place %XX and takes the spaces around away. -EINVAL: a broken %, or a NUL. */
static int decode(struct str *s)
{
	size_t n = 0, begin = 0;

	for (size_t i = 0; i < s->n; i++) {
		char c = s->data[i];

		if (c == '%') {
			int high = i + 2 < s->n ? hex_value(s->data[i + 1]) : -1;
			int low = i + 2 < s->n ? hex_value(s->data[i + 2]) : -1;

			if (high < 0 || low < 0 || (high | low) == 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		}
		s->data[n++] = c;
	}
	while (n && s->data[n - 1] == ' ')
		n--;
	while (begin < n && s->data[begin] == ' ')
		begin++;
	memmove(s->data, s->data + begin, n - begin);
	s->n = n - begin;
	s->data[s->n] = '\0';
	return 0;
}

/* One "key=value" of n bytes. */
static int split(const char *text, size_t n, struct str *name, struct str *value)
{
	const char *equals = memchr(text, '=', n);
	int r;

	if (!equals || equals == text)
		return -EINVAL;
	str_clear(name);
	str_clear(value);
	r = str_append(name, text, (size_t)(equals - text));
	if (r == 0)
		r = str_append(value, equals + 1, n - (size_t)(equals + 1 - text));
	if (r == 0)
		r = decode(name);
	return r < 0 || !value->n ? r : decode(value);
}

int identity_parse_attributes(const char *text,
			      int (*fn)(void *arg, const char *name, const char *value), void *arg)
{
	_cleanup_str_ struct str name = {}, value = {}, clean = {};
	int r = 0;

	/* Once to see that it is sound, once for the caller. */
	for (int pass = 0; pass < 2; pass++) {
		for (const char *at = text; *at;) {
			size_t n = strcspn(at, ",");

			r = n ? split(at, n, &name, &value) : 0;
			if (r < 0)
				return r;
			if (n && pass) {
				str_clear(&clean);
				text_append_clean(&clean, str_get(&name), 0);
				r = fn(arg, str_get(&clean), str_get(&value));
			}
			if (r)
				return r;
			at += n + (at[n] == ',');
		}
	}
	return 0;
}

/* ---- the host ---- */

static int read_line(const char *path, char *ret, size_t n)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	if (!f || !fgets(ret, (int)n, f))
		return -ENOENT;
	ret[strcspn(ret, "\n")] = '\0';
	return 0;
}

static int know_host(struct identities *s)
{
	struct collecting c = {.s = s};
	struct utsname u;
	char id[64];
	int r = 0;

	if (uname(&u) == 0) {
		const char *arch = !strcmp(u.machine, "x86_64")	   ? "amd64"
				   : !strcmp(u.machine, "aarch64") ? "arm64"
								   : u.machine;

		r = add_label(&c, "host.name", u.nodename);
		if (r == 0)
			r = add_label(&c, "host.arch", arch);
	}
	if (r == 0 && read_line("/etc/machine-id", id, sizeof(id)) == 0)
		r = add_label(&c, "host.id", id);
	if (r == 0)
		r = add_label(&c, "os.type", "linux");
	if (r == 0)
		s->host = collected(&c);
	return r < 0 ? r : s->host ? 0 : -ENOMEM;
}

int identities_create(struct identities **ret)
{
	_cleanup_identities_ struct identities *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	r = strtab_init(&s->strings);
	if (r == 0)
		r = know_host(s);
	if (r < 0)
		return r;
	*ret = take_ptr(s);
	return 0;
}

void identities_destroy(struct identities *s)
{
	if (!s)
		return;
	map_foreach (&s->known, slot)
		free((struct identity *)slot->value);
	map_deinit(&s->known);
	free(s->host);
	strtab_deinit(&s->strings);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- processes ---- */

enum { SERVICE_NAME, RESOURCE_ATTRIBUTES, N_VARIABLES };

static const char *const variables[N_VARIABLES] = {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"};

static int add_environment(struct collecting *c, u32 pid)
{
	struct str values[N_VARIABLES] = {};
	int r = proc_environ_read(pid, variables, N_VARIABLES, values);

	if (r == 0)
		r = add_label(c, "service.name", str_get(&values[SERVICE_NAME]));
	if (r == 0)
		r = identity_parse_attributes(str_get(&values[RESOURCE_ATTRIBUTES]), add_label, c);
	for (size_t i = 0; i < N_VARIABLES; i++)
		str_deinit(&values[i]);
	return r;
}

static int add_cgroup(struct collecting *c, u32 pid, char unit[128])
{
	_cleanup_str_ struct str path = {};
	struct proc_cgroup_owner o;
	int r = proc_cgroup_read(pid, &path);

	if (r < 0)
		return r;
	proc_cgroup_describe(str_get(&path), &o);
	r = add_label(c, "container.id", o.container_id);
	if (r == 0)
		r = add_label(c, "k8s.pod.uid", o.pod_uid);
	if (r == 0)
		r = add_label(c, "systemd.unit", o.unit);
	snprintf(unit, 128, "%s", o.container_id[0] ? "" : o.unit);
	return r;
}

/* What can be read is used; a process that is gone or not ours to read has less to it. */
static void describe(struct collecting *c, const struct procman_process *p)
{
	_cleanup_str_ struct str exe = {};
	char unit[128] = "";
	const char *name = p->comm, *slash;

	if (p->kthread) {
		(void)add_label(c, "service.name", "kernel");
		return;
	}
	(void)add_environment(c, p->pid);
	(void)add_cgroup(c, p->pid, unit);
	if (proc_exe_read(p->pid, &exe) == 0) {
		(void)add_label(c, "process.executable.path", str_get(&exe));
		slash = strrchr(str_get(&exe), '/');
		if (slash && slash[1])
			name = slash + 1;
	}
	(void)add_label(c, "process.executable.name", name);
	(void)add_label(c, "service.name", unit);
	(void)add_label(c, "service.name", name);
}

static void see(struct identities *s, const struct procman_process *p)
{
	u64 key = key_of(p->pid, p->image_ns);
	struct collecting c = {.s = s};
	struct identity *i;

	if (map_get(&s->known, key))
		return;
	describe(&c, p);
	for (u32 j = 0; j < s->host->n; j++)
		(void)add_label(&c, strtab_get(&s->strings, s->host->labels[j].name),
				strtab_get(&s->strings, s->host->labels[j].value));
	i = collected(&c);
	if (i && map_put(&s->known, key, (u64)i) < 0)
		free(i);
}

void identities_see(struct identities *s, const struct procman_process *p)
{
	pthread_mutex_lock(&s->lock);
	see(s, p);
	pthread_mutex_unlock(&s->lock);
}

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

static int add_resource(struct identities *s, u32 pid, u64 image_ns, const char *comm,
			struct profile *into, u32 *ret_resource)
{
	const u64 *known = map_get(&s->known, key_of(pid, image_ns));
	struct identity *i = known ? (struct identity *)*known : s->host;
	struct profile_label labels[MAX_LABELS + 1];
	u32 n = 0;
	int r = 0;

	i->asked = true;
	for (; n < i->n && r == 0; n++) {
		r = add_text(into, strtab_get(&s->strings, i->labels[n].name), &labels[n].name);
		if (r == 0)
			r = add_text(into, strtab_get(&s->strings, i->labels[n].value),
				     &labels[n].value);
	}
	if (r == 0 && i == s->host) {
		r = add_text(into, "service.name", &labels[n].name);
		if (r == 0)
			r = add_text(into, comm, &labels[n].value);
		n++;
	}
	return r < 0 ? r : profile_add_resource(into, labels, n, ret_resource);
}

int identities_resource(struct identities *s, u32 pid, u64 image_ns, const char *comm,
			struct profile *into, u32 *ret_resource)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = add_resource(s, pid, image_ns, comm, into, ret_resource);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Labels of containers long gone: who is still there is read again. */
static void begin_anew(struct identities *s)
{
	struct identities fresh = {};

	if (strtab_init(&fresh.strings) < 0)
		return;
	map_foreach (&s->known, slot)
		free((struct identity *)slot->value);
	map_clear(&s->known);
	strtab_deinit(&s->strings);
	s->strings = fresh.strings;
	free(take_ptr(s->host));
	if (know_host(s) < 0)
		s->host = calloc(1, sizeof(*s->host));
}

static void sweep(struct identities *s)
{
	if (s->strings.n_bytes > MAX_STRING_BYTES) {
		begin_anew(s);
		return;
	}
	map_foreach (&s->known, slot) {
		struct identity *i = (struct identity *)slot->value;

		if (i->asked || i->asked_before) {
			i->asked_before = i->asked;
			i->asked = false;
			continue;
		}
		map_del(&s->known, slot->key, NULL);
		free(i);
	}
}

void identities_sweep(struct identities *s)
{
	pthread_mutex_lock(&s->lock);
	sweep(s);
	pthread_mutex_unlock(&s->lock);
}
