/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where a thread keeps its Python state. The code of two functions shows it:
 *
 *	PyGILState_GetThisThreadState	the thread's own state, whether or not it holds the GIL:
 *					pthread_getspecific() of a key in _PyRuntime
 *	_PyThreadState_GetCurrent	(3.12 on) the running state: thread-local storage
 *
 * The states of all interpreters form lists, whose offsets four functions show in the same way.
 *
 * pthread_getspecific() itself is read from the process's libc: glibc keeps the values in the
 * thread control block, musl behind a pointer in it.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/python/python.h"
#include "base/str.h"
#include "disasm/exec.h"

#define MAX_RELOCS (4u << 20)
#define MAX_KEYS 1024
#define MAX_MODULES 65536
#define MAX_OFFSET (1u << 20) /* offsets in an interpreter's state are smaller */
#define MAX_STATIC_TLS (1LL << 24)

/* ---- symbolic execution ---- */

struct reader {
	struct elf_file *elf;
	struct python_tls *tls;
	u64 runtime, runtime_end;
	u8 word[16];
};

static bool read_code(void *arg, u64 svma, size_t n, struct buf *ret)
{
	struct reader *r = arg;
	ssize_t got = elf_file_copy(r->elf, svma, MIN(n, sizeof(r->word)), r->word);

	if (got <= 0)
		return false;
	*ret = buf_of(r->word, (size_t)got);
	return true;
}

/* The value of a dynamic symbol, by its index. */
static bool symbol_value(struct elf_file *elf, u64 index, u64 *ret)
{
	struct buf syms;
	Elf64_Sym s;

	if (elf_file_section(elf, ".dynsym", NULL, &syms) < 0 ||
	    index >= buf_left(&syms) / sizeof(s))
		return false;
	memcpy(&s, syms.pos + index * sizeof(s), sizeof(s));
	if (s.st_shndx == SHN_UNDEF)
		return false;
	*ret = s.st_value;
	return true;
}

/* The value that the linker will write to an address: a GOT entry. */
static bool read_relocated(void *arg, u64 svma, u64 *ret)
{
	struct reader *r = arg;
	struct buf rela;
	Elf64_Rela e;

	if (elf_file_section(r->elf, ".rela.dyn", NULL, &rela) < 0)
		return false;
	for (u32 i = 0; i < MAX_RELOCS && buf_left(&rela) >= sizeof(e); i++) {
		memcpy(&e, rela.pos, sizeof(e));
		(void)buf_skip(&rela, sizeof(e));
		if (e.r_offset != svma)
			continue;
		switch (ELF64_R_TYPE(e.r_info)) {
		case R_X86_64_RELATIVE:
		case R_AARCH64_RELATIVE:
			*ret = (u64)e.r_addend;
			return true;
		case R_X86_64_GLOB_DAT:
		case R_X86_64_64:
		case R_AARCH64_GLOB_DAT:
		case R_AARCH64_ABS64:
			if (!symbol_value(r->elf, ELF64_R_SYM(e.r_info), ret))
				return false;
			*ret += (u64)e.r_addend;
			return true;
		default:
			return false;
		}
	}
	return false;
}

/*
 * Recognises *(thread pointer + offset); *(result of __tls_get_addr() + offset); *(thread pointer +
 * word + offset). The word is in the GOT, or a descriptor's function returns it (arm64): then it is
 * the descriptor's second word if the module was loaded at the start of the process.
 */
static bool is_tls(const struct exec *x, const struct exec_value *v, struct python_tls *ret)
{
	struct exec_value at, word;
	bool thread;
	u32 symbol;
	u64 slot;

	if (!exec_is_load(x, v, 8, &at))
		return false;
	thread = exec_factor(x, &at, EXEC_THREAD, NULL) == 1;
	if (thread && at.n == 1) {
		*ret = (struct python_tls){.kind = PYTHON_TLS_FIXED, .offset = (s64)at.constant};
		return true;
	}
	if (at.n != 1u + thread)
		return false;
	if (exec_factor(x, &at, EXEC_RESULT, &symbol) == 1) {
		if (!exec_is_constant(&x->symbols[symbol].at, &slot))
			return false;
		*ret = (struct python_tls){.kind = thread ? PYTHON_TLS_WORD : PYTHON_TLS_MODULE,
					   .slot = slot + (thread ? 8 : 0),
					   .offset = (s64)at.constant};
		return true;
	}
	if (!thread || exec_factor(x, &at, EXEC_LOAD, &symbol) != 1)
		return false;
	word = x->symbols[symbol].at;
	if (x->symbols[symbol].size != 8 || !exec_is_constant(&word, &slot))
		return false;
	*ret = (struct python_tls){
		.kind = PYTHON_TLS_WORD, .slot = slot, .offset = (s64)at.constant};
	return true;
}

/*
 * The argument of the call leads to the key: Py_tss_t is {int is_initialized, key}
 * (Include/pythread.h).
 */
static bool on_event(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	struct reader *r = arg;
	struct exec_value at;
	u64 address;

	if (event == EXEC_RETURNS) {
		if (!r->tls->kind)
			(void)is_tls(x, value, r->tls);
		return false;
	}
	if (exec_is_load(x, value, 4, &at) && exec_is_constant(&at, &address)) {
		*r->tls = (struct python_tls){.kind = PYTHON_TLS_KEY, .slot = address};
		return true;
	}
	if (r->runtime && exec_is_constant(value, &address) && address >= r->runtime &&
	    address < r->runtime_end)
		*r->tls = (struct python_tls){.kind = PYTHON_TLS_KEY, .slot = address + 4};
	return false;
}

/* ---- all states ---- */

/* A function that returns one load: from a fixed address, or from its argument + an offset. */
struct accessor {
	struct reader reader;
	bool of_argument, known;
	u64 at;
};

static bool on_accessor(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *value)
{
	struct accessor *a = container_of((struct reader *)arg, struct accessor, reader);
	struct exec_value at;

	if (event != EXEC_RETURNS || !exec_is_load(x, value, 8, &at) || at.n != a->of_argument ||
	    (at.n && exec_factor(x, &at, EXEC_ARG, NULL) != 1))
		return false;
	a->at = at.constant;
	a->known = true;
	return true;
}

static bool read_accessor(struct elf_file *elf, const char *name, bool of_argument, u64 *ret)
{
	struct accessor a = {.reader.elf = elf, .of_argument = of_argument};
	struct exec_program p = {.code = read_code,
				 .constant = read_relocated,
				 .event = on_accessor,
				 .arg = &a.reader};
	u64 at;

	if (!python_symbol(elf, name, &at, NULL) || exec_run(&p, elf->machine, at) < 0 ||
	    !a.known || (of_argument && a.at > MAX_OFFSET))
		return false;
	*ret = a.at;
	return true;
}

/* Without these offsets, a thread is walked with only the state that it names itself. */
static void learn_states(struct elf_file *elf, struct python_binary *b)
{
	u64 head, next, threads, thread;

	if (!read_accessor(elf, "PyInterpreterState_Head", false, &head) ||
	    !read_accessor(elf, "PyInterpreterState_Next", true, &next) ||
	    !read_accessor(elf, "PyInterpreterState_ThreadHead", true, &threads) ||
	    !read_accessor(elf, "PyThreadState_Next", true, &thread))
		return;
	b->interpreters = head;
	b->interpreter_next = (u32)next;
	b->interpreter_threads = (u32)threads;
	b->thread_next = (u32)thread;
}

/* ---- the thread's own state ---- */

int python_learn_thread(struct elf_file *elf, struct python_learned *l, struct diag *reterr_diag)
{
	struct reader r = {.elf = elf};
	struct exec_program p = {
		.code = read_code, .constant = read_relocated, .event = on_event, .arg = &r};
	u64 at, size = 0;
	int e = 0;

	if (python_symbol(elf, "_PyRuntime", &r.runtime, &size))
		r.runtime_end = r.runtime + size;
	r.tls = &l->bound;
	if (python_symbol(elf, "PyGILState_GetThisThreadState", &at, NULL))
		e = exec_run(&p, elf->machine, at);
	r.runtime = 0;
	r.tls = &l->current;
	if (e == 0 && python_symbol(elf, "_PyThreadState_GetCurrent", &at, NULL))
		e = exec_run(&p, elf->machine, at);
	if (e < 0)
		return diag_set(reterr_diag, e, "code of this machine is not understood yet");
	if (l->current.kind == PYTHON_TLS_KEY)
		l->current.kind = PYTHON_TLS_NONE;
	if (!l->bound.kind && !l->current.kind)
		return diag_set(reterr_diag, -ENOTSUP,
				"Python %u.%u: the code of PyGILState_GetThisThreadState is not "
				"understood",
				l->version >> 8, l->version & 0xff);
	learn_states(elf, &l->bpf);
	return 0;
}

/* ---- libc ---- */

struct specific {
	struct reader reader;
	bool known;
	s64 direct; /* thread pointer + direct [→ + indirect] + scale × key */
	s64 indirect;
	u32 scale;
};

static bool on_specific(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *value)
{
	struct specific *s = container_of((struct reader *)arg, struct specific, reader);
	struct exec_value at, base;
	u32 symbol;
	s64 scale;

	if (event != EXEC_RETURNS || !exec_is_load(x, value, 8, &at) || at.n != 2)
		return false;
	scale = exec_factor(x, &at, EXEC_ARG, NULL);
	if (scale != 8 && scale != 16)
		return false;
	if (exec_factor(x, &at, EXEC_THREAD, NULL) == 1) {
		s->direct = (s64)at.constant;
		s->indirect = -1;
	} else if (exec_factor(x, &at, EXEC_LOAD, &symbol) == 1) {
		base = x->symbols[symbol].at;
		if (base.n != 1 || exec_factor(x, &base, EXEC_THREAD, NULL) != 1)
			return false;
		s->direct = (s64)base.constant;
		s->indirect = (s64)at.constant;
	} else {
		return false;
	}
	s->scale = (u32)scale;
	s->known = true;
	return true;
}

int python_learn_libc(struct elf_file *elf, struct python_libc *ret)
{
	struct specific s = {.reader.elf = elf};
	struct exec_program p = {.code = read_code, .event = on_specific, .arg = &s.reader};
	u64 at;
	int r;

	if (!python_symbol(elf, "pthread_getspecific", &at, NULL) &&
	    !python_symbol(elf, "__pthread_getspecific", &at, NULL))
		return -ENOENT;
	r = exec_run(&p, elf->machine, at);
	if (r < 0)
		return r;
	if (!s.known)
		return -ENOTSUP;
	ret->direct = s.direct;
	ret->indirect = s.indirect;
	ret->scale = s.scale;
	ret->known = true;
	return 0;
}

static bool is_libc(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	return str_starts(base, "libc.") || str_starts(base, "libc-") ||
	       str_starts(base, "libpthread") || str_starts(base, "ld-musl");
}

/*
 * Finds the file with pthread_getspecific(): libpthread in glibc before 2.34, Python itself in a
 * static program.
 */
static int find_libc(const struct runtime_target *t, const struct python_learned *l)
{
	const struct procman_process *p = t->process;
	int r;

	for (u32 i = 0; i < p->n; i++) {
		const struct procman_binary *b = p->mappings[i].binary;

		if (!b->elf || !(is_libc(b->path) || b->elf == t->elf))
			continue;
		if (l->libc->known && l->libc->file_id == b->file_id &&
		    l->libc->first_seen_ns == b->first_seen_ns)
			return 0;
		l->libc->known = false;
		r = python_learn_libc(b->elf, l->libc);
		if (r == -ENOENT)
			continue;
		l->libc->file_id = b->file_id;
		l->libc->first_seen_ns = b->first_seen_ns;
		return r;
	}
	return -EAGAIN; /* ld.so has not mapped it yet */
}

static int chain_of_key(const struct runtime_target *t, const struct python_learned *l,
			const struct python_tls *tls, struct python_chain *ret)
{
	u32 words[2];
	u32 key;
	int r;

	if (runtime_read(&t->memory, t->bias + tls->slot - 4, words, sizeof(words)) < 0)
		return -EAGAIN;
	key = words[1];
	/* 3.6: an int that is -1 until Python starts; later a struct whose first word says whether
	 * it is set. */
	if (l->version >= 0x0307 ? !words[0] : key == ~0u)
		return -EAGAIN;
	if (key >= MAX_KEYS)
		return -EINVAL;
	r = find_libc(t, l);
	if (r < 0)
		return r;
	if (l->libc->indirect >= 0) {
		*ret = (struct python_chain){
			.n = 2,
			.off = {l->libc->direct, l->libc->indirect + (s64)key * l->libc->scale},
		};
		return 0;
	}
	if (key >= 32) /* glibc keeps these elsewhere */
		return -ENOTSUP;
	*ret = (struct python_chain){.n = 1, .off = {l->libc->direct + (s64)key * l->libc->scale}};
	return 0;
}

/*
 * A variable of a dynamic module. The two words that __tls_get_addr() receives are the module's
 * number and an offset in its block. The vector of modules is the second word at the thread
 * pointer, on arm64 the first; its entries are 16 bytes in glibc and 8 in musl
 * (sysdeps/x86_64/nptl/tls.h, src/internal/pthread_impl.h).
 */
static int chain_of_module(const struct runtime_target *t, const struct python_learned *l,
			   const struct python_tls *tls, struct python_chain *ret)
{
	u64 words[2];
	int r = find_libc(t, l);

	if (r < 0)
		return r;
	if (runtime_read(&t->memory, t->bias + tls->slot, words, sizeof(words)) < 0 || !words[0])
		return -EAGAIN;
	if (words[0] > MAX_MODULES || words[1] > 1 << 24)
		return -EINVAL;
	*ret = (struct python_chain){
		.n = 3,
		.off = {l->machine == EM_AARCH64 ? 0 : 8,
			(s64)words[0] * (l->libc->indirect >= 0 ? 8 : 16),
			(s64)words[1] + tls->offset},
	};
	return 0;
}

/* ld.so wrote the word when it loaded the module, which never moves. */
static int chain_of_word(const struct runtime_target *t, const struct python_tls *tls,
			 struct python_chain *ret)
{
	s64 word;

	if (runtime_read(&t->memory, t->bias + tls->slot, &word, sizeof(word)) < 0 || !word)
		return -EAGAIN;
	if (word > MAX_STATIC_TLS || word < -MAX_STATIC_TLS)
		return -ENOTSUP; /* a module that was loaded later: the word is a pointer */
	*ret = (struct python_chain){.n = 1, .off = {word + tls->offset}};
	return 0;
}

int python_attach_thread(const struct runtime_target *t, const struct python_learned *l,
			 const struct python_tls *tls, struct python_chain *ret)
{
	switch (tls->kind) {
	case PYTHON_TLS_FIXED:
		*ret = (struct python_chain){.n = 1, .off = {tls->offset}};
		return 0;
	case PYTHON_TLS_WORD:
		return chain_of_word(t, tls, ret);
	case PYTHON_TLS_KEY:
		return chain_of_key(t, l, tls, ret);
	case PYTHON_TLS_MODULE:
		return chain_of_module(t, l, tls, ret);
	default:
		return 0;
	}
}
