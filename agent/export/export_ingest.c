/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pyroscope's older API, POST /ingest, which all its versions have: a request is the profile of one
 * service, as pprof, with its name, labels and times in the query. An encoded request is the query,
 * a newline and the body.
 *
 * A server takes the kind of a profile from the names of its sample types: "off_cpu" would be CPU
 * time for it, because there is "cpu" in it. Types that it would misunderstand get other names.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/export/export_private.h"
#include "base/text.h"
#include "base/vocab.h"
#include "format/format.h"

/*
 * What servers accept by default is this many samples, and 4 MiB before compression, of which our
 * files have rarely more than a quarter left.
 */
#define MAX_SAMPLES 16000
#define MAX_BYTES ((size_t)1 << 20)
/*
 * Proxies accept some 8 KiB of a request's line, in which a byte may need three. Labels for which
 * there is no room are left out.
 */
#define MAX_APPLICATION 2000
#define MAX_VALUE 512 /* of a label */

static int open_ingest(struct destination *d, struct diag *reterr_diag)
{
	static const struct http_options o = {
		.path = "/ingest",
		.default_port = "4040",
		.content_type = "application/octet-stream",
	};

	return http_open(d, &o, reterr_diag, (struct http **)&d->private);
}

static const char *type_name(const char *name)
{
	static const struct {
		enum sample_type ours;
		const char *theirs;
	} renamed[] = {
		{SAMPLE_TYPE_OFF_CPU, "waits"},
		{SAMPLE_TYPE_CPU_MIGRATIONS, "migrations"},
		/* "block" is what goroutines wait for */
		{SAMPLE_TYPE_BLOCK_IO_TIME, "disk_time"},
		{SAMPLE_TYPE_BLOCK_IO_BYTES, "disk_bytes"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(renamed); i++)
		if (!strcmp(name, vocab_sample_type(renamed[i].ours)->name))
			return renamed[i].theirs;
	return name;
}

/* ---- the query ---- */

static void put_escaped(struct str *out, const char *s)
{
	static const char hex[] = "0123456789ABCDEF";

	for (; *s; s++) {
		u8 c = (u8)*s;

		if (isalnum(c) || strchr("-._~", c)) {
			str_putc(out, (char)c);
		} else {
			str_putc(out, '%');
			str_putc(out, hex[c >> 4]);
			str_putc(out, hex[c & 15]);
		}
	}
}

/* Letters, digits, and what `also` has; '_' for all else. */
static void put_name(struct str *out, const char *s, const char *also)
{
	for (; *s; s++)
		str_putc(out, isalnum((u8)*s) || strchr(also, *s) ? *s : '_');
}

/* A value ends at a comma or brace, and nothing can escape these. */
static void put_value(struct str *out, const char *value)
{
	_cleanup_str_ struct str clean = {};

	text_append_clean(&clean, value, 0);
	for (size_t i = 0; i < clean.n && i < MAX_VALUE; i++)
		str_putc(out, strchr(",{}=\"", clean.data[i]) ? '_' : clean.data[i]);
}

static void put_label(struct str *out, const char *name, const char *value)
{
	_cleanup_str_ struct str label = {};
	bool first = out->n && out->data[out->n - 1] == '{';

	str_puts(&label, name);
	if (!label.n || label.failed)
		return;
	export_clean_label(label.data);
	str_putc(&label, '=');
	put_value(&label, value);
	if (label.failed || out->n + label.n + 2 > MAX_APPLICATION)
		return;
	str_printf(out, "%s%s", first ? "" : ",", str_get(&label));
}

/* "shop{host_name=web-1,...}" */
static void put_application(struct str *out, const struct profile *p, u32 resource)
{
	static const char in_names[] = "_./-";
	const struct profile_resource *r = &p->resources.data[resource];
	const char *service = profile_label(p, resource, "service.name");
	_cleanup_str_ struct str app = {};

	if (!service || !*service)
		service = "unknown_service";
	put_name(&app, service, in_names);
	str_printf(out, "%s{", str_get(&app));
	/* The label takes precedence: it has characters that the name may not have. */
	if (strcmp(str_get(&app), service) != 0)
		put_label(out, "service_name", service);
	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];
		const char *name = profile_string(p, l->name);

		if (strcmp(name, "service.name") != 0)
			put_label(out, name, profile_string(p, l->value));
	}
	str_putc(out, '}');
}

/* Times are seconds, as all versions read them: an interval has one at least. */
static void put_times(struct str *out, const struct profile *p)
{
	u64 from = p->time_ns / 1000000000, until = (p->time_ns + p->duration_ns) / 1000000000;

	if (p->time_ns)
		str_printf(out, "&from=%llu&until=%llu", from, MAX(until, from + 1));
}

static int put_query(struct str *out, const struct profile *p)
{
	u32 type = p->default_type < p->n_types ? p->default_type : 0;
	const char *unit = p->n_types ? profile_string(p, p->types[type].unit) : "";
	_cleanup_str_ struct str app = {};
	u64 per_second;

	put_application(&app, p, export_resource_of(p, 0));
	str_puts(out, "name=");
	put_escaped(out, str_get(&app));
	put_times(out, p);
	str_puts(out, "&format=pprof&spyName=culprit");
	/* What the first versions ask for; later ones read the file. */
	per_second = vocab_per_second(profile_string(p, p->period_unit));
	if (per_second && p->period > 0)
		str_printf(out, "&sampleRate=%llu", MAX(per_second / (u64)p->period, 1ULL));
	str_printf(out, "&units=%s&aggregationType=sum\n",
		   !strcmp(unit, vocab_unit(UNIT_BYTES)) ? unit : "samples");
	return app.failed || out->failed ? -ENOMEM : 0;
}

static int encode_ingest(struct destination *d, const struct profile *p, struct str *out,
			 struct diag *reterr_diag)
{
	static const struct profile_write_options how = {.type_name = type_name};
	int r;

	(void)d;
	if (!p->n_samples)
		return 0;
	if (p->n_samples > MAX_SAMPLES)
		return -E2BIG;
	r = put_query(out, p);
	return r < 0 ? r : profile_format_by_name("pprof")->write(p, &how, out, reterr_diag);
}

static void send_ingest(struct destination *d, const u8 *data, size_t n, struct export_result *ret)
{
	const u8 *newline = memchr(data, '\n', n);
	_cleanup_str_ struct str query = {};

	/* A file of the spool may have been damaged. */
	if (!newline || str_append(&query, (const char *)data, (size_t)(newline - data)) < 0) {
		*ret = (struct export_result){.outcome = newline ? EXPORT_RETRY : EXPORT_REFUSED};
		diag_set(&ret->error, -EBADMSG, "a request of the spool is damaged");
		return;
	}
	http_post_query(d->private, str_get(&query), newline + 1, n - (size_t)(newline + 1 - data),
			ret);
}

const struct export_ops export_ingest = {
	.scheme = "pyroscope+ingest",
	.open = open_ingest,
	.close = http_close,
	.encode = encode_ingest,
	.send = send_ingest,
	.max_bytes = MAX_BYTES,
	.by_resource = true,
};
