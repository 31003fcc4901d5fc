/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the text of `perf script`:
 *
 *	comm  pid/tid [cpu] time:  period event:
 *		address symbol+0xoffset (file)	leaf first, inlined frames before their holder
 *		...
 *	(empty line)
 *
 * Only samples of the first event are taken, as their periods do not add up with those of others;
 * how many others there were goes into the title. Fields may come and go (`perf script -F`). A line
 * that is damaged is left out, and the diag tells of it. See doc/format/perf-script.md.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/vocab.h"
#include "format/internal.h"

/* perf prints addresses in the file where it knows the mapping, and else those of the process. */
#define FILE_ADDRESS_LIMIT (1ULL << 40)
#define KERNEL_START 0xffff000000000000ULL
#define RECORD "PERF_RECORD_"
#define CUT_NOTE "[truncated: a damaged line of perf script]"

struct text {
	const char *s;
	size_t n;
};

struct header {
	struct text comm, event;
	u32 pid, tid; /* pid 0: not printed */
	u64 time_ns;
	s64 period;
	struct text rest; /* the event's own text, or a frame, when perf recorded no stacks */
	bool record;	  /* no sample: a record of the file, such as PERF_RECORD_MMAP2 */
};

struct perf_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	u64 line;
	struct map frames; /* string id of the line's text → frame id + 1, 0 = leave out */
	vec(u32) ids;	   /* of the sample at hand, leaf first */
	bool open;	   /* a header was read, its sample not yet added */
	bool lost;	   /* the header was damaged */
	bool skip;	   /* it is of another event, or no sample */
	u32 thread;
	s64 period;
	u32 event; /* string id of the first event */
	u64 skipped;
	u64 first_ns, last_ns;
	u64 taken;		   /* samples */
	u64 damaged, damaged_line; /* lines; the first of them */
	const char *damage;	   /* what is wrong with it */
};

static void reader_deinit(struct perf_reader *f)
{
	profile_destroy(f->p);
	map_deinit(&f->frames);
	vec_deinit(&f->ids);
}

static struct text trim(struct text t)
{
	while (t.n && isspace((u8)t.s[0]))
		t.s++, t.n--;
	while (t.n && isspace((u8)t.s[t.n - 1]))
		t.n--;
	return t;
}

/* Cuts off what stands before the next space; false when nothing is left. */
static bool take_word(struct text *t, struct text *ret_word)
{
	size_t i = 0;

	*t = trim(*t);
	while (i < t->n && !isspace((u8)t->s[i]))
		i++;
	if (!i)
		return false;
	*ret_word = (struct text){t->s, i};
	t->s += i;
	t->n -= i;
	return true;
}

/* Digits from the start of t; their number, or 0 when there are none or too many. */
static size_t take_digits(struct text t, u64 *ret)
{
	u64 v = 0;
	size_t i = 0;

	for (; i < t.n && isdigit((u8)t.s[i]); i++)
		if (i > 18)
			return 0;
		else
			v = v * 10 + (u64)(t.s[i] - '0');
	if (i)
		*ret = v;
	return i;
}

static struct text from(struct text t, size_t i)
{
	return (struct text){t.s + i, t.n - i};
}

/* ---- header ---- */

/* "123" or "123/456" */
static bool parse_ids(struct text w, u32 *ret_pid, u32 *ret_tid)
{
	u64 a, b;
	size_t n = take_digits(w, &a), m;

	if (!n || a > 0xffffffff)
		return false;
	if (n == w.n) {
		*ret_pid = 0;
		*ret_tid = (u32)a;
		return true;
	}
	if (w.s[n] != '/')
		return false;
	m = take_digits(from(w, n + 1), &b);
	if (!m || n + 1 + m != w.n || b > 0xffffffff)
		return false;
	*ret_pid = (u32)a;
	*ret_tid = (u32)b;
	return true;
}

/* "12345.678901:" */
static bool parse_time(struct text w, u64 *ret_ns)
{
	u64 s, f, scale = 1000000000;
	size_t n = take_digits(w, &s), m;

	if (!n || n >= w.n || w.s[n] != '.' || w.s[w.n - 1] != ':' || s > 10000000000ULL)
		return false;
	m = take_digits(from(w, n + 1), &f);
	if (!m || m > 9 || n + 1 + m + 1 != w.n)
		return false;
	for (size_t i = 0; i < m; i++)
		scale /= 10;
	*ret_ns = s * 1000000000 + f * scale;
	return true;
}

static bool is_cpu(struct text w)
{
	u64 cpu;

	return w.n >= 3 && w.s[0] == '[' && w.s[w.n - 1] == ']' &&
	       take_digits(from(w, 1), &cpu) == w.n - 2;
}

/* The flags of `-F misc`: "K", "UE". */
static bool is_misc(struct text w)
{
	for (size_t i = 0; i < w.n; i++)
		if (!isupper((u8)w.s[i]))
			return false;
	return w.n <= 4;
}

/* What stands behind the ids: [cpu], flags and time; the cpu or the time at least. */
static bool parse_when(struct text *t, u64 *ret_ns)
{
	struct text rest = *t, w;
	bool cpu, time = false;

	if (!take_word(&rest, &w))
		return false;
	cpu = is_cpu(w);
	if (cpu) {
		*t = rest;
		if (!take_word(&rest, &w))
			return true;
	}
	if (is_misc(w) && !take_word(&rest, &w))
		return cpu;
	time = parse_time(w, ret_ns);
	if (time)
		*t = rest;
	return cpu || time;
}

/* "[period] event:[mods:]" and perhaps a frame behind it. */
static void parse_event(struct text t, struct header *h)
{
	struct text w;
	u64 period;

	h->period = -1;
	if (!take_word(&t, &w))
		return;
	if (take_digits(w, &period) == w.n) {
		h->period = (s64)period;
		if (!take_word(&t, &w))
			return;
	}
	h->record = w.n > strlen(RECORD) && !memcmp(w.s, RECORD, strlen(RECORD));
	if (w.s[w.n - 1] == ':') {
		h->event = (struct text){w.s, w.n - 1};
		h->rest = trim(t);
	}
}

/*
 * The name of a process may hold spaces and digits: it ends before the first word that is an id
 * and has a cpu or a time behind it; without these (-F comm,pid,event) an event.
 */
static bool parse_header_as(struct text line, bool timed, struct header *ret)
{
	struct header h = {};
	struct text rest = line = trim(line), w;

	while (take_word(&rest, &w)) {
		struct text behind = rest;

		if (w.s == line.s || !parse_ids(w, &h.pid, &h.tid) ||
		    (timed && !parse_when(&behind, &h.time_ns)))
			continue;
		h.comm = trim((struct text){line.s, (size_t)(w.s - line.s)});
		parse_event(behind, &h);
		if (!timed && !h.event.n)
			continue;
		*ret = h;
		return true;
	}
	return false;
}

static bool parse_header(struct text line, struct header *ret)
{
	return parse_header_as(line, true, ret) || parse_header_as(line, false, ret);
}

/* ---- frames ---- */

static bool is(struct text t, const char *s)
{
	return t.n == strlen(s) && !memcmp(t.s, s, t.n);
}

static bool ends_with(struct text t, const char *s)
{
	return t.n >= strlen(s) && !memcmp(t.s + t.n - strlen(s), s, strlen(s));
}

static bool is_kernel(struct text file, u64 address)
{
	if (is(file, "[vdso]") || is(file, "[vsyscall]") || is(file, "[unknown]"))
		return false;
	return address >= KERNEL_START || (file.n && file.s[0] == '[') ||
	       ends_with(file, "vmlinux") || ends_with(file, ".ko") || ends_with(file, ".ko.xz") ||
	       ends_with(file, ".ko.zst");
}

/*
 * The symbol as a name: without its offset, and without parameters unless the parentheses belong
 * to the name (Go methods, anonymous namespaces, operator()).
 */
static struct text symbol_name(struct text sym)
{
	for (size_t i = sym.n; i > 3; i--) {
		if (isxdigit((u8)sym.s[i - 1]))
			continue;
		if (i < sym.n && sym.s[i - 1] == 'x' && !memcmp(sym.s + i - 3, "+0x", 3))
			sym.n = i - 3;
		break;
	}
	if (memmem(sym.s, sym.n, ".(", 2))
		return sym;
	for (size_t i = 1; i < sym.n; i++) {
		struct text t = from(sym, i);

		if (t.s[0] != '(' || !strncmp(t.s, "(anonymous namespace)", MIN(t.n, 21ul)) ||
		    ends_with((struct text){sym.s, i}, "operator"))
			continue;
		sym.n = i;
		break;
	}
	return trim(sym);
}

static int frame_mapping(struct perf_reader *f, struct text file, u32 *ret)
{
	struct profile_mapping m = {};
	int r = profile_add_string(f->p, file.s, file.n, &m.path);

	return r < 0 ? r : profile_add_mapping(f->p, &m, ret);
}

static int frame_function(struct perf_reader *f, struct text name, u32 *ret)
{
	struct profile_function fn = {};
	int r = profile_add_string(f->p, name.s, name.n, &fn.name);

	fn.system_name = fn.name;
	return r < 0 ? r : profile_add_function(f->p, &fn, ret);
}

/* "[libfoo.so]" where the address is not one of the file. */
static int nameless(struct perf_reader *f, struct text file, struct profile_frame *frame)
{
	_cleanup_str_ struct str name = {}, path = {};

	if (frame->mapping == PROFILE_NONE) {
		frame->kind = FRAME_UNKNOWN;
		return 0;
	}
	if (frame->address < FILE_ADDRESS_LIMIT || frame->kind == FRAME_KERNEL)
		return 0;
	str_append(&path, file.s, file.n);
	str_printf(&name, "[%s]", profile_basename(str_get(&path)));
	return frame_function(f, (struct text){str_get(&name), name.n}, &frame->function);
}

/* Splits "symbol+0x1 (file)"; the file may have parentheses of its own, as in "(x (deleted))". */
static bool split_file(struct text t, struct text *ret_sym, struct text *ret_file)
{
	int open = 0;

	t = trim(t);
	if (!t.n || t.s[t.n - 1] != ')')
		return false;
	for (size_t i = t.n; i > 0; i--) {
		open += t.s[i - 1] == ')';
		open -= t.s[i - 1] == '(';
		if (open)
			continue;
		*ret_file = (struct text){t.s + i, t.n - i - 1};
		*ret_sym = trim((struct text){t.s, i - 1});
		return true;
	}
	return false;
}

static bool parse_address(struct text w, u64 *ret)
{
	u64 v = 0;

	if (!w.n || w.n > 16)
		return false;
	for (size_t i = 0; i < w.n; i++) {
		if (!isxdigit((u8)w.s[i]))
			return false;
		v = v << 4 | (u64)(isdigit((u8)w.s[i]) ? w.s[i] - '0' : tolower(w.s[i]) - 'a' + 10);
	}
	*ret = v;
	return true;
}

static bool is_perf_map(struct text file)
{
	return ends_with(file, ".map") && memmem(file.s, file.n, "/perf-", 6);
}

/* Id + 1 of the frame, 0 when it is none: pseudo-symbols in parentheses. */
static int make_frame(struct perf_reader *f, u64 address, struct text sym, struct text file,
		      u64 *ret)
{
	struct profile_frame frame = {.address = address,
				      .mapping = PROFILE_NONE,
				      .function = PROFILE_NONE,
				      .kind = FRAME_NATIVE};
	bool inlined = is(file, "inlined");
	u32 id;
	int r = 0;

	if (sym.n && sym.s[0] == '(' && strncmp(sym.s, "(anonymous", MIN(sym.n, 10ul)) != 0) {
		*ret = 0;
		return 0;
	}
	if (inlined)
		frame.flags = PROFILE_FRAME_INLINED;
	else if (is_kernel(file, address))
		frame.kind = FRAME_KERNEL;
	else if (is_perf_map(file))
		frame.kind = FRAME_JIT;
	if (inlined && address >= KERNEL_START)
		frame.kind = FRAME_KERNEL;
	if (!inlined && file.n && !is(file, "[unknown]"))
		r = frame_mapping(f, file, &frame.mapping);
	sym = is(sym, "[unknown]") ? (struct text){} : symbol_name(sym);
	if (r == 0)
		r = sym.n ? frame_function(f, sym, &frame.function) : nameless(f, file, &frame);
	if (r == 0)
		r = profile_add_frame(f->p, &frame, &id);
	if (r == 0)
		*ret = (u64)id + 1;
	return r;
}

/* "addr symbol+0x1 (file)"; without the file where -F leaves it out. */
static bool parse_frame(struct text t, u64 *ret_address, struct text *ret_sym,
			struct text *ret_file)
{
	struct text word;

	if (!take_word(&t, &word) || !parse_address(word, ret_address))
		return false;
	if (split_file(t, ret_sym, ret_file))
		return true;
	*ret_sym = trim(t);
	*ret_file = (struct text){};
	return ret_sym->n;
}

/*
 * What stands below a frame: with -F +srcline "file:line", or "file[address]" where that is not
 * known; with -F +insn "insn: 89 c2".
 */
static bool is_remark(struct text t)
{
	const char *colon = memrchr(t.s, ':', t.n), *bracket = memrchr(t.s, '[', t.n);
	struct text digits = colon ? from(t, (size_t)(colon + 1 - t.s)) : (struct text){};
	u64 number;

	if ((digits.n && take_digits(digits, &number) == digits.n) ||
	    (t.n > 5 && !memcmp(t.s, "insn:", 5)))
		return true;
	return bracket && t.s[t.n - 1] == ']' &&
	       parse_address((struct text){bracket + 1, (size_t)(t.s + t.n - 2 - bracket)},
			     &number);
}

static void damage(struct perf_reader *f, const char *what)
{
	if (f->damaged++)
		return;
	f->damaged_line = f->line;
	f->damage = what;
}

/* Says in the stack that frames are missing. */
static int cut_stack(struct perf_reader *f)
{
	u32 id;
	int r;

	damage(f, "is no stack frame");
	r = profile_add_note(f->p, CUT_NOTE, &id);
	return r < 0 ? r : vec_push(&f->ids, id);
}

/* "A->B->C" of a perf map: C is inlined into B, and B into A. Leaf first. */
static int add_inlined(struct perf_reader *f, u64 address, struct text chain, struct text file)
{
	const struct text inlined = {"inlined", strlen("inlined")};
	int r = 0;

	while (r == 0) {
		const char *arrow = NULL;
		struct text name = chain;
		u64 made = 0;

		for (size_t i = 1; i < chain.n && !arrow; i++)
			if (!memcmp(chain.s + chain.n - i - 1, "->", 2))
				arrow = chain.s + chain.n - i - 1;
		if (arrow)
			name = from(chain, (size_t)(arrow + 2 - chain.s));
		r = make_frame(f, address, name, arrow ? inlined : file, &made);
		if (r == 0 && made)
			r = vec_push(&f->ids, (u32)made - 1);
		if (!arrow)
			break;
		chain.n = (size_t)(arrow - chain.s);
	}
	return r;
}

static int add_frame(struct perf_reader *f, struct text line)
{
	struct text rest = trim(line), sym, file;
	u64 address, made = 0, *known;
	u32 key;
	int r;

	if (f->skip)
		return 0;
	r = profile_add_string(f->p, rest.s, rest.n, &key);
	if (r < 0)
		return r;
	known = map_get(&f->frames, key);
	if (known)
		return *known ? vec_push(&f->ids, (u32)*known - 1) : 0;
	if (!parse_frame(rest, &address, &sym, &file))
		return is_remark(rest) ? 0 : cut_stack(f);
	if (is_perf_map(file) && memmem(sym.s, sym.n, "->", 2))
		return add_inlined(f, address, symbol_name(sym), file);
	r = make_frame(f, address, sym, file, &made);
	if (r == 0)
		r = map_put(&f->frames, key, made);
	return r < 0 || !made ? r : vec_push(&f->ids, (u32)made - 1);
}

/* ---- samples ---- */

/* An inlined frame is code of the kind and file of the frame that holds it. */
static int settle_inlined(struct perf_reader *f)
{
	struct profile_frame holder = {.mapping = PROFILE_NONE};
	int r = 0;

	for (size_t i = f->ids.n; i > 0 && r == 0; i--) {
		struct profile_frame frame = f->p->frames.data[f->ids.data[i - 1]];

		if (!(frame.flags & PROFILE_FRAME_INLINED)) {
			holder = frame;
			continue;
		}
		if (holder.mapping == PROFILE_NONE)
			continue;
		frame.address = holder.address;
		frame.mapping = holder.mapping;
		frame.kind = holder.kind;
		r = profile_add_frame(f->p, &frame, &f->ids.data[i - 1]);
	}
	return r;
}

static int finish_sample(struct perf_reader *f)
{
	s64 values[2] = {1, f->period};
	u32 stack;
	int r;

	if (!f->open)
		return 0;
	f->open = false;
	if (f->skip)
		return 0;
	r = settle_inlined(f);
	if (r == 0)
		r = profile_add_stack(f->p, f->ids.data, f->ids.n, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, f->thread, stack, values);
	f->taken++;
	if (r == -ERANGE)
		return diag_set(f->diag, r, "perf script: periods add up to more than 63 bits");
	return r;
}

/* Values: how many samples, and their periods where perf prints them. */
static int first_sample(struct perf_reader *f, const struct header *h)
{
	_cleanup_str_ struct str event = {};
	int r = profile_add_table_type(f->p, SAMPLE_TYPE_SAMPLES);
	enum sample_type type;

	str_append(&event, h->event.s, h->event.n);
	type = vocab_find_event(str_get(&event));
	if (r == 0)
		r = profile_add_string(f->p, h->event.s, h->event.n, &f->event);
	if (r == 0 && h->period >= 0) {
		r = type < SAMPLE_TYPE_N
			    ? profile_add_table_type(f->p, type)
			    : profile_add_type(f->p, event.n ? str_get(&event) : "period",
					       vocab_unit(UNIT_COUNT));
		f->p->default_type = 1;
	}
	f->first_ns = h->time_ns;
	return r;
}

static int start_sample(struct perf_reader *f, const struct header *h)
{
	struct profile_thread t = {.pid = h->pid, .tid = h->tid};
	struct text sym, file;
	u64 address;
	u32 event;
	int r = 0;

	if (h->record) {
		f->open = true;
		f->skip = true;
		return 0;
	}
	if (!f->p->n_types)
		r = first_sample(f, h);
	if (r == 0)
		r = profile_add_string(f->p, h->event.s, h->event.n, &event);
	if (r == 0)
		r = profile_add_string(f->p, h->comm.s, h->comm.n, &t.comm);
	t.thread_name = t.comm;
	if (r == 0)
		r = profile_add_thread(f->p, &t, &f->thread);
	if (r < 0)
		return r;
	vec_clear(&f->ids);
	f->open = true;
	f->skip = event != f->event;
	f->skipped += f->skip;
	f->period = MAX(h->period, (s64)0);
	f->last_ns = MAX(f->last_ns, h->time_ns);
	/* Else it is the text of a tracepoint. */
	return h->rest.n && parse_frame(h->rest, &address, &sym, &file) && file.n
		       ? add_frame(f, h->rest)
		       : 0;
}

/* Some tools take the blanks before frames away. */
static bool is_bare_frame(struct text line)
{
	struct text sym, file;
	u64 address;

	return parse_frame(trim(line), &address, &sym, &file) && file.n;
}

static int read_line(struct perf_reader *f, struct text line)
{
	struct header h;

	if (!trim(line).n)
		return finish_sample(f);
	if (line.s[0] == '#')
		return 0;
	if (memchr(line.s, '\0', line.n)) {
		damage(f, "has a NUL byte in it");
		return 0;
	}
	if (f->open && isspace((u8)line.s[0])) {
		/* Old versions of perf indent the header as well. */
		if (line.s[0] == '\t' || !parse_header(line, &h))
			return add_frame(f, line);
	} else if (isspace((u8)line.s[0]) && f->lost) {
		return 0; /* a frame of a sample that is lost */
	} else if (!parse_header(line, &h)) {
		if (f->open && is_bare_frame(line))
			return add_frame(f, line);
		damage(f, "is no sample: comm pid [cpu] time: event:");
		f->lost = true;
		return finish_sample(f);
	}
	f->lost = false;
	if (finish_sample(f) < 0)
		return -EBADMSG;
	return start_sample(f, &h);
}

static bool next_line(struct text *data, struct text *ret)
{
	const char *nl;

	if (!data->n)
		return false;
	nl = memchr(data->s, '\n', data->n);
	*ret = (struct text){data->s, nl ? (size_t)(nl - data->s) : data->n};
	*data = from(*data, ret->n + (nl != NULL));
	return true;
}

static int finish(struct perf_reader *f)
{
	_cleanup_str_ struct str title = {};

	/* Of a text that is mostly damage nothing is believed. */
	if (f->damaged && 2 * f->damaged > f->taken)
		return diag_set(f->diag, -EBADMSG, "perf script: line %llu %s", f->damaged_line,
				f->damage);
	if (!f->p->n_samples)
		return diag_set(f->diag, -EBADMSG, "perf script: no samples in it");
	if (f->damaged)
		(void)diag_set(f->diag, 0,
			       "perf script: line %llu %s; damaged lines left out: %llu",
			       f->damaged_line, f->damage, f->damaged);
	if (f->last_ns > f->first_ns)
		f->p->duration_ns = f->last_ns - f->first_ns;
	if (f->skipped) {
		str_printf(&title, "%s (%llu samples of other events left out)",
			   profile_string(f->p, f->event), f->skipped);
		if (profile_add_string(f->p, str_get(&title), title.n, &f->p->title) < 0)
			return -ENOMEM;
	}
	profile_derive_quality(f->p);
	return 0;
}

int perf_script_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct perf_reader f = {.p = profile_create(),
									.diag = reterr_diag};
	struct text all = {(const char *)data, n}, line;
	int r = 0;

	if (!f.p)
		return -ENOMEM;
	while (r == 0 && next_line(&all, &line)) {
		f.line++;
		r = read_line(&f, line);
	}
	if (r == 0)
		r = finish_sample(&f);
	if (r == 0)
		r = finish(&f);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int perf_script_probe(const u8 *data, size_t n)
{
	struct text all = {(const char *)data, n}, line, sym, file;
	struct header h;
	u64 address;

	for (int i = 0; i < 200 && next_line(&all, &line); i++) {
		if (!trim(line).n || line.s[0] == '#')
			continue;
		if (parse_header_as(line, true, &h))
			return 80;
		/* Without a time the line is a sample only if a stack follows. */
		return parse_header_as(line, false, &h) && next_line(&all, &line) &&
				       parse_frame(line, &address, &sym, &file)
			       ? 80
			       : 0;
	}
	return 0;
}
