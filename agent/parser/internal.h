/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of agent, starter and parser (base/message.h). */
#pragma once

#include <sys/types.h>

#include "abi/unwind.h"
#include "agent/parser/parser.h"
#include "base/types.h"

enum parser_message {
	/* To the starter, which answers. */
	PARSER_START =
		1,  /* struct parser_start; passes the socket. Answer: struct parser_started */
	PARSER_END, /* s32: a pid. Answer: struct parser_ended */
	/* To a parser, without an answer but for PARSER_PAGE and PARSER_DUMP. */
	PARSER_MEMORY, /* passes the memory for struct parser_rows */
	PARSER_DEBUG,  /* passes the debug file of the next PARSER_FILE */
	PARSER_FILE,   /* struct parser_opening, rules; passes the file */
	PARSER_PAGE,   /* struct parser_question. Answer: struct parser_answer */
	PARSER_CLOSE,  /* u64 ids[] */
	/* struct parser_dump_question, u32 tids[]; passes the dump. Answer: struct
	 * parser_dump_answer, bytes */
	PARSER_DUMP,
	PARSER_ANSWER,
};

struct parser_start {
	u64 max_bytes; /* 0: no limit */
	u32 verbose;
	u32 pad;
};

struct parser_started {
	s32 pid; /* or a negative errno */
};

struct parser_ended {
	s32 status; /* of waitpid(); -1: there is no such parser */
	u32 pad;
	u64 cpu_ns;
};

struct parser_opening {
	u64 id;
	u64 max_section;
};

struct parser_question {
	u64 id;
	u64 page;
	u32 n_rules; /* that the agent has */
	u32 pad;
};

struct parser_answer {
	s32 error;
	u32 n_rows, n_rules; /* in the shared memory */
};

struct parser_dump_question {
	u64 max_bytes;
	u64 after_ns;
	u32 by_tlab;
	u32 pad;
};

struct parser_dump_answer {
	s32 error;
	u32 pad;
	u64 last_ns;
};

struct parser_rows {
	u32 rows[UNWIND_PAGE_BYTES];
	struct unwind_rule rules[UNWIND_MAX_RULES];
};

#define PARSER_MAX_MESSAGE (sizeof(struct parser_opening) + sizeof(struct parser_rows))

/* The starter's loop, until the agent closes the socket. */
void parsers_serve(int control);
/* The parser's loop. */
void parser_serve(int socket);

/* Answers a question about a dump, whose descriptor becomes this function's. */
int parser_serve_dump(int socket, const struct str *question, int fd);

/* Takes a starter that exists; owns the socket. */
int parsers_adopt(int control, pid_t pid, struct parsers **ret);
/* A new parser for the other end of this socket. Any thread. A pid or a negative errno. */
pid_t parsers_begin_one(struct parsers *p, int socket, u64 max_bytes);
/* Ends it. Returns the status as of waitpid(), or -1; adds its CPU time. Any thread. */
int parsers_end_one(struct parsers *p, pid_t pid, u64 *cpu_ns);
