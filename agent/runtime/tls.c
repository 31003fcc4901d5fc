/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/tls.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/str.h"

#define MAX_KEYS 1024
#define MAX_MODULES 65536
#define MAX_STATIC_TLS (1LL << 24)

/* ---- thread-local variables ---- */

/*
 * Recognises *(thread pointer + offset); *(result of __tls_get_addr() + offset); *(thread pointer +
 * word + offset). The word is in the GOT, or a descriptor's function returns it (arm64): then it is
 * the descriptor's second word if the module was loaded at the start of the process.
 */
bool runtime_is_tls(const struct exec *x, const struct exec_value *v, struct runtime_tls *ret)
{
	struct exec_value at, word;
	bool thread;
	u32 symbol;
	u64 slot;

	if (!exec_is_load(x, v, 8, &at))
		return false;
	thread = exec_factor(x, &at, EXEC_THREAD, NULL) == 1;
	if (thread && at.n == 1) {
		*ret = (struct runtime_tls){.kind = RUNTIME_TLS_FIXED, .offset = (s64)at.constant};
		return true;
	}
	if (at.n != 1u + thread)
		return false;
	if (exec_factor(x, &at, EXEC_RESULT, &symbol) == 1) {
		if (!exec_is_constant(&x->symbols[symbol].at, &slot))
			return false;
		*ret = (struct runtime_tls){.kind = thread ? RUNTIME_TLS_WORD : RUNTIME_TLS_MODULE,
					    .slot = slot + (thread ? 8 : 0),
					    .offset = (s64)at.constant};
		return true;
	}
	if (!thread || exec_factor(x, &at, EXEC_LOAD, &symbol) != 1)
		return false;
	word = x->symbols[symbol].at;
	if (x->symbols[symbol].size != 8 || !exec_is_constant(&word, &slot))
		return false;
	*ret = (struct runtime_tls){
		.kind = RUNTIME_TLS_WORD, .slot = slot, .offset = (s64)at.constant};
	return true;
}

bool runtime_is_key(const struct exec *x, const struct exec_value *v, struct runtime_tls *ret)
{
	struct exec_value at;
	u64 slot;

	if (!exec_is_load(x, v, 4, &at) || !exec_is_constant(&at, &slot))
		return false;
	*ret = (struct runtime_tls){.kind = RUNTIME_TLS_KEY, .slot = slot};
	return true;
}

/* ---- libc ---- */

struct specific {
	struct runtime_code code;
	bool known;
	s64 direct; /* thread pointer + direct [→ + indirect] + scale × key */
	s64 indirect;
	u32 scale;
};

static bool on_specific(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *value)
{
	struct specific *s = container_of((struct runtime_code *)arg, struct specific, code);
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

int runtime_learn_libc(struct elf_file *elf, struct runtime_libc *ret)
{
	struct specific s = {.code.elf = elf};
	struct exec_program p = {.code = runtime_code_at, .event = on_specific, .arg = &s.code};
	u64 at;
	int r;

	if (!runtime_symbol(elf, "pthread_getspecific", &at, NULL) &&
	    !runtime_symbol(elf, "__pthread_getspecific", &at, NULL))
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
	const char *base = runtime_file_name(path);

	return str_starts(base, "libc.") || str_starts(base, "libc-") ||
	       str_starts(base, "libpthread") || str_starts(base, "ld-musl");
}

/*
 * Finds the file with pthread_getspecific(): libpthread in glibc before 2.34, the runtime itself in
 * a static program.
 */
static int find_libc(const struct runtime_target *t, struct runtime_libc *libc)
{
	const struct procman_process *p = t->process;
	int r;

	for (u32 i = 0; i < p->n; i++) {
		const struct procman_binary *b = p->mappings[i].binary;

		if (!b->elf || !(is_libc(b->path) || b->elf == t->elf))
			continue;
		if (libc->known && libc->file_id == b->file_id &&
		    libc->first_seen_ns == b->first_seen_ns)
			return 0;
		libc->known = false;
		r = runtime_learn_libc(b->elf, libc);
		if (r == -ENOENT)
			continue;
		libc->file_id = b->file_id;
		libc->first_seen_ns = b->first_seen_ns;
		return r;
	}
	return -EAGAIN; /* ld.so has not mapped it yet */
}

static int chain_of_key(const struct runtime_target *t, const struct runtime_tls *tls,
			struct runtime_libc *libc, struct runtime_chain *ret)
{
	u32 key;
	int r;

	if (runtime_read(&t->memory, t->bias + tls->slot, &key, sizeof(key)) < 0)
		return -EAGAIN;
	if (key >= MAX_KEYS)
		return -EINVAL;
	r = find_libc(t, libc);
	if (r < 0)
		return r;
	if (libc->indirect >= 0) {
		*ret = (struct runtime_chain){
			.n = 2,
			.off = {libc->direct, libc->indirect + (s64)key * libc->scale},
		};
		return 0;
	}
	if (key >= 32) /* glibc keeps these elsewhere */
		return -ENOTSUP;
	*ret = (struct runtime_chain){.n = 1, .off = {libc->direct + (s64)key * libc->scale}};
	return 0;
}

/*
 * A variable of a dynamic module. The two words that __tls_get_addr() receives are the module's
 * number and an offset in its block. The vector of modules is the second word at the thread
 * pointer, on arm64 the first; its entries are 16 bytes in glibc and 8 in musl
 * (sysdeps/x86_64/nptl/tls.h, src/internal/pthread_impl.h).
 */
static int chain_of_module(const struct runtime_target *t, const struct runtime_tls *tls,
			   struct runtime_libc *libc, struct runtime_chain *ret)
{
	u64 words[2];
	int r = find_libc(t, libc);

	if (r < 0)
		return r;
	if (runtime_read(&t->memory, t->bias + tls->slot, words, sizeof(words)) < 0 || !words[0])
		return -EAGAIN;
	if (words[0] > MAX_MODULES || words[1] > 1 << 24)
		return -EINVAL;
	*ret = (struct runtime_chain){
		.n = 3,
		.off = {t->elf->machine == EM_AARCH64 ? 0 : 8,
			(s64)words[0] * (libc->indirect >= 0 ? 8 : 16),
			(s64)words[1] + tls->offset},
	};
	return 0;
}

/* ld.so wrote the word when it loaded the module, which never moves. */
static int chain_of_word(const struct runtime_target *t, const struct runtime_tls *tls,
			 struct runtime_chain *ret)
{
	s64 word;

	if (runtime_read(&t->memory, t->bias + tls->slot, &word, sizeof(word)) < 0 || !word)
		return -EAGAIN;
	if (word > MAX_STATIC_TLS || word < -MAX_STATIC_TLS)
		return -ENOTSUP; /* a module that was loaded later: the word is a pointer */
	*ret = (struct runtime_chain){.n = 1, .off = {word + tls->offset}};
	return 0;
}

int runtime_attach_tls(const struct runtime_target *t, const struct runtime_tls *tls,
		       struct runtime_libc *libc, struct runtime_chain *ret)
{
	switch (tls->kind) {
	case RUNTIME_TLS_FIXED:
		*ret = (struct runtime_chain){.n = 1, .off = {tls->offset}};
		return 0;
	case RUNTIME_TLS_WORD:
		return chain_of_word(t, tls, ret);
	case RUNTIME_TLS_KEY:
		return chain_of_key(t, tls, libc, ret);
	case RUNTIME_TLS_MODULE:
		return chain_of_module(t, tls, libc, ret);
	default:
		return 0;
	}
}
