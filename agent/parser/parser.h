/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsers of targets' files, in processes that have no rights: what a hostile file can take over
 * there can read that file and the others that a parser has open, and nothing else.
 *
 *	agent ── start, end ─→ starter   has no rights; reads nothing but these two messages
 *	  │                       │ fork
 *	  ├── files, pages ───→ parser    behind the walls of lib/sandbox: opens and starts nothing
 *	  ←── rows, rules ─────┘          in shared memory
 *
 * The starter is the agent's child, executed while the agent could still change its user; the agent
 * need not keep that right to replace a parser. The agent believes nothing of what a parser says:
 * it copies the rows and rules and checks each (parser_check_*). A parser that crashes, hangs or
 * lies is ended, and the next request starts another. doc/design/0014-privileges.md
 */
#pragma once

#include "abi/unwind.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

/* ---- the starter ---- */

struct parsers;

/*
 * Starts the starter. It becomes a user without rights if this process is root, so call it before
 * privilege_keep().
 */
int parsers_start(struct diag *reterr_diag, struct parsers **ret);
/* Ends it; its parsers end with it. NULL is fine. */
void parsers_stop(struct parsers *p);
/* The starter's main(): returns the exit status. -EINVAL: nobody has started it as such. */
int parsers_main(void);

/* ---- a parser ---- */

/* One thread at a time may call these functions, but for parser_usage(). */
struct parser;

struct parser_options {
	struct parsers *parsers; /* borrowed */
	u64 max_bytes;		 /* limit of its memory, of each process; 0: none */
	u32 timeout_ms;		 /* for an answer; 0: 10 s */
};

struct parser_file {
	u64 id;		 /* the caller's name for it, not used before */
	int fd;		 /* borrowed, like the next */
	int debug_fd;	 /* its debug file, which the parser takes only if it is; -1: none */
	u64 max_section; /* larger sections are not read; 0: no limit */
	/* The rules that the file's rows have so far, borrowed: they keep their numbers. */
	const struct unwind_rule *rules;
	u32 n_rules;
};

struct parser_page {
	u32 n_rows, n_rules;
	const u32 *rows; /* as unwind_source_rows(); borrowed until the next call, like the rules */
	const struct unwind_rule *rules; /* those that are new */
};

struct parser_usage {
	u64 cpu_ns; /* of all its processes */
	u64 bytes;  /* that the process has for itself now */
};

/* Starts no process yet. -ENOMEM, or the error of a system call. */
int parser_create(const struct parser_options *o, struct parser **ret);
void parser_destroy(struct parser *p);
/* For processes from now on. */
void parser_set_limit(struct parser *p, u64 max_bytes);
/* Changes with each process: what parser_open() opened before is gone. 0: there is none now. */
u64 parser_generation(const struct parser *p);
/*
 * Opens a file, in a new process if there is none. What is wrong with the file is an error of its
 * pages. -ESRCH: no process can be started.
 */
int parser_open(struct parser *p, const struct parser_file *f);
/*
 * Builds a page of an open file that has n_rules rules so far.
 *	-ESTALE		the process had ended before: open the file again
 *	-EIO		it ended over this page
 *	-ETIMEDOUT	it did not answer in time
 *	-EPROTO		its answer was wrong
 * After any of these the process is gone. Other errors are those of the file and of memory.
 */
int parser_build(struct parser *p, u64 id, u64 page, u32 n_rules, struct parser_page *ret);
/* A recording of a JVM's Flight Recorder in a file. */
struct parser_dump {
	int fd;	       /* borrowed */
	u64 max_bytes; /* of the file */
	u64 after_ns;  /* as in struct profile_flight, like the next */
	bool by_tlab;
	const u32 *tids; /* borrowed; at most PARSER_MAX_TIDS */
	size_t n_tids;
};
#define PARSER_MAX_TIDS 16384
#define PARSER_MAX_PROFILE (16ULL << 20)
/*
 * Reads what is allocated in a dump, in a new process if there is none. Appends a pprof file, which
 * may be any bytes if the dump has taken over the parser. Errors as those of parser_build(), and
 * -EBADMSG: the file is no recording; -E2BIG: it or the profile is too large.
 */
int parser_read_dump(struct parser *p, const struct parser_dump *d, struct str *ret_pprof,
		     u64 *ret_last_ns);
/* Closes files, whether or not they are open. */
void parser_close(struct parser *p, const u64 *ids, size_t n);
/* Whether there is a process now. Any thread. */
bool parser_runs(const struct parser *p);
/* Ends the process until it is needed again: what parser_open() opened is gone. */
void parser_rest(struct parser *p);
/* Any thread. */
struct parser_usage parser_usage(const struct parser *p);

/* ---- checks ---- */

/* Whether these can be the rows of a page, with `n_rules` rules in all. */
bool parser_check_rows(const u32 *rows, u32 n, u32 n_rules);
/* Whether these can be rules; `first` is the number of the first. */
bool parser_check_rules(const struct unwind_rule *rules, u32 n, u32 first);
