/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `culprit doctor -p` reports about a process: how it publishes its threads' records and how
 * they are found, its own attributes, and what is missing. It looks at the process once.
 */
#include <errno.h>
#include <gelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/context/internal.h"

#define MAX_SYMBOLS (1u << 22)
#define MAX_TOLD 4 /* attributes printed in one line */

static const struct {
	const struct context_ops *ops;
	const char *name, *help;
} publishers[CONTEXT_N] = {
#define CONTEXT(id, context, text, ...)                                                            \
	[CONTEXT_##id].ops = &context_##context, [CONTEXT_##id].name = #context,                   \
	[CONTEXT_##id].help = text,
#include "abi/tbl/context.tbl"
#undef CONTEXT
};

struct description {
	const struct procman_process *process;
	void (*line)(void *arg, const char *text);
	void *arg;
	u32 found; /* bits by enum context_id */
};

static CULPRIT_PRINTF(3, 4) void print_line(const struct description *t, const char *who,
					    const char *fmt, ...)
{
	_cleanup_str_ struct str line = {};
	va_list ap;

	str_printf(&line, "%s: ", who);
	va_start(ap, fmt);
	str_vprintf(&line, fmt, ap);
	va_end(ap);
	t->line(t->arg, str_get(&line));
}

/* ---- places of records ---- */

static const char *model_text(enum tls_model m)
{
	static const char *const texts[] = {
		[TLS_DESCRIPTOR] = "by its TLS descriptor",
		[TLS_MODULE] = "by its module and offset in the GOT",
		[TLS_MODULE_SELF] = "by its module in the GOT",
		[TLS_OFFSET] = "by its offset in the GOT",
		[TLS_FIXED] = "by the program's own headers",
	};

	return texts[m];
}

static void format_place(const struct context_tls *t, const struct context_binary *b, char *ret,
			 size_t n)
{
	if (t->how == CONTEXT_TLS_STATIC)
		snprintf(ret, n, "%lld from the thread pointer, %s", (long long)t->offset,
			 model_text(b->tls.model));
	else
		snprintf(ret, n, "%lld in the block of module %u, %s", (long long)t->offset,
			 t->module, model_text(b->tls.model));
}

static void describe_elastic(struct description *t, const struct context_target *target,
			     const struct context_binary *b)
{
	const char *who = publishers[CONTEXT_ELASTIC].name;
	struct elastic_storage s;

	if (elastic_read(target, b, &s) < 0)
		print_line(t, who,
			   "missing: the agent publishes nothing yet; set its option "
			   "universal_profiling_integration_enabled (EDOT: "
			   "ELASTIC_OTEL_UNIVERSAL_PROFILING_INTEGRATION_ENABLED) to true");
	else
		print_line(t, who, "service %s; receives its stacks at %s", s.service, s.socket);
}

static void describe_attached(struct description *t, u32 id, const struct context_target *target,
			      const struct context_binary *b, const struct context_process *p)
{
	char at[160] = "";

	if (id == CONTEXT_GO)
		snprintf(at, sizeof(at), "at offset %u of a goroutine, by the program's Go release",
			 p->go.g_labels);
	else
		format_place(&p->tls[id], b, at, sizeof(at));
	print_line(t, publishers[id].name, "%s, of %s: %s", publishers[id].help,
		   target->mapping->binary->path, at);
	if (id == CONTEXT_ELASTIC)
		describe_elastic(t, target, b);
}

static void describe_file(struct description *t, const struct procman_mapping *m)
{
	struct context_target target = {t->process, m};

	for (u32 id = 1; id < CONTEXT_N; id++) {
		struct context_process p = {};
		struct context_binary b = {};
		int r;

		if (t->found & 1u << id || publishers[id].ops->find(m->binary, &b) < 0)
			continue;
		t->found |= 1u << id;
		r = publishers[id].ops->attach(&target, &b, &p);
		if (r == 0)
			describe_attached(t, id, &target, &b, &p);
		else
			print_line(t, publishers[id].name,
				   "missing: its place in %s is unknown: %s", m->binary->path,
				   r == -EAGAIN
					   ? "the loader has not set it yet, or nothing uses it"
					   : strerror(-r));
	}
}

/* ---- symbols that are not exported ---- */

/* Whether the file has this symbol, but only in .symtab, where no loader looks. */
static bool is_hidden(struct elf_file *f, const char *name)
{
	Elf_Scn *s = NULL;
	GElf_Shdr h;
	GElf_Sym sym;

	while ((s = elf_nextscn(f->elf, s))) {
		Elf_Data *d;

		if (!gelf_getshdr(s, &h) || h.sh_type != SHT_SYMTAB || !h.sh_entsize)
			continue;
		d = elf_getdata(s, NULL);
		for (u64 i = 0; d && i < MIN(h.sh_size / h.sh_entsize, (u64)MAX_SYMBOLS); i++) {
			const char *text = NULL;

			if (gelf_getsym(d, (int)i, &sym) && GELF_ST_TYPE(sym.st_info) == STT_TLS &&
			    sym.st_shndx != SHN_UNDEF)
				text = elf_strptr(f->elf, h.sh_link, sym.st_name);
			if (text && !strcmp(text, name))
				return true;
		}
	}
	return false;
}

static void describe_hidden(struct description *t, const struct procman_binary *b)
{
	for (u32 id = 1; id < CONTEXT_N; id++) {
		const char *symbol = publishers[id].ops->symbol;

		if (!symbol || t->found & 1u << id || !is_hidden(b->elf, symbol))
			continue;
		t->found |= 1u << id;
		print_line(t, publishers[id].name,
			   "missing: %s has %s, but does not export it; link it with "
			   "-Wl,--export-dynamic-symbol=%s",
			   b->path, symbol, symbol);
	}
}

/* ---- the process ---- */

struct summary {
	struct str text;
	u32 n, names;
};

static int summarise(void *arg, const struct otlp_said *s)
{
	struct summary *h = arg;

	if (s->of == OTLP_SAID_KEY) {
		h->names++;
		return 0;
	}
	if (h->n++ < MAX_TOLD)
		str_printf(&h->text, "%s%.64s=%.64s", h->n > 1 ? ", " : "", s->name, s->value);
	return 0;
}

static void describe_process(struct description *t)
{
	bool threads = t->found & (1u << CONTEXT_OTEL | 1u << CONTEXT_NODE);
	struct process_context c = {};
	struct summary h = {};
	int r = process_context_read(t->process->pid, &c, summarise, &h);

	if (r == 1)
		print_line(
			t, "process",
			"OpenTelemetry process context: %s%s; it names %u attributes of its threads",
			str_get(&h.text), h.n > MAX_TOLD ? ", ..." : "", h.names);
	else if (r == -EAGAIN)
		print_line(t, "process",
			   "the OpenTelemetry process context is being written: try again");
	else if (r != -ENOENT)
		print_line(
			t, "process",
			"missing: the OpenTelemetry process context is invalid; its publisher must be "
			"fixed");
	else if (threads)
		print_line(
			t, "process",
			"missing: the process publishes no OpenTelemetry process context, so attributes "
			"of its threads have no names; enable it in the SDK");
	str_deinit(&h.text);
}

static void describe_obi(struct description *t)
{
	if (!access(CONTEXT_OBI_MAP, F_OK))
		print_line(t, "obi",
			   "OpenTelemetry's eBPF instrumentation has its map at " CONTEXT_OBI_MAP
			   ": threads without a context are looked up there");
}

void contexts_describe(const struct procman_process *p, void (*line)(void *arg, const char *text),
		       void *arg)
{
	struct description t = {.process = p, .line = line, .arg = arg};

	for (u32 i = 0; i < p->n; i++)
		if (p->mappings[i].binary->elf)
			describe_file(&t, &p->mappings[i]);
	for (u32 i = 0; i < p->n; i++)
		if (p->mappings[i].binary->elf &&
		    (!i || p->mappings[i].binary != p->mappings[i - 1].binary))
			describe_hidden(&t, p->mappings[i].binary);
	describe_process(&t);
	describe_obi(&t);
	if (!t.found && !p->kthread)
		print_line(
			&t, "traces",
			"the process publishes no spans of its threads; doc/context.md lists what "
			"publishes them, and culprit-context is a library for it");
}
