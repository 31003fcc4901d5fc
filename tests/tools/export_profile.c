/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export-profile [OPTION=VALUE]... URL[,URL]... FILE...: reads profiles and gives them to the
 * exporters of the agent, one after the other, repeat= times. Then it prints the exporters'
 * statistics as JSON. With dump=DIR it writes the OTLP request of each profile to DIR.
 *
 * A FILE.otlp or FILE.json is a request, whose profiles are sent unchanged, one by one.
 *
 * Options: tls=1 ca= cert= key= token= headers= spool= spool_bytes= timeout= retry_ms= keep=
 * repeat= gap_ms= (between two) settle_ms= (between two, or less when there is nothing to send)
 * shutdown_ms= resources=N (each profile's threads get N resources)
 * timed=1 (samples get times) lost=N
 * start=SECONDS
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/export/export.h"
#include "base/text.h"
#include "base/vocab.h"
#include "format/format.h"
#include "otlp/otlp.h"

#define MAX_URLS 4

struct arguments {
	struct export_options o;
	u64 repeat, gap_ms, settle_ms, shutdown_ms, resources, timed, lost, start_s;
	const char *dump;
};

static u64 number(const char *s)
{
	u64 v = 0;

	if (str_to_u64(s, 10, &v) < 0) {
		fprintf(stderr, "not a number: %s\n", s);
		exit(2);
	}
	return v;
}

static bool parse(struct arguments *a, const char *arg)
{
	static const char *const names[] = {
		"tls",	       "ca",	  "cert",     "key",  "token",	"headers",   "spool",
		"spool_bytes", "timeout", "retry_ms", "keep", "repeat", "gap_ms",    "shutdown_ms",
		"resources",   "timed",	  "lost",     "dump", "start",	"settle_ms",
	};
	const char *value = strchr(arg, '=');
	size_t n = value ? (size_t)(value++ - arg) : 0, i = 0;

	while (i < ARRAY_SIZE(names) && (strlen(names[i]) != n || memcmp(names[i], arg, n) != 0))
		i++;
	switch (i) {
	case 0:
		a->o.tls = number(value);
		break;
	case 1:
		a->o.ca = value;
		break;
	case 2:
		a->o.cert = value;
		break;
	case 3:
		a->o.key = value;
		break;
	case 4:
		a->o.token = value;
		break;
	case 5:
		a->o.headers = value;
		break;
	case 6:
		a->o.spool_dir = value;
		break;
	case 7:
		a->o.spool_bytes = number(value);
		break;
	case 8:
		a->o.timeout_s = (u32)number(value);
		break;
	case 9:
		a->o.retry_ms = (u32)number(value);
		break;
	case 10:
		a->o.keep_files = (u32)number(value);
		break;
	case 11:
		a->repeat = number(value);
		break;
	case 12:
		a->gap_ms = number(value);
		break;
	case 13:
		a->shutdown_ms = number(value);
		break;
	case 14:
		a->resources = number(value);
		break;
	case 15:
		a->timed = number(value);
		break;
	case 16:
		a->lost = number(value);
		break;
	case 17:
		a->dump = value;
		break;
	case 18:
		a->start_s = number(value);
		break;
	case 19:
		a->settle_ms = number(value);
		break;
	default:
		return false;
	}
	return true;
}

static void check(int r, const struct diag *d)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s\n", d->text[0] ? d->text : strerror(-r));
	exit(1);
}

static u32 text(struct profile *p, const char *s)
{
	u32 id = 0;

	check(profile_add_string(p, s, strlen(s), &id), &(struct diag){});
	return id;
}

static u32 make_resource(struct profile *p, u64 i)
{
	char service[32], container[32];
	struct profile_label labels[2];
	u32 id = 0;

	snprintf(service, sizeof(service), "service-%llu", i);
	snprintf(container, sizeof(container), "container-%llu", i);
	labels[0] = (struct profile_label){text(p, "service.name"), text(p, service)};
	labels[1] = (struct profile_label){text(p, "container.id"), text(p, container)};
	check(profile_add_resource(p, labels, 2, &id), &(struct diag){});
	return id;
}

/* Copies a profile and adds what an agent adds: time, resources, and lost samples. */
static struct profile *prepare(const struct arguments *a, const struct profile *in, u64 n)
{
	struct profile *p = profile_create();
	struct diag d = {};

	check(p ? profile_merge(p, in, &d) : -ENOMEM, &d);
	p->time_ns = (a->start_s + n) * 1000000000;
	p->duration_ns = 1000000000;
	p->period = 50000000;
	p->period_name = text(p, "cpu");
	p->period_unit = text(p, "nanoseconds");
	p->quality.measured = true;
	p->quality.lost = a->lost;
	for (size_t i = 0; a->resources && i < p->threads.n; i++)
		p->threads.data[i].resource = make_resource(p, i % a->resources);
	for (size_t i = 0; a->timed && i < p->n_samples; i++)
		((struct profile_sample *)(p->samples + i * profile_sample_size(p)))->time_ns =
			p->time_ns + i;
	return p;
}

static void dump(const struct arguments *a, const struct profile *p, u64 n)
{
	_cleanup_str_ struct str out = {};
	struct diag d = {};
	char path[4096];
	FILE *f;

	if (!a->dump)
		return;
	snprintf(path, sizeof(path), "%s/%04llu.otlp", a->dump, n);
	check(otlp_profiles_encode(p, NULL, &out, &d), &d);
	f = fopen(path, "w");
	if (!f || fwrite(out.data, 1, out.n, f) != out.n || fclose(f)) {
		perror(path);
		exit(1);
	}
}

static void send_request(struct exporters *e, const char *path)
{
	static u8 data[16 << 20];
	struct otlp_profiles got = {};
	struct diag d = {};
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(data, 1, sizeof(data), f) : 0;

	if (!f || fclose(f)) {
		perror(path);
		exit(1);
	}
	check(str_ends(path, ".json")
		      ? otlp_profiles_decode_json((const char *)data, n, 1 << 30, &got, &d)
		      : otlp_profiles_decode(data, n, 1 << 30, &got, &d),
	      &d);
	check(got.rejected ? -EBADMSG : 0, &got.why);
	vec_foreach (&got.profiles, p)
		exporters_send(e, take_ptr(*p), false);
	otlp_profiles_deinit(&got);
}

static void print_stats(struct exporters *e, const char *when)
{
	struct export_stats s[MAX_URLS];
	size_t n = exporters_stats(e, s, MAX_URLS);

	for (size_t i = 0; i < n; i++) {
		_cleanup_str_ struct str line = {};

		str_printf(&line, "{\"when\":\"%s\",\"url\":", when);
		text_append_json(&line, s[i].url);
		str_printf(&line,
			   ",\"sent\":%llu,\"sent_bytes\":%llu,\"retried\":%llu,\"spooled\":%llu,"
			   "\"spooled_bytes\":%llu,\"dropped\":%llu,\"dropped_samples\":%llu",
			   s[i].sent, s[i].sent_bytes, s[i].retried, s[i].spooled,
			   s[i].spooled_bytes, s[i].dropped, s[i].dropped_samples);
		for (u32 k = 0; k < EXPORT_DROP_N; k++)
			str_printf(&line, ",\"%s\":%llu", vocab_export_drop(k)->name,
				   s[i].dropped_by[k]);
		str_puts(&line, ",\"error\":");
		text_append_json(&line, s[i].last_error);
		printf("%s}\n", str_get(&line));
	}
	fflush(stdout);
}

/* Waits until all profiles are sent, or for `ms`. */
static void wait_until_sent(struct exporters *e, u64 ms)
{
	struct export_stats s[MAX_URLS];

	for (u64 waited = 0; waited < ms; waited += 10) {
		size_t n = exporters_stats(e, s, MAX_URLS), done = 0;

		for (size_t i = 0; i < n; i++)
			done += !s[i].spooled && !s[i].queued;
		if (done == n)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
}

int main(int argc, char **argv)
{
	struct arguments a = {.repeat = 1, .shutdown_ms = 5000, .start_s = 1700000000};
	struct export_options o[MAX_URLS];
	struct exporters *e = NULL;
	struct diag d = {};
	size_t n = 0;
	u64 number_of = 0;
	char *url, *rest;
	int i = 1;

	while (i < argc && parse(&a, argv[i]))
		i++;
	if (argc - i < 2)
		return 2;
	for (url = strtok_r(argv[i], ",", &rest); url && n < MAX_URLS;
	     url = strtok_r(NULL, ",", &rest)) {
		o[n] = a.o;
		o[n++].url = url;
	}
	check(exporters_create(o, n, &d, &e), &d);
	for (u64 k = 0; k < a.repeat; k++) {
		for (int f = i + 1; f < argc; f++, number_of++) {
			struct profile *in = NULL, *p;

			if (str_ends(argv[f], ".otlp") || str_ends(argv[f], ".json")) {
				send_request(e, argv[f]);
				continue;
			}
			check(profile_read_file(argv[f], NULL, &in, &d), &d);
			p = prepare(&a, in, number_of);
			dump(&a, p, number_of);
			exporters_send(e, p, false);
			profile_destroy(in);
			wait_until_sent(e, a.settle_ms);
			nanosleep(&(struct timespec){.tv_sec = (time_t)(a.gap_ms / 1000),
						     .tv_nsec = (long)(a.gap_ms % 1000) * 1000000},
				  NULL);
		}
		print_stats(e, "running");
	}
	wait_until_sent(e, a.shutdown_ms);
	print_stats(e, "end");
	exporters_destroy(e, (u32)a.shutdown_ms);
	return 0;
}
