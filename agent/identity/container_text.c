/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of container engines say: their formats, without where they are. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "agent/identity/internal.h"
#include "base/cleanup.h"
#include "base/json.h"

/* ---- content of the files ---- */

enum fact { SERVICE, COMPOSE, K8S_CONTAINER, NAME, IMAGE, POD, POD_UID, NAMESPACE, N_FACTS };

struct facts {
	const char *value[N_FACTS]; /* borrowed from the JSON; the first value counts */
};

static void add_fact(struct facts *f, enum fact which, const char *value)
{
	if (value && *value && !f->value[which])
		f->value[which] = value;
}

/* Adds a label of a Docker container, or an annotation of a bundle. */
static void add_pair(struct facts *f, const char *key, size_t n, const char *value)
{
	static const struct {
		const char *key;
		enum fact which;
	} known[] = {
		{"service.name", SERVICE},
		{"com.docker.compose.service", COMPOSE},
		{"io.kubernetes.container.name", K8S_CONTAINER},
		{"io.kubernetes.cri.container-name", K8S_CONTAINER},
		{"io.kubernetes.pod.name", POD},
		{"io.kubernetes.cri.sandbox-name", POD},
		{"io.kubernetes.pod.uid", POD_UID},
		{"io.kubernetes.cri.sandbox-uid", POD_UID},
		{"io.kubernetes.pod.namespace", NAMESPACE},
		{"io.kubernetes.cri.sandbox-namespace", NAMESPACE},
		{"io.kubernetes.cri.image-name", IMAGE},
		{"io.kubernetes.cri-o.ImageName", IMAGE},
		{"nerdctl/name", NAME},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strlen(known[i].key) == n && !memcmp(known[i].key, key, n))
			add_fact(f, known[i].which, value);
}

static void add_pairs(struct facts *f, json_t *pairs)
{
	const char *key;
	json_t *value;

	json_object_foreach(pairs, key, value)
		add_pair(f, key, strlen(key), json_string_value(value));
}

static void read_docker(struct facts *f, json_t *file)
{
	json_t *config = json_object_get(file, "Config");
	const char *name = json_string_value(json_object_get(file, "Name"));

	add_pairs(f, json_object_get(config, "Labels"));
	/* Docker's name begins with a slash. */
	add_fact(f, NAME, name && *name == '/' ? name + 1 : name);
	add_fact(f, IMAGE, json_string_value(json_object_get(config, "Image")));
}

/* Much as Docker's, in "CommonConfig". What Kubernetes says is in labels and annotations. */
static void read_isulad(struct facts *f, json_t *file)
{
	json_t *common = json_object_get(file, "CommonConfig");
	json_t *config = json_object_get(common, "Config");

	add_pairs(f, json_object_get(config, "Labels"));
	add_pairs(f, json_object_get(config, "Annotations"));
	add_fact(f, NAME, json_string_value(json_object_get(common, "Name")));
	add_fact(f, IMAGE, json_string_value(json_object_get(common, "Image")));
	add_fact(f, IMAGE, json_string_value(json_object_get(config, "Image")));
}

/* "labels": ["KEY=VALUE", ...] */
static void read_runc(struct facts *f, json_t *file)
{
	json_t *labels = json_object_get(json_object_get(file, "config"), "labels"), *label;
	size_t i;

	json_array_foreach(labels, i, label)
	{
		const char *text = json_string_value(label), *equals;

		equals = text ? strchr(text, '=') : NULL;
		if (equals)
			add_pair(f, text, (size_t)(equals - text), equals + 1);
	}
}

/* [{"id": ..., "names": [...]}, ...]: calls fn() for the first name of each. */
static int each_name(json_t *file, int (*fn)(void *arg, const char *id, const char *name),
		     void *arg)
{
	json_t *container;
	size_t i;
	int r = 0;

	json_array_foreach(file, i, container)
	{
		const char *id = json_string_value(json_object_get(container, "id"));
		const char *name =
			json_string_value(json_array_get(json_object_get(container, "names"), 0));

		if (id && name && r == 0)
			r = fn(arg, id, name);
	}
	return r;
}

static int pass_labels(const struct facts *f, container_label *fn, void *arg)
{
	static const char *const names[N_FACTS] = {
		[K8S_CONTAINER] = "k8s.container.name",
		[NAME] = "container.name",
		[IMAGE] = "container.image.name",
		[POD] = "k8s.pod.name",
		[POD_UID] = "k8s.pod.uid",
		[NAMESPACE] = "k8s.namespace.name",
	};
	int r = 0;

	for (u32 i = 0; i < N_FACTS && r == 0; i++)
		if (names[i] && f->value[i])
			r = fn(arg, names[i], f->value[i]);
	for (u32 i = SERVICE; i <= NAME && r == 0; i++)
		if (f->value[i])
			return fn(arg, "service.name", f->value[i]);
	return r;
}

/* Lines "NAME=VALUE". A virtual machine is no container, and gets no labels. */
static int parse_machine(const char *text, size_t n, container_label *fn, void *arg)
{
	static const char name_is[] = "NAME=", vm[] = "CLASS=vm";
	char name[256] = "";
	struct facts f = {};

	for (size_t i = 0, line_n; i < n; i += line_n + 1) {
		const char *line = text + i, *nl = memchr(line, '\n', n - i);

		line_n = nl ? (size_t)(nl - line) : n - i;
		if (line_n == sizeof(vm) - 1 && !memcmp(line, vm, line_n))
			return 0;
		if (line_n > 5 && line_n - 5 < sizeof(name) && !memcmp(line, name_is, 5) &&
		    !memchr(line, '\0', line_n)) {
			memcpy(name, line + 5, line_n - 5);
			name[line_n - 5] = '\0';
		}
	}
	add_fact(&f, NAME, name);
	return pass_labels(&f, fn, arg);
}

int container_pass_name(const char *name, container_label *fn, void *arg)
{
	struct facts f = {};

	add_fact(&f, NAME, name);
	return pass_labels(&f, fn, arg);
}

int container_parse(enum container_file kind, const char *text, size_t n, container_label *fn,
		    void *arg, struct diag *reterr_diag)
{
	struct facts f = {};
	json_t *file = NULL;
	int r;

	if (kind == CONTAINER_MACHINE)
		return parse_machine(text, n, fn, arg);
	r = json_read(text, n, 0, &file, reterr_diag);
	if (r < 0)
		return r;
	if (kind == CONTAINER_DOCKER)
		read_docker(&f, file);
	else if (kind == CONTAINER_ISULAD)
		read_isulad(&f, file);
	else if (kind == CONTAINER_BUNDLE)
		add_pairs(&f, json_object_get(file, "annotations"));
	else
		read_runc(&f, file);
	r = pass_labels(&f, fn, arg);
	json_decref(file);
	return r;
}

/* ---- the list of names ---- */

static u64 id_hash(const char *id)
{
	return hash_bytes(id, strlen(id)) >> 1;
}

/* The first name of an id counts. */
static int keep_name(void *arg, const char *id, const char *name)
{
	struct container_names *c = arg;
	u32 id_at, name_at;
	int r;

	if (map_get(&c->by_id, id_hash(id)))
		return 0;
	r = strtab_add(&c->strings, id, strlen(id), &id_at);
	if (r == 0)
		r = strtab_add(&c->strings, name, strlen(name), &name_at);
	return r < 0 ? r : map_put(&c->by_id, id_hash(id), (u64)id_at << 32 | name_at);
}

void container_names_deinit(struct container_names *c)
{
	map_deinit(&c->by_id);
	strtab_deinit(&c->strings);
	*c = (struct container_names){};
}

int container_names_parse(struct container_names *c, const char *text, size_t n,
			  struct diag *reterr_diag)
{
	u64 n_parsed = c->n_parsed + 1;
	json_t *file = NULL;
	int r = json_read(text, n, 0, &file, reterr_diag);

	if (r < 0)
		return r;
	container_names_deinit(c);
	c->n_parsed = n_parsed;
	r = strtab_init(&c->strings);
	if (r == 0)
		r = each_name(file, keep_name, c);
	json_decref(file);
	return r;
}

const char *container_names_get(const struct container_names *c, const char *id)
{
	const u64 *at = map_get(&c->by_id, id_hash(id));

	return at && !strcmp(strtab_get(&c->strings, (u32)(*at >> 32)), id)
		       ? strtab_get(&c->strings, (u32)*at)
		       : NULL;
}
