/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_parsers(): a starter of parsers that is forked instead of executed, and keeps this
 * process's rights. struct fake_parser: this process is starter and parser, and says what it likes.
 */
#pragma once

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/parser/internal.h"
#include "agent/parser/parser.h"
#include "base/cleanup.h"
#include "base/message.h"

/* `serve` is parsers_serve(), or what acts in its place. */
static inline struct parsers *start_parsers(void (*serve)(int control), pid_t *ret_pid)
{
	struct parsers *p = NULL;
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		serve(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	if (pid < 0 || parsers_adopt(ends[0], pid, &p) < 0)
		abort();
	*ret_pid = pid;
	return p;
}

struct fake_parser {
	struct parsers *parsers;
	struct parser *parser;
	int control; /* the starter's end */
	int socket;  /* the parser's end; -1: there is none */
	struct parser_rows *shared;
};

static inline void fake_init(struct fake_parser *f, u32 timeout_ms)
{
	struct parser_options o = {.timeout_ms = timeout_ms};
	int ends[2];

	*f = (struct fake_parser){.socket = -1};
	/* No child of this process has the number 1. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 ||
	    parsers_adopt(ends[0], 1, &f->parsers) < 0)
		abort();
	o.parsers = f->parsers;
	f->control = ends[1];
	if (parser_create(&o, &f->parser) < 0)
		abort();
}

static inline void fake_forget(struct fake_parser *f)
{
	cleanup_close(&f->socket);
	f->socket = -1;
	if (f->shared)
		(void)munmap(f->shared, sizeof(*f->shared));
	f->shared = NULL;
}

/* The answer to the PARSER_END that is to come. */
static inline void fake_expect_end(struct fake_parser *f)
{
	const struct parser_ended ended = {};

	if (message_send(f->control, PARSER_ANSWER, &ended, sizeof(ended), -1) < 0)
		abort();
}

/* The parser opens a file that has rules so far. */
static inline void fake_open(struct fake_parser *f, const struct unwind_rule *rules, u32 n_rules)
{
	const struct parser_file file = {
		.id = 1, .fd = STDIN_FILENO, .debug_fd = -1, .rules = rules, .n_rules = n_rules};
	const struct parser_started started = {1};
	_cleanup_str_ struct str data = {};
	int memory;
	u32 kind;

	if (message_send(f->control, PARSER_ANSWER, &started, sizeof(started), -1) < 0 ||
	    parser_open(f->parser, &file) < 0)
		abort();
	/* What is left of earlier ones first. */
	do {
		if (message_receive(f->control, 64, &kind, &data, &f->socket) < 0)
			abort();
	} while (kind != PARSER_START);
	if (message_receive(f->socket, 64, &kind, &data, &memory) < 0 || kind != PARSER_MEMORY)
		abort();
	f->shared = mmap(NULL, sizeof(*f->shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	close(memory);
	if (f->shared == MAP_FAILED ||
	    message_receive(f->socket, PARSER_MAX_MESSAGE, &kind, &data, NULL) < 0)
		abort();
}

static inline void fake_deinit(struct fake_parser *f)
{
	fake_expect_end(f);
	parser_destroy(f->parser);
	fake_forget(f);
	close(f->control);
	parsers_stop(f->parsers);
}
