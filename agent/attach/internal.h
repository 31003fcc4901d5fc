/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of HotSpot's attach listener, for the files of agent/attach. */
#pragma once

#include "agent/attach/attach.h"
#include "base/map.h"
#include "base/str.h"

/* ---- hotspot.c: a JVM that answers ---- */

struct jvm {
	u32 pid, ns_pid;
	u32 uid; /* effective */
	/* As in struct procman_process: of the program that was seen. An exec changes start_stack;
	 * start_ticks may be 0. */
	u64 start_ticks, start_stack;
	u64 flag_avma; /* of ATTACH_FLAG */
	int pidfd;     /* owned, like the next */
	int tmp;       /* its /tmp, O_PATH */
	/* No answer is waited for longer than until then (jvm_now_ms()); atomic, because another
	 * thread may lower it meanwhile. Borrowed; NULL: each has its own time. */
	const u64 *latest_ms;
};
u64 jvm_now_ms(void);
/* Not open yet. */
static inline struct jvm jvm_of(const struct procman_process *p, u64 flag_avma)
{
	return (struct jvm){.pid = p->pid,
			    .start_ticks = p->start_ticks,
			    .start_stack = p->start_stack,
			    .flag_avma = flag_avma,
			    .pidfd = -1,
			    .tmp = -1};
}

/*
 * Opens the process that ret->pid, start_ticks, start_stack and flag_avma describe. -ESRCH: it has
 * ended. The diag says what else is wrong.
 */
int jvm_open(struct jvm *ret, struct diag *reterr_diag);
void jvm_close(struct jvm *j);
bool jvm_has_ended(const struct jvm *j);
/*
 * Whether it may be asked. -EAGAIN: it has no handler of SIGQUIT, maybe because it is starting;
 * -EACCES: it was started with DisableAttachMechanism, or that is unknown.
 */
int jvm_may_ask(const struct jvm *j, struct diag *reterr_diag);

/* Bytes of an answer; a longer one is an error. */
#define JVM_MAX_ANSWER (64u << 10)
/*
 * Sends a command of jcmd, and waits at most timeout_ms in all for the end of the answer, whose
 * text it appends. Starts the JVM's listener if it does not run. -EPROTO: the answer is none;
 * -EMSGSIZE; -ETIMEDOUT; -EPERM: the socket is not the JVM's; -EAGAIN: it does not know the
 * command, maybe because it is starting; those of jvm_may_ask(). Any of them has a diag.
 */
int jvm_ask(struct jvm *j, const char *command, u32 timeout_ms, struct str *ret_text,
	    struct diag *reterr_diag);

/* ---- answer.c: the texts of answers, which are any bytes ---- */

/* The code in the first line; *ret_text is where the text begins. -EPROTO. */
int answer_parse(const char *data, size_t n, s32 *ret_code, size_t *ret_text);
/* The release in the answer to VM.version: 8, 17; 0: none. */
u32 answer_release(const char *text);
/* Whether the answer to JFR.check has a recording of this name. */
bool answer_has_recording(const char *text, const char *name);
/* What an answer says, on one line, for people. Borrowed by nobody: `ret` has n bytes. */
void answer_line(const char *text, char *ret, size_t n);

/* ---- dump.c: files in the JVM's /tmp ---- */

#define JVM_FILE_NAME 64
#define DUMP_MAX_BYTES (32ULL << 20)
/* A name that nobody can guess, with this ending; ret: JVM_FILE_NAME bytes. */
int jvm_file_name(const char *ending, char *ret);
/* Writes a file that the JVM can read. */
int jvm_write_file(const struct jvm *j, const char *name, const char *text);
void jvm_remove_file(const struct jvm *j, const char *name);
/*
 * Opens a file that the JVM has written and removes it. -ENOENT: it wrote none; -EPERM: the file is
 * not the JVM's, or no regular one; -E2BIG.
 */
int jvm_take_file(const struct jvm *j, const char *name, int *ret_fd, u64 *ret_bytes);
/* Adds the ids that the JVM's threads have in its PID namespace → those here. */
void jvm_threads(const struct jvm *j, struct map *ret);
/*
 * Makes the profile the process's: threads get its pid, their own ids in this PID namespace, and a
 * resource, unless identities is NULL.
 */
int dump_identify(struct profile *p, const struct jvm *j, u64 image, const char *comm,
		  struct identities *identities);
