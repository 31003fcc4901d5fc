/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "agent/identity/containers.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include "base/text.h"
#include "proc/proc.h"

#define MAX_LABELS 64
/* Longer values are cut: a hostile process must not create labels of megabytes. */
#define MAX_VALUE 1024
/*
 * Above the first limit unused texts are dropped; above the second no labels are added except
 * service.name.
 */
#define COMPACT_STRING_BYTES (8u << 20)
#define MAX_STRING_BYTES (32u << 20)
/*
 * The exec event precedes the new environment. A process without an environment after this time has
 * none.
 */
#define EXEC_MAX_NS 5000000000ULL

struct label {
	u32 name, value; /* in identities.strings */
};

struct identity {
	u32 n;
	/* the first n_said labels: what the process published about itself */
	u32 n_said;
	u64 said;		  /* hash of these labels; 0: none */
	bool asked, asked_before; /* asked for since the last sweep; since the one before */
	bool has_runtime;
	bool early; /* its environment could not be read yet */
	u32 pid;
	u64 start_ticks; /* as in struct procman_process */
	/* Keys of containers; 0: none. Of a pod, if its container is around `container`. */
	u64 container, pod_container;
	u32 service; /* service.name if neither the labels nor the container have one; 0: none */
	struct label labels[];
};

struct identities {
	pthread_mutex_t lock; /* of all fields below */
	struct strtab strings;
	size_t compact_at;     /* value of strings.n_bytes above which unused texts are dropped */
	u64 left_out;	       /* labels omitted because of MAX_STRING_BYTES */
	struct map known;      /* image → struct identity *, owned */
	struct identity *host; /* owned: default values of all processes */
	char *labels;	       /* owned: identities_set_labels() */
	struct containers containers;
};

/* ---- labels being collected ---- */

struct collecting {
	struct identities *s;
	struct label labels[MAX_LABELS];
	u32 n;
	u64 container, pod_container;
	u32 service;
};

static const char *label_of(const struct collecting *c, const char *name)
{
	for (u32 i = 0; i < c->n; i++)
		if (!strcmp(strtab_get(&c->s->strings, c->labels[i].name), name))
			return strtab_get(&c->s->strings, c->labels[i].value);
	return NULL;
}

static bool has_room(const struct identities *s, const char *name)
{
	return s->strings.n_bytes < MAX_STRING_BYTES || !strcmp(name, "service.name");
}

static int add_string(struct identities *s, const char *text, u32 *ret)
{
	_cleanup_str_ struct str clean = {};

	text_append_clean(&clean, text, 0);
	return strtab_add(&s->strings, str_get(&clean), MIN(clean.n, (size_t)MAX_VALUE), ret);
}

/* Adds a label, unless the value is empty or there is one of this name. */
static int add_label(void *arg, const char *name, const char *value)
{
	struct collecting *c = arg;
	struct label l;
	int r;

	if (!name[0] || !value[0] || c->n == MAX_LABELS || label_of(c, name))
		return 0;
	if (!has_room(c->s, name)) {
		c->s->left_out++;
		return 0;
	}
	r = strtab_add(&c->s->strings, name, MIN(strlen(name), (size_t)MAX_VALUE), &l.name);
	if (r == 0)
		r = add_string(c->s, value, &l.value);
	if (r == 0)
		c->labels[c->n++] = l;
	return r;
}

static struct identity *make_identity(const struct collecting *c)
{
	struct identity *i = malloc(sizeof(*i) + c->n * sizeof(i->labels[0]));

	if (!i)
		return NULL;
	*i = (struct identity){.n = c->n,
			       .asked = true,
			       .container = c->container,
			       .pod_container = c->pod_container,
			       .service = c->service};
	memcpy(i->labels, c->labels, c->n * sizeof(i->labels[0]));
	return i;
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

static int read_host(struct identities *s)
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
		s->host = make_identity(&c);
	return r < 0 ? r : s->host ? 0 : -ENOMEM;
}

int identities_create(struct identities **ret)
{
	_cleanup_identities_ struct identities *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->compact_at = COMPACT_STRING_BYTES;
	r = strtab_init(&s->strings);
	if (r == 0)
		r = read_host(s);
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
	containers_deinit(&s->containers);
	free(s->host);
	free(s->labels);
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

/* The names of its containers are looked up when they are asked for: they may change. */
static int add_cgroup(struct collecting *c, u32 pid, char unit[128])
{
	_cleanup_str_ struct str path = {};
	struct proc_cgroup_owner o, outer = {};
	int r = proc_cgroup_read(pid, &path);

	if (r < 0)
		return r;
	proc_cgroup_describe(str_get(&path), &o);
	r = add_label(c, "container.id", o.container_id);
	if (r == 0)
		r = add_label(c, "k8s.pod.uid", o.pod_uid);
	if (r == 0)
		r = add_label(c, "systemd.unit", o.unit);
	/* In a container with an init, that init's unit is the service. */
	if (r == 0 && o.container_name[0])
		r = add_label(c, "service.name", o.unit);
	memcpy(outer.container_id, o.pod_container_id, sizeof(outer.container_id));
	outer.user = o.user;
	c->container = containers_see(&c->s->containers, &o);
	c->pod_container = containers_see(&c->s->containers, &outer);
	snprintf(unit, 128, "%s", o.container_id[0] ? "" : o.unit);
	return r;
}

/*
 * Adds everything that can be read of the process; a process that has exited or is protected gets
 * less. False: its exec may not have finished.
 */
static bool add_process_labels(struct collecting *c, const struct procman_process *p)
{
	bool early = clock_ns(CLOCK_MONOTONIC) < p->image_ns + EXEC_MAX_NS;
	_cleanup_str_ struct str exe = {};
	char unit[128] = "";
	const char *name = p->comm, *slash;

	if (p->kthread) {
		(void)add_label(c, "service.name", "kernel");
		return true;
	}
	early &= add_environment(c, p->pid) == -ENODATA;
	(void)add_cgroup(c, p->pid, unit);
	if (proc_exe_read(p->pid, &exe) == 0) {
		(void)add_label(c, "process.executable.path", str_get(&exe));
		slash = strrchr(str_get(&exe), '/');
		if (slash && slash[1])
			name = slash + 1;
	}
	(void)add_label(c, "process.executable.name", name);
	(void)add_string(c->s, unit[0] ? unit : name, &c->service);
	return !early;
}

/*
 * Whether /proc still shows the image that was sampled: a child has often called exec before the
 * samples from before that are read.
 */
static bool is_same_image(const struct procman_process *p)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u/exe", p->pid);
	if (stat(path, &st) < 0)
		return false;
	for (u32 i = 0; i < p->n; i++)
		if (p->mappings[i].binary->inode == st.st_ino)
			return true;
	return false;
}

/* Adds the runtime's name and version. True: nothing more will become known. */
static bool add_runtime(struct collecting *c, const struct procman_process *p, struct runtimes *r)
{
	struct runtime_identity i;
	const char *name;

	if (!runtimes_identify(r, p, &i) || !is_same_image(p))
		return false;
	(void)add_label(c, "process.runtime.name", i.name);
	name = label_of(c, "process.runtime.name");
	/* Only if the name is the runtime's own, and not published by the process. */
	if (name && !strcmp(name, i.name))
		(void)add_label(c, "process.runtime.version", i.version);
	return i.version[0];
}

static void set_process(struct identity *i, const struct procman_process *p)
{
	i->pid = p->pid;
	i->start_ticks = p->start_ticks;
}

/* What was found out before stays if the process cannot be asked again. */
static void keep_owner(struct collecting *c, const struct identity *before)
{
	c->container = before->container;
	c->pod_container = before->pod_container;
	c->service = before->service;
}

/* The containers stay known as long as their processes. */
static void ask(struct identities *s, struct identity *i)
{
	i->asked = true;
	containers_keep(&s->containers, i->container);
	containers_keep(&s->containers, i->pod_container);
}

static bool see_image(struct identities *s, const struct procman_process *p, struct runtimes *r)
{
	const u64 *known = map_get(&s->known, p->image);
	struct identity *before = known ? (struct identity *)*known : NULL, *i;
	struct collecting c = {.s = s};
	bool has_runtime, again = before && before->early && is_same_image(p), early = false;

	/* Keep it for the next batch: its samples will ask for it after the next sweep. */
	if (before)
		ask(s, before);
	if (before && before->has_runtime && !again)
		return true;
	if (before) {
		c.n = again ? before->n_said : before->n;
		memcpy(c.labels, before->labels, c.n * sizeof(c.labels[0]));
		keep_owner(&c, before);
	}
	if (!before || again)
		early = !add_process_labels(&c, p);
	has_runtime = add_runtime(&c, p, r);
	if (before && !again && c.n == before->n)
		return true;
	i = make_identity(&c);
	if (!i)
		return true;
	set_process(i, p);
	i->early = early;
	i->has_runtime = has_runtime;
	i->said = before ? before->said : 0;
	i->n_said = before ? before->n_said : 0;
	if (map_put(&s->known, p->image, (u64)i) < 0)
		free(i);
	else
		free(before);
	return !early;
}

bool identities_see(struct identities *s, const struct procman_process *p, struct runtimes *r)
{
	bool all;

	pthread_mutex_lock(&s->lock);
	all = see_image(s, p, r);
	pthread_mutex_unlock(&s->lock);
	return all;
}

/*
 * Builds an identity from what the process publishes, what can be found out, and the previous
 * identity without what the process published then.
 */
static void set_published(struct identities *s, const struct procman_process *p,
			  const struct context_label *said, u32 n_said, u64 hash)
{
	const u64 *known = map_get(&s->known, p->image);
	struct identity *before = known ? (struct identity *)*known : NULL, *i;
	const struct identity *rest = before ? before : s->host;
	struct collecting c = {.s = s};
	bool early;
	u32 n;

	if (before && before->said == hash)
		return;
	for (u32 j = 0; j < n_said; j++)
		(void)add_label(&c, said[j].name, said[j].value);
	n = c.n;
	if (before)
		keep_owner(&c, before);
	early = !add_process_labels(&c, p);
	for (u32 j = rest->n_said; j < rest->n; j++)
		(void)add_label(&c, strtab_get(&s->strings, rest->labels[j].name),
				strtab_get(&s->strings, rest->labels[j].value));
	i = make_identity(&c);
	if (!i)
		return;
	i->said = hash;
	i->n_said = n;
	set_process(i, p);
	i->early = early;
	i->has_runtime = before && before->has_runtime;
	if (map_put(&s->known, p->image, (u64)i) < 0)
		free(i);
	else
		free(before);
}

void identities_say(struct identities *s, const struct procman_process *p,
		    const struct context_label *labels, u32 n)
{
	u64 hash = n + 1;

	for (u32 i = 0; i < n; i++) {
		hash = hash_u64(hash ^ hash_bytes(labels[i].name, strlen(labels[i].name)));
		hash = hash_u64(hash ^ hash_bytes(labels[i].value, strlen(labels[i].value)));
	}
	pthread_mutex_lock(&s->lock);
	set_published(s, p, labels, n, hash);
	pthread_mutex_unlock(&s->lock);
}

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

/* The labels of a resource, as ids in a profile. */
struct adding {
	struct profile *p;
	struct profile_label labels[MAX_LABELS + 1];
	u32 n;
};

static int add_said(void *arg, const char *name, const char *value)
{
	struct adding *a = arg;
	struct profile_label l;
	int r = add_text(a->p, name, &l.name);

	for (u32 i = 0; i < a->n && r == 0; i++)
		if (a->labels[i].name == l.name)
			return 0;
	if (r == 0)
		r = add_text(a->p, value, &l.value);
	if (r == 0 && a->n < MAX_LABELS && value[0])
		a->labels[a->n++] = l;
	return r;
}

static int ignore_label(void *arg, const char *name, const char *value)
{
	(void)arg;
	(void)name;
	return strlen(value) > MAX_VALUE ? -E2BIG : 0;
}

int identities_set_labels(struct identities *s, const char *text)
{
	char *copy = text ? strdup(text) : NULL, *old = NULL;
	int r = copy ? identity_parse_attributes(copy, ignore_label, NULL) : text ? -ENOMEM : 0;

	if (r == 0) {
		pthread_mutex_lock(&s->lock);
		old = s->labels;
		s->labels = take_ptr(copy);
		pthread_mutex_unlock(&s->lock);
	}
	free(copy);
	free(old);
	return r;
}

int identities_set_root(struct identities *s, const char *path)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = containers_set_root(&s->containers, path);
	pthread_mutex_unlock(&s->lock);
	return r;
}

void identities_follow(struct identities *s)
{
	pthread_mutex_lock(&s->lock);
	containers_follow(&s->containers, clock_ns(CLOCK_MONOTONIC));
	pthread_mutex_unlock(&s->lock);
}

static int add_all(struct identities *s, struct identity *i, struct adding *a)
{
	int r = 0;

	i->asked = true;
	for (u32 j = 0; j < i->n && r == 0; j++)
		r = add_said(a, strtab_get(&s->strings, i->labels[j].name),
			     strtab_get(&s->strings, i->labels[j].value));
	return r;
}

/* Of the pod's container around another one: what it says of the pod. */
static int add_of_pod(void *arg, const char *name, const char *value)
{
	return str_starts(name, "k8s.pod.") || !strcmp(name, "k8s.namespace.name")
		       ? add_said(arg, name, value)
		       : 0;
}

static int add_process(struct identities *s, struct identity *i, struct adding *a)
{
	int r = add_all(s, i, a);

	if (r == 0)
		r = containers_labels(&s->containers, i->container, add_said, a);
	if (r == 0)
		r = containers_labels(&s->containers, i->pod_container, add_of_pod, a);
	if (r == 0 && i->service)
		r = add_said(a, "service.name", strtab_get(&s->strings, i->service));
	return r;
}

static int add_resource(struct identities *s, u64 image, const char *comm, struct profile *into,
			u32 *ret_resource)
{
	const u64 *known = map_get(&s->known, image);
	struct identity *i = known ? (struct identity *)*known : NULL;
	struct adding a = {.p = into};
	int r = i ? add_process(s, i, &a) : add_said(&a, "service.name", comm);

	/* In a container the kernel's host name is not that of the host: labels that the user set
	 * come first. */
	if (r == 0 && s->labels)
		r = identity_parse_attributes(s->labels, add_said, &a);
	if (r == 0)
		r = add_all(s, s->host, &a);
	return r < 0 ? r : profile_add_resource(into, a.labels, a.n, ret_resource);
}

int identities_resource(struct identities *s, u64 image, const char *comm, struct profile *into,
			u32 *ret_resource)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = add_resource(s, image, comm, into, ret_resource);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static const char *label_of_identity(const struct identities *s, const struct identity *i,
				     const char *name)
{
	for (u32 j = 0; j < i->n; j++)
		if (!strcmp(strtab_get(&s->strings, i->labels[j].name), name))
			return strtab_get(&s->strings, i->labels[j].value);
	return "";
}

static const char *service_of(struct identities *s, const struct identity *i)
{
	const char *name = label_of_identity(s, i, "service.name");
	const char *of_container =
		*name ? NULL : containers_label(&s->containers, i->container, "service.name");

	return *name ? name : of_container ? of_container : strtab_get(&s->strings, i->service);
}

void identities_each(struct identities *s,
		     void (*fn)(void *arg, const struct identity_process *p, const char *service),
		     void *arg)
{
	pthread_mutex_lock(&s->lock);
	map_foreach (&s->known, slot) {
		const struct identity *i = (const struct identity *)slot->value;
		const struct identity_process p = {slot->key, i->start_ticks, i->pid};

		if (i->pid)
			fn(arg, &p, service_of(s, i));
	}
	pthread_mutex_unlock(&s->lock);
}

struct process_search {
	const char *service;
	struct identity_process *ret;
	size_t n, max;
};

static void take_process(void *arg, const struct identity_process *p, const char *service)
{
	struct process_search *f = arg;

	if (f->n < f->max && !strcmp(service, f->service))
		f->ret[f->n++] = *p;
}

size_t identities_find(struct identities *s, const char *service, struct identity_process *ret,
		       size_t max)
{
	struct process_search f = {.service = service, .ret = ret, .max = max};

	identities_each(s, take_process, &f);
	return f.n;
}

struct label_search {
	const char *name;
	char *ret;
	size_t n;
};

static int copy_label(void *arg, const char *name, const char *value)
{
	struct label_search *l = arg;

	if (strcmp(name, l->name) != 0 || !value[0])
		return 0;
	snprintf(l->ret, l->n, "%s", value);
	return 1;
}

void identities_host(struct identities *s, const char *name, char *ret, size_t n)
{
	struct label_search l = {name, ret, n};

	ret[0] = '\0';
	pthread_mutex_lock(&s->lock);
	if (!s->labels || identity_parse_attributes(s->labels, copy_label, &l) <= 0)
		for (u32 i = 0; i < s->host->n; i++)
			(void)copy_label(&l, strtab_get(&s->strings, s->host->labels[i].name),
					 strtab_get(&s->strings, s->host->labels[i].value));
	pthread_mutex_unlock(&s->lock);
}

/* Copies the strings of an identity to a new table. ids[old] = new, 0: not copied yet. */
static int copy_string(const struct strtab *from, u32 id, struct strtab *to, u32 *ids)
{
	return ids[id] ? 0 : strtab_add(to, strtab_get(from, id), from->lengths[id], &ids[id]);
}

static int copy_strings(const struct strtab *from, const struct identity *i, struct strtab *to,
			u32 *ids)
{
	int r = copy_string(from, i->service, to, ids);

	for (u32 j = 0; j < i->n && r == 0; j++) {
		r = copy_string(from, i->labels[j].name, to, ids);
		if (r == 0)
			r = copy_string(from, i->labels[j].value, to, ids);
	}
	return r;
}

static void renumber_labels(struct identity *i, const u32 *ids)
{
	for (u32 j = 0; j < i->n; j++)
		i->labels[j] = (struct label){ids[i->labels[j].name], ids[i->labels[j].value]};
	i->service = ids[i->service];
}

/*
 * Drops strings that no identity uses. The identities stay, because the batch that was just handed
 * over needs them. Without memory nothing changes until the next sweep.
 */
static void compact_strings(struct identities *s)
{
	_cleanup_free_ u32 *ids = calloc(s->strings.n, sizeof(*ids));
	struct strtab fresh = {};
	int r = ids ? strtab_init(&fresh) : -ENOMEM;

	if (r < 0)
		return;
	r = copy_strings(&s->strings, s->host, &fresh, ids);
	map_foreach (&s->known, slot)
		if (r == 0)
			r = copy_strings(&s->strings, (const struct identity *)slot->value, &fresh,
					 ids);
	if (r < 0) {
		strtab_deinit(&fresh);
		return;
	}
	renumber_labels(s->host, ids);
	map_foreach (&s->known, slot)
		renumber_labels((struct identity *)slot->value, ids);
	strtab_deinit(&s->strings);
	s->strings = fresh;
	s->compact_at =
		MIN(MAX((size_t)COMPACT_STRING_BYTES, 2 * fresh.n_bytes), (size_t)MAX_STRING_BYTES);
}

static void sweep_identities(struct identities *s)
{
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
	containers_sweep(&s->containers);
	if (s->strings.n_bytes > s->compact_at)
		compact_strings(s);
}

void identities_sweep(struct identities *s)
{
	pthread_mutex_lock(&s->lock);
	sweep_identities(s);
	pthread_mutex_unlock(&s->lock);
}

u64 identities_left_out(struct identities *s)
{
	u64 n;

	pthread_mutex_lock(&s->lock);
	n = s->left_out + s->containers.left_out;
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void copy_name(struct identities *s, u64 container, const char *name, char *ret, size_t n)
{
	const char *value = containers_label(&s->containers, container, name);

	snprintf(ret, n, "%s", value ? value : "");
}

void identities_container(struct identities *s, u32 pid, struct identity_container *ret)
{
	_cleanup_str_ struct str path = {};
	struct proc_cgroup_owner o = {};
	u64 key;

	*ret = (struct identity_container){};
	if (proc_cgroup_read(pid, &path) < 0)
		return;
	proc_cgroup_describe(str_get(&path), &o);
	snprintf(ret->id, sizeof(ret->id), "%s", o.container_id);
	snprintf(ret->outer_id, sizeof(ret->outer_id), "%s", o.pod_container_id);
	snprintf(ret->pod_uid, sizeof(ret->pod_uid), "%s", o.pod_uid);
	pthread_mutex_lock(&s->lock);
	key = containers_see(&s->containers, &o);
	copy_name(s, key, "container.name", ret->name, sizeof(ret->name));
	copy_name(s, key, "k8s.container.name", ret->pod_name, sizeof(ret->pod_name));
	pthread_mutex_unlock(&s->lock);
}
