/* SPDX-License-Identifier: Apache-2.0 */
/* A record of a call as a line, as strace writes it, or as a JSON object. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/syscalls/table.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

/* Results that only the kernel sees: include/linux/errno.h. */
static const struct restart {
	s64 error;
	const char *name, *text;
} restarts[] = {
	{512, "ERESTARTSYS", "To be restarted if SA_RESTART is set"},
	{513, "ERESTARTNOINTR", "To be restarted"},
	{514, "ERESTARTNOHAND", "To be restarted if no handler"},
	{516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"},
};

static bool has_failed(const struct syscalls_call *c)
{
	return c->result < 0 && c->result >= -4095;
}

static const struct restart *find_restart(const struct syscalls_call *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(restarts); i++)
		if (c->result == -restarts[i].error)
			return &restarts[i];
	return NULL;
}

static const char *error_name(const struct syscalls_call *c)
{
	const struct restart *restart = find_restart(c);

	return restart ? restart->name : strerrorname_np((int)-c->result);
}

static const struct syscalls_entry *entry_of(const struct syscalls_table *t,
					     const struct syscalls_call *c)
{
	return &t->entries[c->slot < SYSCALLS_MAX ? c->slot : SYSCALLS_UNKNOWN];
}

static void put_name(const struct syscalls_call *c, struct str *out)
{
	const char *name = syscalls_name(c->slot);

	if (name)
		str_puts(out, name);
	else if (c->slot == SYSCALLS_COMPAT)
		str_printf(out, "syscall32_%lld", c->nr);
	else
		str_printf(out, "syscall_%#llx", (u64)c->nr);
}

static bool types_are(const struct syscalls_entry *e, u32 i, const char *name)
{
	return strcmp(e->types[i]->name, name) == 0;
}

/* How many arguments the call has: open() has a mode only if it makes a file. */
static u32 count_arguments(const struct syscalls_entry *e, const struct syscalls_call *c)
{
	u32 n = e->n;

	if (n && types_are(e, n - 1, "omode") &&
	    !(c->args[n - 2] & O_CREAT || (c->args[n - 2] & O_TMPFILE) == O_TMPFILE))
		n--;
	return n;
}

static void put_argument(const struct syscalls_entry *e, const struct syscalls_call *c, u32 i,
			 struct str *out)
{
	struct syscalls_argument a = {.call = c, .i = i};
	s8 piece = e->pieces[i];

	/* What a call writes is there only after it has returned without an error. */
	if (piece >= 0 && (u32)piece < c->n &&
	    !(e->plan.pieces[piece].at_end && (c->flags & SYSCALLS_NO_END || c->result < 0)))
		a.piece = &c->pieces[piece];
	e->types[i]->print(&a, out);
}

static bool returns_address(const char *name)
{
	return name && (strcmp(name, "mmap") == 0 || strcmp(name, "brk") == 0 ||
			strcmp(name, "mremap") == 0 || strcmp(name, "shmat") == 0);
}

static void put_result(const struct syscalls_call *c, struct str *out)
{
	const struct restart *restart = find_restart(c);
	const char *name = error_name(c);

	if (restart)
		str_printf(out, "? %s (%s)", restart->name, restart->text);
	else if (has_failed(c) && name)
		str_printf(out, "-1 %s (%s)", name, strerrordesc_np((int)-c->result));
	else if (!has_failed(c) && returns_address(syscalls_name(c->slot)))
		str_printf(out, "%#llx", (u64)c->result);
	else
		str_printf(out, "%lld", c->result);
}

/* "0.000123" */
static void put_seconds(u64 ns, struct str *out)
{
	str_printf(out, "%llu.%06llu", ns / 1000000000, ns / 1000 % 1000000);
}

static u64 duration(const struct syscalls_call *c)
{
	return c->begin_ns && c->end_ns > c->begin_ns ? c->end_ns - c->begin_ns : 0;
}

static void put_call(const struct syscalls_table *t, const struct syscalls_call *c, struct str *out)
{
	const struct syscalls_entry *e = entry_of(t, c);
	u32 n = count_arguments(e, c);

	put_name(c, out);
	str_putc(out, '(');
	for (u32 i = 0; i < n; i++) {
		str_puts(out, i ? ", " : "");
		put_argument(e, c, i, out);
	}
	if (c->flags & SYSCALLS_NO_END) {
		str_puts(out, n ? " <unfinished ...>" : "<unfinished ...>");
	} else {
		str_puts(out, ") = ");
		put_result(c, out);
	}
	if (c->flags & SYSCALLS_NO_BEGIN && !(c->flags & SYSCALLS_NO_END)) {
		str_puts(out, " <?>");
	} else if (!(c->flags & SYSCALLS_NO_END) || duration(c) >= 1000000) {
		str_puts(out, " <");
		put_seconds(duration(c), out);
		str_putc(out, '>');
	}
}

static const char *signal_name(u64 number)
{
	return number < 65 ? sigabbrev_np((int)number) : NULL;
}

static void put_signal(const struct syscalls_call *c, struct str *out)
{
	const char *name = signal_name(c->args[0]);
	int code = (int)c->args[1];

	if (name)
		str_printf(out, "--- SIG%s", name);
	else
		str_printf(out, "--- signal %llu", c->args[0]);
	if (code == SI_USER || code == SI_TKILL)
		str_printf(out, " {si_code=%s}", code == SI_USER ? "SI_USER" : "SI_TKILL");
	else
		str_printf(out, " {si_code=%d}", code);
	str_puts(out, " ---");
}

static void put_exit(const struct syscalls_call *c, struct str *out)
{
	int status = (int)c->args[0];
	const char *name = WIFSIGNALED(status) ? signal_name((u64)WTERMSIG(status)) : NULL;

	if (!WIFSIGNALED(status))
		str_printf(out, "+++ exited with %d +++", WEXITSTATUS(status));
	else if (name)
		str_printf(out, "+++ killed by SIG%s%s +++", name,
			   WCOREDUMP(status) ? " (core dumped)" : "");
	else
		str_printf(out, "+++ killed by signal %d +++", WTERMSIG(status));
}

void syscalls_print_text(const struct syscalls_table *t, const struct syscalls_call *c,
			 bool with_comm, struct str *out)
{
	char comm[sizeof(c->comm) + 1] = {};

	memcpy(comm, c->comm, sizeof(c->comm));
	str_puts(out, "[");
	if (with_comm) {
		text_append_clean(out, comm, 0);
		str_puts(out, " ");
	}
	str_printf(out, "%s%u] ", with_comm ? "" : "pid ", c->tid);
	if (c->type == SYSCALLS_SIGNAL)
		put_signal(c, out);
	else if (c->type == SYSCALLS_EXIT)
		put_exit(c, out);
	else
		put_call(t, c, out);
	str_putc(out, '\n');
}

static void put_json_call(const struct syscalls_table *t, const struct syscalls_call *c,
			  struct json_writer *w)
{
	const struct syscalls_entry *e = entry_of(t, c);
	_cleanup_str_ struct str text = {};
	const char *name = has_failed(c) ? error_name(c) : NULL;

	put_name(c, &text);
	json_put_text(w, "call", str_get(&text));
	json_open_array(w, "args");
	for (u32 i = 0; i < count_arguments(e, c); i++) {
		str_clear(&text);
		put_argument(e, c, i, &text);
		json_put_text(w, NULL, str_get(&text));
	}
	json_close(w);
	if (!(c->flags & SYSCALLS_NO_END))
		json_put_s64(w, "result", c->result);
	if (name)
		json_put_text(w, "error", name);
	if (!(c->flags & SYSCALLS_NO_BEGIN))
		json_put_u64(w, "ns", duration(c));
}

void syscalls_print_json(const struct syscalls_table *t, const struct syscalls_call *c,
			 struct str *out)
{
	static const char *const types[] = {"call", "signal", "exit"};
	struct json_writer w = {.out = out};
	char comm[sizeof(c->comm) + 1] = {};

	memcpy(comm, c->comm, sizeof(c->comm));
	json_open_object(&w, NULL);
	json_put_text(&w, "type", types[c->type <= SYSCALLS_EXIT ? c->type : SYSCALLS_CALL]);
	json_put_u64(&w, "time_ns", c->end_ns);
	json_put_u64(&w, "pid", c->pid);
	json_put_u64(&w, "tid", c->tid);
	json_put_text(&w, "comm", comm);
	if (c->type == SYSCALLS_SIGNAL)
		json_put_u64(&w, "signal", c->args[0]);
	else if (c->type == SYSCALLS_EXIT)
		json_put_u64(&w, "status", c->args[0]);
	else
		put_json_call(t, c, &w);
	json_close(&w);
	str_putc(out, '\n');
}
