/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two processes of `culprit up`. The agent's reads every process of the machine and has root's
 * rights. It starts the server's, which parses what anybody sends and has no rights
 * (cmd_up_server.c), and starts it again when it ends. They speak through two sockets: on `calls`
 * the agent asks and the server answers, on `questions` the server asks and the agent answers.
 *
 * The agent believes nothing of what the server says: it reads numbers, bounded text, and what
 * lib/control reads of foreign servers, and nothing else.
 */
#pragma once

#include "base/diag.h"
#include "base/privilege.h"
#include "base/str.h"
#include "base/types.h"
#include "cli/serving.h"
#include "control/control.h"
#include "sandbox/sandbox.h"

/* The descriptors of the server's process. */
#define UP_CALLS_FD SANDBOX_FIRST_FD
#define UP_QUESTIONS_FD (SANDBOX_FIRST_FD + 1)
#define UP_MAX_TEXT (8u << 20) /* the agent's metrics, a path */

enum up_message {
	/* The agent's calls. The answer is of kind UP_ANSWER: a struct up_answer and text. */
	UP_SOCKET = 1, /* u32: enum server_port; passes a listening socket; has no answer */
	UP_START,      /* struct up_start, serving_write() */
	UP_PROFILES,   /* an OTLP request */
	UP_SYNC,       /* a SyncRequest; the answer's text is a SyncResponse (lib/control) */
	UP_RELOAD,     /* certificates and tokens */
	UP_STOP,       /* has no answer: the process ends */
	/* The server's questions, answered likewise. */
	UP_METRICS, /* the answer's text has the agent's */
	UP_OPEN,    /* u32: enum up_file; the answer passes a descriptor */
	UP_MAPPED,  /* a path: UP_FILE for each file that processes have mapped, then the answer */
	UP_FILE,
	UP_ANSWER,
};

enum up_file { UP_FILE_CERT, UP_FILE_KEY, UP_FILE_CA, UP_FILE_TOKENS, UP_FILE_N };
/* NULL: the server has no such file. */
const char *up_file_path(const struct serving_arguments *a, enum up_file which);

struct up_answer {
	s32 error; /* 0 or a negative errno */
};

struct up_start {
	u32 uid, gid;
	bool has_user, is_verbose;
	char name[sizeof(((struct privilege_user *)NULL)->name)]; /* of the user */
};

struct up_process_options {
	const struct serving_arguments *serving;
	const struct server_options *server; /* with sockets, which are closed at the end */
	const struct privilege_user *user;   /* NULL: this process's */
	/* Appends the agent's metrics. */
	void (*metrics)(void *userdata, struct str *out);
	void *userdata;
};

struct up_process;

/* The capabilities with which a new server is started, for privilege_keep(). */
u64 up_capabilities(void);
/*
 * Starts the process and waits until it serves. The options are borrowed until up_process_stop().
 */
int up_process_start(const struct up_process_options *o, struct diag *reterr_diag,
		     struct up_process **ret);
/* From now on a thread answers the server's questions, and starts it again when it has ended. */
int up_process_keep(struct up_process *p, struct diag *reterr_diag);
/* Any thread. -EAGAIN: no server takes it now. */
int up_process_give(struct up_process *p, const u8 *data, size_t n, struct diag *reterr_diag);
/* The same for a question, which is small; appends the answer, which is foreign. */
int up_process_ask(struct up_process *p, const u8 *data, size_t n, struct str *ret,
		   struct diag *reterr_diag);
void up_process_reload(struct up_process *p);
void up_process_stop(struct up_process *p);
