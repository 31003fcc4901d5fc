/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's side of a parser. One thread asks; `pid` and `cpu_ns` are atomic, for parser_usage().
 *
 * The parser writes to the shared memory whenever it likes, so everything is copied first and then
 * checked. It cannot make that memory smaller (F_SEAL_SHRINK), which would end the agent.
 */
#include "agent/parser/parser.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/parser/internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"

#define TIMEOUT_MS 10000

struct parser {
	struct parser_options o;
	int memory;			  /* owned */
	const struct parser_rows *shared; /* mapped */
	int socket;			  /* owned; -1: there is no process */
	pid_t pid;
	u64 generation, generations;
	u64 cpu_ns; /* of processes that have ended */
	u32 rows[UNWIND_PAGE_BYTES];
	struct unwind_rule *rules; /* owned, grows */
	u32 max_rules;
};

static int make_memory(struct parser *p)
{
	void *at;

	p->memory = memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (p->memory < 0 || ftruncate(p->memory, sizeof(*p->shared)) < 0 ||
	    fcntl(p->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	at = mmap(NULL, sizeof(*p->shared), PROT_READ, MAP_SHARED, p->memory, 0);
	if (at == MAP_FAILED)
		return -errno;
	p->shared = at;
	return 0;
}

int parser_create(const struct parser_options *o, struct parser **ret)
{
	struct parser *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->o = *o;
	p->o.timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
	p->socket = -1;
	r = make_memory(p);
	if (r < 0) {
		parser_destroy(p);
		return r;
	}
	*ret = p;
	return 0;
}

void parser_set_limit(struct parser *p, u64 max_bytes)
{
	p->o.max_bytes = max_bytes;
}

u64 parser_generation(const struct parser *p)
{
	return p->generation;
}

/* ---- the process ---- */

/* Returns the status as of waitpid(), or -1. */
static int end(struct parser *p)
{
	pid_t pid = p->pid;
	u64 cpu_ns = 0;
	int status;

	if (p->socket < 0)
		return -1;
	close(p->socket);
	p->socket = -1;
	p->generation = 0;
	__atomic_store_n(&p->pid, 0, __ATOMIC_RELAXED);
	status = parsers_end_one(p->o.parsers, pid, &cpu_ns);
	__atomic_fetch_add(&p->cpu_ns, cpu_ns, __ATOMIC_RELAXED);
	return status;
}

void parser_destroy(struct parser *p)
{
	if (!p)
		return;
	(void)end(p);
	if (p->shared)
		(void)munmap((void *)p->shared, sizeof(*p->shared));
	cleanup_close(&p->memory);
	free(p->rules);
	free(p);
}

void parser_rest(struct parser *p)
{
	(void)end(p);
}

static int begin(struct parser *p)
{
	const struct timeval patience = {.tv_sec = p->o.timeout_ms / 1000,
					 .tv_usec = (suseconds_t)(p->o.timeout_ms % 1000) * 1000};
	_cleanup_close_ int ours = -1, theirs = -1;
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -ESRCH;
	ours = ends[0];
	theirs = ends[1];
	setsockopt(ours, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	pid = parsers_begin_one(p->o.parsers, theirs, p->o.max_bytes);
	if (pid <= 0)
		return -ESRCH;
	p->socket = take_fd(&ours);
	p->generation = ++p->generations;
	__atomic_store_n(&p->pid, pid, __ATOMIC_RELAXED);
	return message_send(p->socket, PARSER_MEMORY, NULL, 0, p->memory);
}

/* Ends a process that does not take messages. */
static int gone(struct parser *p)
{
	int status = end(p);

	if (WIFSIGNALED(status))
		log_info("a parser of files was ended by signal %d (%s); starting another",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	return -ESTALE;
}

/* ---- files ---- */

static int send_file(struct parser *p, const struct parser_file *f)
{
	const struct parser_opening o = {.id = f->id, .max_section = f->max_section};
	_cleanup_str_ struct str all = {};
	int r = 0;

	str_append(&all, &o, sizeof(o));
	if (f->n_rules)
		str_append(&all, f->rules, f->n_rules * sizeof(*f->rules));
	if (all.failed)
		return -ENOMEM;
	if (f->debug_fd >= 0)
		r = message_send(p->socket, PARSER_DEBUG, NULL, 0, f->debug_fd);
	return r < 0 ? r : message_send(p->socket, PARSER_FILE, all.data, all.n, f->fd);
}

int parser_open(struct parser *p, const struct parser_file *f)
{
	/* The first failure may be that of a process that had ended before. */
	for (u32 i = 0; i < 2; i++) {
		int r = p->socket < 0 ? begin(p) : 0;

		if (r == 0)
			r = send_file(p, f);
		if (r == 0 || r == -ENOMEM || r == -ESRCH)
			return r;
		(void)gone(p);
	}
	return -ESRCH;
}

void parser_close(struct parser *p, const u64 *ids, size_t n)
{
	if (p->socket >= 0 && n &&
	    message_send(p->socket, PARSER_CLOSE, ids, n * sizeof(*ids), -1) < 0)
		(void)gone(p);
}

/* ---- pages ---- */

/* Of at least `least` and at most `most` bytes. */
static int receive_bytes(struct parser *p, size_t least, size_t most, struct str *ret)
{
	struct pollfd ready = {.fd = p->socket, .events = POLLIN};
	u32 kind;
	int r;

	do
		r = poll(&ready, 1, (int)p->o.timeout_ms);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return -ETIMEDOUT;
	r = message_receive(p->socket, most, &kind, ret, NULL);
	if (r < 0)
		return r == -EPIPE ? -EIO : r == -EAGAIN ? -ETIMEDOUT : -EPROTO;
	return kind == PARSER_ANSWER && ret->n >= least ? 0 : -EPROTO;
}

static int receive(struct parser *p, struct parser_answer *ret)
{
	_cleanup_str_ struct str data = {};
	int r = receive_bytes(p, sizeof(*ret), sizeof(*ret), &data);

	if (r == 0)
		memcpy(ret, data.data, sizeof(*ret));
	return r;
}

static int grow_rules(struct parser *p, u32 n)
{
	struct unwind_rule *rules;

	if (n <= p->max_rules)
		return 0;
	rules = reallocarray(p->rules, n, sizeof(*rules));
	if (!rules)
		return -ENOMEM;
	p->rules = rules;
	p->max_rules = n;
	return 0;
}

/* Copies what the parser has written, then checks the copy. */
static int take_rows(struct parser *p, const struct parser_answer *a, u32 n_known,
		     struct parser_page *ret)
{
	if (a->n_rows > UNWIND_PAGE_BYTES || a->n_rules > UNWIND_MAX_RULES)
		return -EPROTO;
	if (grow_rules(p, a->n_rules) < 0)
		return -ENOMEM;
	memcpy(p->rows, p->shared->rows, a->n_rows * sizeof(*p->rows));
	if (a->n_rules)
		memcpy(p->rules, p->shared->rules, a->n_rules * sizeof(*p->rules));
	if (!parser_check_rules(p->rules, a->n_rules, n_known) ||
	    !parser_check_rows(p->rows, a->n_rows, n_known + a->n_rules))
		return -EPROTO;
	*ret = (struct parser_page){
		.n_rows = a->n_rows, .n_rules = a->n_rules, .rows = p->rows, .rules = p->rules};
	return 0;
}

/* An error of the file, not one that means something else to the caller. */
static int error_of(s32 error)
{
	switch (error) {
	case -ENOMEM:
	case -ENOENT:
	case -E2BIG:
	case -EBADMSG:
		return error;
	default:
		return -EINVAL;
	}
}

int parser_build(struct parser *p, u64 id, u64 page, u32 n_rules, struct parser_page *ret)
{
	const struct parser_question q = {.id = id, .page = page, .n_rules = n_rules};
	struct parser_answer a;
	int r;

	if (p->socket < 0)
		return -ESTALE;
	if (message_send(p->socket, PARSER_PAGE, &q, sizeof(q), -1) < 0)
		return gone(p);
	r = receive(p, &a);
	if (r == 0 && a.error)
		return error_of(a.error);
	if (r == 0)
		r = take_rows(p, &a, n_rules, ret);
	if (r < 0 && r != -ENOMEM)
		(void)end(p);
	return r;
}

/* ---- dumps ---- */

static int ask_about_dump(struct parser *p, const struct parser_dump *d)
{
	const struct parser_dump_question q = {
		.max_bytes = d->max_bytes, .after_ns = d->after_ns, .by_tlab = d->by_tlab};
	_cleanup_str_ struct str all = {};

	str_append(&all, &q, sizeof(q));
	if (d->n_tids)
		str_append(&all, d->tids,
			   MIN(d->n_tids, (size_t)PARSER_MAX_TIDS) * sizeof(*d->tids));
	if (all.failed)
		return -ENOMEM;
	/* The first failure may be that of a process that had ended before. */
	for (u32 i = 0; i < 2; i++) {
		int r = p->socket < 0 ? begin(p) : 0;

		if (r == 0)
			r = message_send(p->socket, PARSER_DUMP, all.data, all.n, d->fd);
		if (r == 0 || r == -ENOMEM || r == -ESRCH)
			return r;
		(void)gone(p);
	}
	return -ESRCH;
}

int parser_read_dump(struct parser *p, const struct parser_dump *d, struct str *ret_pprof,
		     u64 *ret_last_ns)
{
	_cleanup_str_ struct str data = {};
	struct parser_dump_answer a;
	int r = ask_about_dump(p, d);

	if (r == 0)
		r = receive_bytes(p, sizeof(a), sizeof(a) + PARSER_MAX_PROFILE, &data);
	if (r < 0) {
		(void)end(p);
		return r;
	}
	memcpy(&a, data.data, sizeof(a));
	if (a.error)
		return error_of(a.error);
	r = str_append(ret_pprof, data.data + sizeof(a), data.n - sizeof(a));
	if (r == 0)
		*ret_last_ns = a.last_ns;
	return r;
}

/* ---- usage ---- */

static u64 own_bytes(pid_t pid)
{
	unsigned long long resident = 0, shared = 0;
	_cleanup_fclose_ FILE *f = NULL;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%*u %llu %llu", &resident, &shared) != 2 || shared > resident)
		return 0;
	return (resident - shared) * (u64)sysconf(_SC_PAGESIZE);
}

bool parser_runs(const struct parser *p)
{
	return __atomic_load_n(&p->pid, __ATOMIC_RELAXED) != 0;
}

struct parser_usage parser_usage(const struct parser *p)
{
	struct parser_usage u = {.cpu_ns = __atomic_load_n(&p->cpu_ns, __ATOMIC_RELAXED)};
	pid_t pid = __atomic_load_n(&p->pid, __ATOMIC_RELAXED);
	struct timespec t;
	clockid_t clock;

	if (!pid)
		return u;
	if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0)
		u.cpu_ns += (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
	u.bytes = own_bytes(pid);
	return u;
}
