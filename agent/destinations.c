/* SPDX-License-Identifier: Apache-2.0 */
/* The destinations of the always-on agent: from its options to those of its exporters. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/internal.h"
#include "http/http.h"

#define SPOOL_MB 64

/* The destinations, and the strings that export_options borrows. */
struct destinations {
	struct export_options all[AGENT_MAX_DESTINATIONS];
	size_t n;
	char *urls, *collector, *token, *user, *spools[AGENT_MAX_DESTINATIONS]; /* owned */
	u32 roots;
	u64 memory_bytes; /* limit of all spools that are kept in memory together */
};

static void forget_secret(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void destinations_deinit(struct destinations *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->spools[i]);
	free(d->urls);
	free(d->collector);
	forget_secret(d->token);
	forget_secret(d->user);
}
#define _cleanup_destinations_ __attribute__((cleanup(destinations_deinit)))

/* Each destination has a spool directory of its own below `dir`, named after its URL. */
static int spool_dir_of(const char *dir, const char *url, struct diag *reterr_diag, char **ret)
{
	char *name;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return diag_set(reterr_diag, -errno, "cannot create the spool directory %s: %s",
				dir, strerror(errno));
	if (asprintf(ret, "%s/%s", dir, url) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	for (name = *ret + strlen(dir) + 1; *name; name++)
		if (!isalnum((u8)*name) && !strchr(".-_", *name))
			*name = '_';
	return 0;
}

static int add_destination(struct destinations *d, const struct agent_options *o, const char *url,
			   struct diag *reterr_diag)
{
	size_t i = d->n;

	if (i > AGENT_MAX_EXPORTS)
		return diag_set(reterr_diag, -EINVAL, "--export: more than %d destinations",
				AGENT_MAX_EXPORTS);
	d->all[i] = (struct export_options){
		.url = url,
		.tls = !o->disable_tls,
		.ca = o->ca,
		.cert = o->cert,
		.key = o->key,
		.token = d->token,
		.user = d->user,
		.headers = o->headers,
		.roots = d->roots,
		.spool_bytes = (o->spool_mb ? o->spool_mb : SPOOL_MB) << 20,
	};
	d->n++;
	if (o->spool_dir) {
		int r = spool_dir_of(o->spool_dir, url, reterr_diag, &d->spools[i]);

		if (r < 0)
			return r;
	}
	d->all[i].spool_dir = d->spools[i];
	return 0;
}

/* Destinations without a directory share the memory that may be spooled. */
static void share_memory(struct destinations *d)
{
	u64 n = 0;

	for (size_t i = 0; i < d->n; i++)
		n += !d->spools[i];
	for (size_t i = 0; i < d->n; i++)
		if (!d->spools[i])
			d->all[i].spool_bytes = MIN(d->all[i].spool_bytes, d->memory_bytes / n);
}

static int list_destinations(const struct agent_options *o, struct destinations *d,
			     struct diag *reterr_diag)
{
	char *save = NULL;
	int r = o->token_file ? http_client_token(o->token_file, reterr_diag, &d->token) : 0;

	if (r == 0 && o->user_file && o->token_file)
		return diag_set(reterr_diag, -EINVAL,
				"--export-user-file and --export-token-file exclude each other");
	if (r == 0 && o->user_file)
		r = http_client_token(o->user_file, reterr_diag, &d->user);
	if (r == 0 && o->roots)
		r = profile_roots_parse(o->roots, &d->roots, reterr_diag);
	if (r < 0)
		return r;
	d->urls = strdup(o->exports ? o->exports : "");
	if (!d->urls)
		return -ENOMEM;
	if (o->collector && asprintf(&d->collector, "otlp://%s", o->collector) < 0) {
		d->collector = NULL;
		return -ENOMEM;
	}
	if (o->local)
		d->all[d->n++] = *o->local;
	if (d->collector)
		r = add_destination(d, o, d->collector, reterr_diag);
	for (char *url = strtok_r(d->urls, ",", &save); url && r == 0;
	     url = strtok_r(NULL, ",", &save))
		r = add_destination(d, o, url, reterr_diag);
	if (r == 0 && !d->n)
		return diag_set(reterr_diag, -EINVAL,
				"agent: no destination; give --collection-agent or --export");
	return r;
}

/* The tasks of destinations that stay go on, the others' end. */
static void follow_destinations(struct agent *a, const struct destinations *d)
{
	const char *urls[AGENT_MAX_DESTINATIONS];
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		if (d->all[i].asking)
			urls[n++] = d->all[i].url;
	control_client_keep_only(a->asks, urls, n);
}

int agent_open_exporters(struct agent *a, const struct agent_options *o, struct diag *reterr_diag)
{
	_cleanup_destinations_ struct destinations d = {.memory_bytes = agent_memory_limit(o) / 8};
	int r = list_destinations(o, &d, reterr_diag);

	if (r == 0) {
		share_memory(&d);
		for (size_t i = 0; i < d.n && !o->no_tasks; i++)
			d.all[i].asking = control_client_asking(a->asks);
		r = a->exporters ? exporters_replace(a->exporters, d.all, d.n, reterr_diag)
				 : exporters_create(d.all, d.n, reterr_diag, &a->exporters);
	}
	if (r == 0)
		follow_destinations(a, &d);
	return r < 0 ? diag_set(reterr_diag, r, "%s", r == -ENOMEM ? "out of memory" : strerror(-r))
		     : 0;
}
