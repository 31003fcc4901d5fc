/* SPDX-License-Identifier: Apache-2.0 */
/* The member `params`: gala-gopher's parameters with their defaults, ranges and messages. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"

enum kind {
	INT,	/* a number; `id` says which, or NONE */
	SERVER, /* a text: pyroscope_server */
	OUTPUT, /* paths of directories */
	FLAME,
	TEXT, /* of other probes: only the type of the value is looked at */
	LIST,
};

#define NONE STACKPROBE_N_PARAMS

/* In gala-gopher's order: the first wrong one is told. */
static const struct param {
	const char *key;
	enum kind kind;
	enum stackprobe_param id;
	int initial, min, max;
	bool zero; /* 0 stands for the default */
} params[] = {
	{"sample_period", INT, NONE, 0, 100, 10000, false},
	{"report_period", INT, STACKPROBE_REPORT_PERIOD, 60, 5, 600, false},
	{"custom_param", LIST, NONE, 0, 0, 0, false},
	{"latency_thr", INT, STACKPROBE_LATENCY_THR, 0, 10, 100000, false},
	{"offline_thr", INT, STACKPROBE_OFFLINE_THR, 0, 10, 100000, false},
	{"drops_thr", INT, STACKPROBE_DROPS_THR, 0, 10, 100000, false},
	{"res_lower_thr", INT, STACKPROBE_RES_LOWER_THR, 0, 0, 100, false},
	{"res_upper_thr", INT, STACKPROBE_RES_UPPER_THR, 0, 0, 100, false},
	{"report_event", INT, STACKPROBE_REPORT_EVENT, 0, 0, 1, false},
	{"ringbuf_map_size", INT, NONE, 0, 1, 32, false},
	{"report_cport", INT, NONE, 0, 0, 1, false},
	{"l7_protocol", LIST, NONE, 0, 0, 0, false},
	{"support_ssl", INT, NONE, 0, 0, 1, false},
	{"pyroscope_server", SERVER, NONE, 0, 0, 0, false},
	{"svg_period", INT, STACKPROBE_SVG_PERIOD, 180, 30, 600, true},
	{"perf_sample_period", INT, STACKPROBE_SAMPLE_PERIOD, 10, 10, 1000, true},
	{"multi_instance", INT, STACKPROBE_MULTI_INSTANCE, 0, 0, 1, false},
	{"native_stack", INT, STACKPROBE_NATIVE_STACK, 0, 0, 1, false},
	{"output_dir", OUTPUT, NONE, 0, 0, 0, false},
	{"flame_dir", FLAME, NONE, 0, 0, 0, false},
	{"cluster_ip_backend", INT, NONE, 0, 0, 2, false},
	{"dev_name", TEXT, NONE, 0, 0, 0, false},
	{"continuous_sampling", INT, NONE, 0, 0, 1, false},
	{"elf_path", TEXT, NONE, 0, 0, 0, false},
	{"kafka_port", INT, NONE, 0, 1, 65535, false},
	{"cadvisor_port", INT, NONE, 0, 1, 65535, false},
	{"profiling_channel", TEXT, NONE, 0, 0, 0, false},
	{"min_exec_dur", INT, NONE, 0, 0, 1000000, false},
	{"min_aggr_dur", INT, NONE, 0, 10, 10000, false},
};

void stackprobe_params_init(struct stackprobe_params *p)
{
	*p = (struct stackprobe_params){
		.pyroscope_server = "localhost:4040",
		.flame_dir = STACKPROBE_DEFAULT_FLAME_DIR,
	};
	for (size_t i = 0; i < ARRAY_SIZE(params); i++)
		if (params[i].kind == INT && params[i].id != NONE)
			p->value[params[i].id] = params[i].initial;
}

static bool is_of_kind(const json_t *v, enum kind k)
{
	if (k == INT)
		return json_is_number(v) || json_is_boolean(v);
	return k == LIST ? json_is_array(v) : json_is_string(v);
}

static s64 number_of(const json_t *v)
{
	double d;

	if (json_is_boolean(v))
		return json_is_true(v);
	if (json_is_integer(v))
		return json_integer_value(v);
	d = json_real_value(v);
	return d < -1e15 ? (s64)-1e15 : d > 1e15 ? (s64)1e15 : (s64)d;
}

static int read_number(const struct param *k, const json_t *v, struct stackprobe_params *p,
		       char *message)
{
	s64 n = number_of(v);

	if (n == 0 && k->zero)
		n = k->initial;
	if (n < k->min || n > k->max) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES,
			 "params.%s invalid value %lld, must be in [%d, %d]", k->key, n, k->min,
			 k->max);
		return -EINVAL;
	}
	if (k->id != NONE)
		p->value[k->id] = n;
	return 0;
}

/* The scheme chooses Pyroscope's API. Whoever may send requests must not make us write to files. */
static bool is_server(const char *text)
{
	const char *scheme = strstr(text, "://");

	return !scheme || str_starts(text, "pyroscope://") ||
	       str_starts(text, "pyroscope+ingest://");
}

static int read_server(const struct param *k, const char *text, struct stackprobe_params *p,
		       char *message)
{
	if (strlen(text) >= sizeof(p->pyroscope_server)) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES,
			 "params.%s value is too long, len must be less than %zu", k->key,
			 sizeof(p->pyroscope_server));
		return -EINVAL;
	}
	if (!is_server(text)) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES,
			 "params.%s must be HOST:PORT, pyroscope://HOST:PORT or "
			 "pyroscope+ingest://HOST:PORT",
			 k->key);
		return -EINVAL;
	}
	snprintf(p->pyroscope_server, sizeof(p->pyroscope_server), "%s", text);
	return 0;
}

/* What gala-gopher refuses in a path, because it gives paths to a shell. */
static bool is_unsafe(const char *path)
{
	return strpbrk(path, "|;&$><()?*'`[]\\!\n") || strstr(path, "./") || strstr(path, "/.");
}

/*
 * Whoever may send requests must not make root write where another user has put a symbolic link: a
 * directory, and all above it, belong to root or to us, and nobody else may write to them (above
 * it: or remove what is not his).
 */
static bool is_safe(char *real)
{
	for (char *end = real + 1;; end++) {
		struct stat st;
		char c = *end;
		bool is_last = !c, good;

		if (c && c != '/')
			continue;
		*end = '\0';
		good = stat(real, &st) == 0 && S_ISDIR(st.st_mode) &&
		       (!st.st_uid || st.st_uid == geteuid()) &&
		       (!(st.st_mode & 022) || (!is_last && st.st_mode & S_ISVTX));
		*end = c;
		if (!good || is_last)
			return good;
	}
}

static int read_dir(const struct param *k, const char *text, char *ret, char *message)
{
	_cleanup_free_ char *real = NULL;

	if (is_unsafe(text)) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES, "params.%s contains unsafe characters",
			 k->key);
		return -EINVAL;
	}
	/* These two are there when gala-gopher is installed. */
	if (!strcmp(text, STACKPROBE_DEFAULT_FLAME_DIR) ||
	    !strcmp(text, STACKPROBE_DEFAULT_OUTPUT_DIR))
		(void)stackprobe_make_dirs(text);
	/* The message is gala-gopher's "Bad request": the log says more. */
	real = realpath(text, NULL);
	if (!real) {
		log_warn("params.%s: %s: %s", k->key, text, strerror(errno));
		return -EINVAL;
	}
	if (!is_safe(real)) {
		log_warn("params.%s: %s: only root may be able to write to it", k->key, real);
		return -EINVAL;
	}
	if (strlen(real) >= STACKPROBE_PATH_BYTES) {
		log_warn("params.%s: %s: the path is too long", k->key, real);
		return -EINVAL;
	}
	memcpy(ret, real, strlen(real) + 1);
	return 0;
}

static int read_param(const struct param *k, const json_t *v, struct stackprobe_params *p,
		      char *message)
{
	switch (k->kind) {
	case INT:
		return read_number(k, v, p, message);
	case SERVER:
		return read_server(k, json_string_value(v), p, message);
	case OUTPUT:
		return read_dir(k, json_string_value(v), p->output_dir, message);
	case FLAME:
		return read_dir(k, json_string_value(v), p->flame_dir, message);
	default:
		return 0;
	}
}

int stackprobe_params_read(struct json_t *json, struct stackprobe_params *p, char *message)
{
	int r = json_is_object(json) ? 0 : -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(params) && r == 0; i++) {
		const json_t *v = json_object_get(json, params[i].key);

		if (!v)
			continue;
		if (is_of_kind(v, params[i].kind)) {
			r = read_param(&params[i], v, p, message);
			continue;
		}
		snprintf(message, STACKPROBE_MESSAGE_BYTES, "params.%s invalid data type",
			 params[i].key);
		r = -EINVAL;
	}
	return r;
}

void stackprobe_params_print(const struct stackprobe_params *p, struct json_writer *w)
{
	const s64 *v = p->value;

	/* Sorted, as all of the answer; thresholds only if they are set. */
	json_open_object(w, "params");
	if (v[STACKPROBE_DROPS_THR])
		json_put_s64(w, "drops_thr", v[STACKPROBE_DROPS_THR]);
	json_put_exact(w, "flame_dir", p->flame_dir);
	if (v[STACKPROBE_LATENCY_THR])
		json_put_s64(w, "latency_thr", v[STACKPROBE_LATENCY_THR]);
	json_put_s64(w, "multi_instance", v[STACKPROBE_MULTI_INSTANCE]);
	json_put_s64(w, "native_stack", v[STACKPROBE_NATIVE_STACK]);
	if (v[STACKPROBE_OFFLINE_THR])
		json_put_s64(w, "offline_thr", v[STACKPROBE_OFFLINE_THR]);
	json_put_exact(w, "output_dir", p->output_dir);
	json_put_s64(w, "perf_sample_period", v[STACKPROBE_SAMPLE_PERIOD]);
	json_put_exact(w, "pyroscope_server", p->pyroscope_server);
	json_put_s64(w, "report_event", v[STACKPROBE_REPORT_EVENT]);
	json_put_s64(w, "report_period", v[STACKPROBE_REPORT_PERIOD]);
	json_put_s64(w, "res_lower_thr", v[STACKPROBE_RES_LOWER_THR]);
	json_put_s64(w, "res_upper_thr", v[STACKPROBE_RES_UPPER_THR]);
	json_put_s64(w, "svg_period", v[STACKPROBE_SVG_PERIOD]);
	json_close(w);
}
