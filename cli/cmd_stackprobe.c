/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit stackprobe: gala-gopher's REST API of flame graphs, and what it makes of them
 * (doc/stackprobe.md). Requests are answered by the threads of server/net, a thread of its own
 * applies the file of initial requests, and the main thread records.
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "server/net/net.h"

#define DEFAULT_LISTEN "127.0.0.1:9999"
#define DEFAULT_INIT "/etc/gala-gopher/probes.init"
#define PROBE "flamegraph"
#define FORM "json="
#define MAX_BODY (1u << 20)
#define MAX_INIT_BYTES (1u << 20)
#define MAX_INIT_LINES 30
/* A PUT answers when its recording has begun, which takes seconds on a busy machine. */
#define TIMEOUT_S 120
#define DONE "New config takes effect"

struct arguments {
	const char *listen, *init, *cert, *key, *ca, *tokens;
	const char *style, *cache_dir, *host_root;
	double period_s;
	u64 memory_limit_mb;
	bool clear_text, verbose;
};

#define A struct arguments
static const struct option listen_options[] = {
	OPTION_STRING("listen", 0, "HOST:PORT", A, listen,
		      "address of the API (default " DEFAULT_LISTEN ")"),
	OPTION_STRING("tls-cert", 0, "FILE", A, cert, "certificate chain of the API (PEM)"),
	OPTION_STRING("tls-key", 0, "FILE", A, key, "private key of the certificate (PEM)"),
	OPTION_STRING("tls-ca", 0, "FILE", A, ca, "require client certificates of this CA (PEM)"),
	OPTION_STRING("token-file", 0, "FILE", A, tokens,
		      "require tokens, listed here in lines \"read|write|admin TOKEN\""),
	OPTION_FLAG("allow-clear-text", 0, A, clear_text,
		    "take tokens without TLS from other machines, as behind a proxy"),
	{},
};
static const struct option probe_options[] = {
	OPTION_STRING("init", 0, "FILE", A, init,
		      "requests to begin with, a line \"flamegraph JSON\" each; none: no file\n"
		      "(default " DEFAULT_INIT ", if it is there)"),
	OPTION_TIME("period", 0, A, period_s, 1, 600,
		    "write and send new samples so often (default 20)"),
	OPTION_STRING("folded-style", 0, "STYLE", A, style,
		      "of folded files: gala (default), or canonical, as all tools read it"),
	OPTION_U64("memory-limit", 0, "MB", A, memory_limit_mb, 64, 4096,
		   "memory limit of the whole program (default 384)"),
	OPTION_STRING("cache-dir", 0, "DIR", A, cache_dir,
		      "keep unwind tables and names of functions in this folder, an absolute path\n"
		      "(default: /var/cache/culprit), or none"),
	OPTION_STRING("host-root", 0, "DIR", A, host_root,
		      "look for the state files of container engines below DIR instead of /"),
	OPTION_FLAG("verbose", 'v', A, verbose, "log debug messages to standard error"),
	{},
};
#undef A

/* ---- the API ---- */

static void answer(struct net_response *ret, int status, const char *text)
{
	struct json_writer w = {.out = &ret->body};

	ret->status = status;
	str_printf(&ret->body,
		   "{ \"result\": \"%s\", \"message\":", status == 200 ? "success" : "failed");
	json_put_exact(&w, NULL, text);
	str_puts(&ret->body, " }\n");
}

static bool is_json(const struct net_request *r)
{
	static const char json[] = "application/json";

	return r->content_type && !strncasecmp(r->content_type, json, strlen(json));
}

/* The body is "json=" and JSON, whatever its type is, or JSON by its type. */
static void put(struct stackprobe *probe, const struct net_request *r, struct net_response *ret)
{
	const char *body = (const char *)r->body;
	size_t n = r->n_body, form = strlen(FORM);
	struct diag d = {};
	int e;

	if (n >= form && !memcmp(body, FORM, form)) {
		body += form;
		n -= form;
	} else if (!is_json(r)) {
		answer(ret, 400, "put data must start with " FORM);
		return;
	}
	e = stackprobe_put(probe, body, n, &d);
	if (e == -ENOMEM)
		ret->status = 500;
	else
		answer(ret, e < 0 ? 400 : 200, e < 0 ? d.text : DONE);
}

static void answer_request(void *userdata, const struct net_request *r, struct net_response *ret)
{
	bool reads = !strcmp(r->method, "GET");
	struct stackprobe *probe = userdata;
	struct diag d = {};

	ret->content_type = "application/json";
	if (strcasecmp(r->path, "/" PROBE) != 0) {
		answer(ret, 404, "url not found");
	} else if (!reads && strcmp(r->method, "PUT") != 0 && strcmp(r->method, "DELETE") != 0) {
		answer(ret, 405, "method not allowed");
	} else if (!(r->role & (reads ? NET_ROLE_READ : NET_ROLE_WRITE))) {
		answer(ret, 403, "the token does not allow this");
	} else if (reads) {
		ret->status = 200;
		stackprobe_get(probe, &ret->body);
	} else if (!strcmp(r->method, "PUT")) {
		put(probe, r, ret);
	} else if (stackprobe_delete(probe, &d) < 0) {
		answer(ret, 500, d.text);
	} else {
		answer(ret, 200, DONE);
	}
}

static int listen_at(const struct arguments *a, struct stackprobe *probe, struct net_listener **ret)
{
	const struct net_tls tls = {a->cert, a->key, a->ca};
	struct net_options o = {
		.address = a->listen ? a->listen : DEFAULT_LISTEN,
		.tls = a->cert || a->key || a->ca ? &tls : NULL,
		.tokens = a->tokens,
		.clear_text = a->clear_text,
		.max_body = MAX_BODY,
		.timeout_s = TIMEOUT_S,
		.handler = answer_request,
		.userdata = probe,
	};
	struct diag d = {};
	int r = net_listen(&o, &d, ret);

	return r < 0 ? cli_error(1, "--listen %s: %s", o.address, d.text[0] ? d.text : strerror(-r))
		     : 0;
}

/* ---- the file of initial requests ---- */

struct initial {
	struct stackprobe *probe;
	const char *path;
	struct str text;
};

static void apply_line(const struct initial *i, char *line, u32 number)
{
	char *json = line + strcspn(line, " \t");
	struct diag d = {};

	if (*json)
		*json++ = '\0';
	if (strcasecmp(line, PROBE) != 0) {
		log_warn("%s:%u: culprit has no probe '%s': left out", i->path, number, line);
		return;
	}
	if (stackprobe_put(i->probe, json, strlen(json), &d) < 0)
		log_err("%s:%u: %s", i->path, number, d.text);
}

static void *apply_initial(void *arg)
{
	const struct initial *i = arg;
	u32 number = 0, applied = 0;
	char *text = i->text.data;

	for (char *line = text ? strsep(&text, "\n") : NULL; line; line = strsep(&text, "\n")) {
		number++;
		line += strspn(line, " \t\r");
		if (!*line || *line == '#')
			continue;
		if (applied++ == MAX_INIT_LINES) {
			log_warn("%s:%u: more than %d lines: the rest is left out", i->path, number,
				 MAX_INIT_LINES);
			break;
		}
		apply_line(i, line, number);
	}
	return NULL;
}

/* Reads the file. 0, or an exit status. */
static int read_initial(const struct arguments *a, struct initial *ret)
{
	int r;

	ret->path = a->init ? a->init : DEFAULT_INIT;
	if (!strcmp(ret->path, "none"))
		return 0;
	r = io_read(ret->path, MAX_INIT_BYTES, &ret->text);
	if (r == -ENOENT && !a->init)
		return 0;
	return r < 0 ? cli_error(1, "--init %s: %s", ret->path, strerror(-r)) : 0;
}

/* ---- the command ---- */

static int serve(const struct arguments *a, struct stackprobe *probe)
{
	struct initial initial = {.probe = probe};
	struct net_listener *listener = NULL;
	pthread_t thread;
	int r = read_initial(a, &initial);

	if (r == 0)
		r = listen_at(a, probe, &listener);
	if (r == 0 && thread_start(&thread, "init", apply_initial, &initial) < 0)
		r = cli_error(1, "cannot start a thread");
	if (r == 0) {
		printf("api %u\nready\n", net_port(listener));
		fflush(stdout);
		stackprobe_run(probe, signals_ended);
		pthread_join(thread, NULL);
	}
	if (listener)
		net_close(listener, 2000);
	str_deinit(&initial.text);
	return r;
}

static int start(const struct arguments *a)
{
	struct stackprobe_options o = {
		.memory_limit_mb = a->memory_limit_mb,
		.cache_dir = !a->cache_dir		     ? sampling_cache_dir()
			     : !strcmp(a->cache_dir, "none") ? NULL
							     : a->cache_dir,
		.debuginfod_urls = getenv("DEBUGINFOD_URLS"),
		.host_root = a->host_root,
		.period_s = a->period_s,
		.canonical = a->style && !strcmp(a->style, "canonical"),
	};
	struct stackprobe *probe = NULL;
	struct diag d = {};
	int r = parsers_start(&d, &o.parsers);

	if (r == 0)
		r = privilege_keep(agent_capabilities(false), &d);
	if (r == 0)
		r = stackprobe_create(&o, &d, &probe);
	if (r == 0) {
		r = serve(a, probe);
		stackprobe_destroy(probe);
	} else {
		r = cli_fail(r, &d);
	}
	parsers_stop(o.parsers);
	return r;
}

int cmd_stackprobe(int argc, char **argv)
{
	struct arguments a = {};
	const struct option_group groups[] = {
		{"API", listen_options, &a}, {"Flame graphs", probe_options, &a}, {}};
	const struct option_usage usage = {
		.command = "stackprobe",
		.operands = "",
		.summary = "Serves gala-gopher's REST API of flame graphs: PUT, GET and DELETE "
			   "/flamegraph say which\nprocesses to profile and how. Folded stacks and "
			   "pictures are written to files, and sent to\nPyroscope, until SIGTERM "
			   "or SIGINT.",
		.groups = groups,
		.footer = "Prints the port and `ready` when it takes requests. Addresses other "
			  "than loopback require\n--token-file or --tls-ca.",
		.configurable = true,
	};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2,
				 "stackprobe: unexpected argument '%s'; see culprit stackprobe "
				 "--help",
				 argv[first]);
	if (a.style && strcmp(a.style, "gala") != 0 && strcmp(a.style, "canonical") != 0)
		return cli_error(2, "stackprobe: --folded-style: gala or canonical, not '%s'",
				 a.style);
	if (a.verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	signals_catch_end();
	return start(&a);
}
