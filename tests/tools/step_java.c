/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the HotSpot walker at every instruction: single-steps the threads of a JVM, one after the
 * other, and walks the stack after each step. One sample in ten thousand hits the few instructions
 * of a prologue or an adapter; single steps hit each of them.
 *
 * The walker is the one of bpf/unwind, compiled for the host; a walk ends at the first native
 * frame. step_java notes each call that Java code makes while it steps, so it knows where return
 * addresses lie.
 *
 * Writes one line with a JSON object for each different stack:
 *
 *	thread	name of the thread
 *	n	how often the stack occurred
 *	stop	why the walk ended: "native", or a stop reason
 *	frames	[[function, file, line] …], the outermost first
 *	missed	the stack address of a noted call that the walk did not find; absent: none
 *	pc, at, code, regs, stack	of the first occurrence, for people
 *
 * usage: step_java PID SECONDS STEPS [THREAD…]	takes STEPS steps of a thread, then the next
 */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/runtime/hotspot/hotspot.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "base/vocab.h"

static void note_return(unsigned long long pc, unsigned long long cfa);
#define HOST_RETURN(pc, cfa) note_return(pc, cfa)
#include "tests/host/walkers.h"

#include "tests/host/live.h"

#define STACK_BYTES 16384u
#define BELOW 256u /* bytes below the stack pointer that are read, too */
#define MAX_SHADOW 512
#define MAX_RETURNS 1024
#define MAX_ADAPTED 8
#define TRAP_FLAG 0x100u
#define FIRST (-20) /* the nice value of step_java and of the thread that it steps */

/* ---- the process's memory ---- */

static struct {
	u32 pid;
	u64 start; /* address of the copied stack */
	u64 n;
	u8 stack[STACK_BYTES];
} memory;

static long host_read(void *to, __u32 n, __u64 avma)
{
	struct iovec local = {to, n}, remote = {(void *)(uintptr_t)avma, n};

	if (avma >= memory.start && n <= memory.n && avma - memory.start <= memory.n - n) {
		memcpy(to, memory.stack + (avma - memory.start), n);
		return 0;
	}
	return process_vm_readv((pid_t)memory.pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -1;
}

static void read_stack(u64 sp)
{
	struct iovec local = {memory.stack, STACK_BYTES};
	struct iovec remote = {(void *)(uintptr_t)(sp - BELOW), STACK_BYTES};
	ssize_t n = process_vm_readv((pid_t)memory.pid, &local, 1, &remote, 1, 0);

	memory.start = sp - BELOW;
	memory.n = n > 0 ? (u64)n : 0;
}

/* ---- stacks and calls ---- */

struct seen {
	char thread[16];
	u64 n;
	int stop;
	u64 missed; /* stack address of a call that the walk missed; 0: none */
	u64 pc;
	json_t *frames, *state; /* owned */
};

struct call {
	u64 at, ret;
};

/* The return addresses that the walk followed, and where on the stack they lay. */
static struct {
	struct call data[MAX_RETURNS];
	u32 n;
} returns;

struct stepper {
	struct live_process jvm;
	struct map index; /* hash → seen */
	vec(struct seen) all;
	struct map names; /* hash → json_t *, owned */
	struct call calls[MAX_SHADOW];
	u32 n_calls;
	u64 n_steps, n_walks;
	struct timespec end;
	char **threads; /* prefixes of the names of threads to step; none: all threads */
};

static json_t *names_of(struct stepper *t, u64 word, u64 where)
{
	u64 key[2] = {word, where}, h = hash_bytes(key, sizeof(key)) >> 1;
	u64 *known = map_get(&t->names, h);
	struct arena texts = ARENA_INIT(1 << 20);
	struct runtime_names n = {.arena = &texts};
	json_t *out;
	int r;

	if (known)
		return (json_t *)*known;
	out = json_array();
	r = runtime_hotspot.name(&t->jvm.target, t->jvm.learned, word & WORD_RUNTIME_ADDRESS, where,
				 &n);
	if (r < 0) {
		json_array_append_new(out, json_pack("[s,n,i]", "[stale]", 0));
	} else {
		for (u32 i = 0; i < n.n; i++)
			json_array_append_new(out,
					      json_pack("[s,s?,i]", n.frames[i].function,
							n.frames[i].file, (int)n.frames[i].line));
	}
	arena_deinit(&texts);
	(void)map_put(&t->names, h, (u64)out);
	return out;
}

/* Returns the frames, outermost first, without the stubs that are hidden by default. */
static json_t *frames_of(struct stepper *t, const struct scratch *s)
{
	json_t *out = json_array();
	bool hide = false;

	for (u32 i = 0; i < s->walk.n; i++) {
		u64 word = s->user.frames[i], where;

		if ((word & WORD_RUNTIME) != WORD_RUNTIME) {
			json_array_insert_new(out, 0, json_pack("[s,n,i]", "[unknown]", 0));
			continue;
		}
		where = s->user.frames[++i];
		if (!(word & WORD_RUNTIME_ADDRESS)) {
			hide = true;
			continue;
		}
		json_t *names = names_of(t, word, where);

		for (size_t k = 0; !hide && k < json_array_size(names); k++)
			json_array_insert(out, 0, json_array_get(names, k));
		hide = false;
	}
	return out;
}

static void hex(struct str *out, u64 avma, u32 n)
{
	u8 byte;

	for (u32 i = 0; i < n; i++)
		if (host_read(&byte, 1, avma + i) == 0)
			str_printf(out, "%02x", byte);
}

static json_t *state_of(const struct stepper *t, const struct walk_regs *g)
{
	struct hotspot_scratch *h = hotspot_get();
	char name[64] = "";
	struct str code = {}, stack = {}, regs = {}, calls = {};
	json_t *o;

	if (hotspot_read_blob(g->pc))
		(void)host_read(name, sizeof(name) - 1, hotspot_u64(h, h->process.name));
	hex(&code, g->pc - 64, 64);
	str_puts(&code, " ");
	hex(&code, g->pc, 96);
	for (u32 i = 0; i < 40; i++) {
		u64 word = 0;

		(void)host_read(&word, 8, g->sp - 32 + 8ULL * i);
		str_printf(&stack, "%llx ", word);
	}
	str_printf(&regs, "sp=%llx fp=%llx rax=%llx r13=%llx rbx=%llx", g->sp, g->fp, g->r[0],
		   g->r[13], g->r[3]);
	for (u32 i = 0; i < t->n_calls; i++)
		str_printf(&calls, "%llx:%llx ", t->calls[i].at, t->calls[i].ret);
	o = json_pack("{s:s,s:I,s:I,s:i,s:i,s:s,s:s,s:s,s:s}", "blob", name, "offset",
		      (json_int_t)(g->pc - h->start), "size", (json_int_t)(h->end - h->start),
		      "frame_bytes", (int)h->frame_bytes, "complete", (int)h->complete, "code",
		      str_get(&code), "stack", str_get(&stack), "regs", str_get(&regs), "calls",
		      str_get(&calls));
	str_deinit(&code);
	str_deinit(&stack);
	str_deinit(&regs);
	str_deinit(&calls);
	return o;
}

static void note(struct stepper *t, const char *thread, const struct walk_regs *leaf, int stop,
		 u64 missed)
{
	struct scratch *s = scratch_get();
	u64 h = hash_bytes(s->user.frames, s->walk.n * sizeof(u64)) ^
		hash_bytes(thread, strlen(thread)),
	    *known;
	struct seen one = {.n = 1, .stop = stop, .missed = missed, .pc = leaf->pc};

	h = (h ^ (missed ? hash_u64(leaf->pc) : 0) ^ (u64)(u32)stop << 32) >> 1;
	known = map_get(&t->index, h);
	if (known) {
		t->all.data[*known].n++;
		return;
	}
	snprintf(one.thread, sizeof(one.thread), "%s", thread);
	one.frames = frames_of(t, s);
	one.state = state_of(t, leaf);
	if (vec_push(&t->all, one) == 0)
		(void)map_put(&t->index, h, t->all.n - 1);
}

/* ---- a step ---- */

static bool in_java(u64 pc)
{
	return hotspot_heap(&hotspot_get()->process, pc) != NULL;
}

/* Returns a noted call that has not returned and that the walk passed by; 0: none. */
static u64 find_missed(const struct stepper *t)
{
	for (u32 i = 0; i < t->n_calls; i++) {
		bool found = false;

		/* An adapter to compiled code aligns the stack and repeats the return address. */
		for (u32 k = 0; !found && k < returns.n; k++)
			found = t->calls[i].at - returns.data[k].at <= MAX_ADAPTED &&
				returns.data[k].ret == t->calls[i].ret;
		if (!found && returns.n && t->calls[i].at < returns.data[returns.n - 1].at)
			return t->calls[i].at;
	}
	return 0;
}

/* Drops returned calls. An exception continues at the return address without popping it. */
static void forget_returned(struct stepper *t, u64 sp, u64 pc)
{
	u32 n = 0;

	for (u32 i = 0; i < t->n_calls; i++) {
		u64 word = 0;

		if (t->calls[i].at < sp || host_read(&word, 8, t->calls[i].at) < 0 ||
		    word != t->calls[i].ret || (t->calls[i].at == sp && word == pc))
			continue;
		t->calls[n++] = t->calls[i];
	}
	t->n_calls = n;
}

static void note_return(unsigned long long pc, unsigned long long cfa)
{
	if (returns.n < MAX_RETURNS)
		returns.data[returns.n++] = (struct call){cfa - 8, pc};
}

static void look(struct stepper *t, const char *thread, const struct user_regs_struct *r)
{
	struct walk_regs leaf = live_regs(r);
	struct scratch *s = host_begin(RUNTIME_HOTSPOT, &leaf);
	int stop = WALK_GO;

	forget_returned(t, r->rsp, r->rip);
	returns.n = 0;
	while (stop == WALK_GO && s->walk.n < SAMPLE_MAX_FRAMES)
		stop = runtime_walk(RUNTIME_HOTSPOT);
	t->n_walks++;
	note(t, thread, &leaf, stop, find_missed(t));
}

static void note_call(struct stepper *t, const struct user_regs_struct *before,
		      const struct user_regs_struct *after)
{
	u64 word;

	/* A call within the interpreter makes no frame. */
	if (hotspot_in_interpreter(&hotspot_get()->process, before->rip) &&
	    hotspot_in_interpreter(&hotspot_get()->process, after->rip))
		return;
	if (after->rsp + 8 != before->rsp || !in_java(before->rip) ||
	    host_read(&word, 8, after->rsp) < 0 || word <= before->rip || word > before->rip + 8)
		return;
	if (t->n_calls < MAX_SHADOW)
		t->calls[t->n_calls++] = (struct call){after->rsp, word};
}

enum stopped { STOPPED, STOPPED_LATE, GONE };

static void on_alarm(int sig)
{
	(void)sig;
}

/* Waits for a thread to stop. Interrupts it every 50 ms: a system call may last for ever. */
static enum stopped wait_for(pid_t tid, int *ret_sig)
{
	struct itimerval soon = {.it_value.tv_usec = 50000}, never = {};
	bool late = false;
	int status;
	pid_t got;

	setitimer(ITIMER_REAL, &soon, NULL);
	while ((got = waitpid(tid, &status, __WALL)) < 0 && errno == EINTR) {
		late = true;
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		setitimer(ITIMER_REAL, &soon, NULL);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	if (got != tid || !WIFSTOPPED(status))
		return GONE;
	*ret_sig = live_signal(status);
	return late ? STOPPED_LATE : STOPPED;
}

static enum stopped resume(pid_t tid, enum __ptrace_request how, int *sig)
{
	if (ptrace(how, tid, 0, (void *)(intptr_t)*sig) < 0)
		return GONE;
	return wait_for(tid, sig);
}

/*
 * Executes one instruction. A system call is executed from its entry stop to its exit stop instead
 * of by a single step: if a stepped system call is interrupted, a trap remains that kills the JVM.
 */
static enum stopped step(pid_t tid, const struct user_regs_struct *at, int *sig)
{
	bool restarts = (s64)at->orig_rax >= 0 && -(s64)at->rax - 512 >= 0 &&
			-(s64)at->rax - 512 <= 4; /* ERESTARTSYS and its relatives */
	enum stopped stopped;
	u8 code[2] = {};

	if (*sig ||
	    (!restarts && (host_read(code, 2, at->rip) < 0 || code[0] != 0x0f || code[1] != 0x05)))
		return resume(tid, PTRACE_SINGLESTEP, sig);
	stopped = resume(tid, PTRACE_SYSCALL, sig);
	return stopped == STOPPED && !*sig ? resume(tid, PTRACE_SYSCALL, sig) : stopped;
}

/*
 * Clears the trap flag, which would kill the JVM later: in the flags that a stepped pushf stored,
 * from where popf would set it again, and in the registers after an interrupted popf.
 */
static void clean_flags(pid_t tid, const struct user_regs_struct *before,
			struct user_regs_struct *r)
{
	u8 code = 0;
	u64 flags;

	if (r->rip == before->rip + 1 && r->rsp + 8 == before->rsp &&
	    host_read(&code, 1, before->rip) == 0 && code == 0x9c &&
	    host_read(&flags, 8, r->rsp) == 0)
		ptrace(PTRACE_POKEDATA, tid, r->rsp, flags & ~(u64)TRAP_FLAG);
	if (r->eflags & TRAP_FLAG) {
		r->eflags &= ~(unsigned long long)TRAP_FLAG;
		ptrace(PTRACE_SETREGS, tid, 0, r);
	}
}

static bool has_trap_pending(pid_t tid)
{
	struct __ptrace_peeksiginfo_args args = {.nr = 8};
	siginfo_t pending[8];
	long n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, pending);

	for (long i = 0; i < n; i++)
		if (pending[i].si_signo == SIGTRAP)
			return true;
	return false;
}

/* Detaches. Lets the thread stop for pending traps first: they would kill it afterwards. */
static void leave(pid_t tid, int sig)
{
	struct user_regs_struct r;

	for (u32 i = 0; i < 8 && has_trap_pending(tid); i++)
		if (resume(tid, PTRACE_CONT, &sig) == GONE)
			return;
	if (ptrace(PTRACE_GETREGS, tid, 0, &r) == 0 && r.eflags & TRAP_FLAG) {
		r.eflags &= ~(unsigned long long)TRAP_FLAG;
		ptrace(PTRACE_SETREGS, tid, 0, &r);
	}
	ptrace(PTRACE_DETACH, tid, 0, (void *)(intptr_t)sig);
}

/* Returns false when the thread is gone. */
static bool take_steps(struct stepper *t, pid_t tid, const char *thread, u64 steps, int *sig)
{
	struct user_regs_struct before, r;
	u64 native = 0;

	if (ptrace(PTRACE_GETREGS, tid, 0, &before) < 0)
		return false;
	for (u64 i = 0; i < steps && native < steps * 4;) {
		enum stopped stopped;

		memory.n = 0;
		stopped = step(tid, &before, sig);
		if (stopped == GONE || ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
			return false;
		t->n_steps++;
		memory.n = 0;
		clean_flags(tid, &before, &r);
		if (stopped == STOPPED_LATE)
			return true;
		if (in_java(r.rip)) {
			read_stack(r.rsp);
			note_call(t, &before, &r);
			look(t, thread, &r);
			native = 0;
			i++;
		} else {
			native++;
		}
		before = r;
	}
	return true;
}

static void step_thread(struct stepper *t, pid_t tid, const char *thread, u64 steps)
{
	cpu_set_t all, here;
	int sig = 0, usual = getpriority(PRIO_PROCESS, (id_t)tid);

	/* Run both on one CPU, where a step costs one context switch there and one back. */
	sched_getaffinity(0, sizeof(here), &here);
	if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD) < 0)
		return;
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 || wait_for(tid, &sig) == GONE)
		return;
	t->n_calls = 0;
	sched_getaffinity(tid, sizeof(all), &all);
	sched_setaffinity(tid, sizeof(here), &here);
	setpriority(PRIO_PROCESS, (id_t)tid, FIRST);
	if (!take_steps(t, tid, thread, steps, &sig))
		return;
	setpriority(PRIO_PROCESS, (id_t)tid, usual);
	sched_setaffinity(tid, sizeof(all), &all);
	leave(tid, sig);
}

/* ---- all of them ---- */

static bool is_over(const struct stepper *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > t->end.tv_sec ||
	       (now.tv_sec == t->end.tv_sec && now.tv_nsec >= t->end.tv_nsec);
}

static bool thread_name(u32 pid, const char *tid, char ret[16])
{
	char path[64];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%u/task/%.16s/comm", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(ret, 16, f) != NULL;
	fclose(f);
	ret[strcspn(ret, "\n")] = 0;
	return ok;
}

static bool is_wanted(const struct stepper *t, const char *name)
{
	bool wanted = !*t->threads;

	for (char **p = t->threads; *p && !wanted; p++)
		wanted = str_starts(name, *p);
	return wanted;
}

static void round_of_threads(struct stepper *t, u64 steps)
{
	struct timespec pause = {0, 2000000};
	struct dirent *e;
	char path[64], name[16];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%u/task", memory.pid);
	d = opendir(path);
	while (d && (e = readdir(d)) && !is_over(t)) {
		if (e->d_name[0] == '.' || !thread_name(memory.pid, e->d_name, name) ||
		    !is_wanted(t, name))
			continue;
		step_thread(t, (pid_t)strtol(e->d_name, NULL, 10), name, steps);
		nanosleep(&pause, NULL);
	}
	if (d)
		closedir(d);
}

static void print(const struct stepper *t)
{
	for (size_t i = 0; i < t->all.n; i++) {
		const struct seen *s = &t->all.data[i];
		json_t *o =
			json_pack("{s:s,s:I,s:s,s:o,s:I,s:o}", "thread", s->thread, "n",
				  (json_int_t)s->n, "stop",
				  s->stop == RUNTIME_NATIVE ? "native"
				  : s->stop < 0		    ? "depth"
							    : vocab_stop((u32)s->stop)->name,
				  "frames", s->frames, "pc", (json_int_t)s->pc, "state", s->state);
		char *text;

		if (s->missed)
			json_object_set_new(o, "missed", json_integer((json_int_t)s->missed));
		text = json_dumps(o, JSON_COMPACT);
		puts(text ? text : "{}");
		free(text);
		json_decref(o);
	}
}

int main(int argc, char **argv)
{
	static struct stepper t;
	struct diag why = {};
	cpu_set_t here;

	if (argc < 4)
		return 2;
	t.threads = argv + 4;
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);
	/*
	 * A step is short compared with the wait for a CPU on a busy machine. The kernel would stop
	 * a real-time class for 50 ms of each second, so use the lowest nice value.
	 */
	setpriority(PRIO_PROCESS, 0, FIRST);
	memory.pid = (u32)strtoul(argv[1], NULL, 10);
	clock_gettime(CLOCK_MONOTONIC, &t.end);
	t.end.tv_sec += strtol(argv[2], NULL, 10);
	if (live_attach(memory.pid, &t.jvm, &why) < 0 || t.jvm.runtime != RUNTIME_HOTSPOT) {
		fprintf(stderr, "step_java: %s\n", *why.text ? why.text : "this is no JVM");
		return 1;
	}
	memcpy(&hotspot_get()->process, host_process.room, sizeof(struct hotspot_process));
	while (!is_over(&t) && kill((pid_t)memory.pid, 0) == 0)
		round_of_threads(&t, strtoul(argv[3], NULL, 10));
	print(&t);
	fprintf(stderr, "%llu steps, %llu in Java\n", t.n_steps, t.n_walks);
	return 0;
}
