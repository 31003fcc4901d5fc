/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/usdt.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_STAPSDT 3
#define ALIGN4(n) (((u64)(n) + 3) & ~3ULL)

/* ---- notes ---- */

/*
 *	u64 location, u64 base at link time, u64 semaphore, then provider, name and arguments, each
 *	with its NUL
 */
static int parse_description(struct buf b, u64 base, usdt_probes *ret)
{
	struct usdt_probe p = {};
	u64 linked_base, moved;

	if (!buf_u64(&b, &p.svma) || !buf_u64(&b, &linked_base) || !buf_u64(&b, &p.semaphore) ||
	    !buf_cstr(&b, &p.provider) || !buf_cstr(&b, &p.name) || !buf_cstr(&b, &p.arguments))
		return -EINVAL;
	moved = base && linked_base ? base - linked_base : 0;
	p.svma += moved;
	if (p.semaphore)
		p.semaphore += moved;
	if (ret->n == USDT_MAX_PROBES)
		return -EINVAL;
	return vec_push(ret, p);
}

int usdt_parse(struct buf notes, u64 base, usdt_probes *ret)
{
	while (buf_left(&notes)) {
		struct buf name, description;
		u32 n_name, n_description, type;
		int r;

		if (!buf_u32(&notes, &n_name) || !buf_u32(&notes, &n_description) ||
		    !buf_u32(&notes, &type) || !buf_take(&notes, n_name, &name) ||
		    !buf_skip(&notes, ALIGN4(n_name) - n_name) ||
		    !buf_take(&notes, n_description, &description))
			return -EINVAL;
		/* The last note may end without its padding. */
		(void)buf_skip(&notes,
			       MIN(ALIGN4(n_description) - n_description, (u64)buf_left(&notes)));
		if (type != NOTE_STAPSDT || n_name != sizeof("stapsdt") ||
		    memcmp(name.pos, "stapsdt", sizeof("stapsdt")) != 0)
			continue;
		r = parse_description(description, base, ret);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- registers, as words of struct pt_regs ---- */

#define X86_IP 16

/* arch/x86/include/asm/ptrace.h of Linux */
static const struct {
	const char *names[4]; /* of 64, 32, 16 and 8 bits */
	u8 word;
} x86_registers[] = {
	{{"r15", "r15d", "r15w", "r15b"}, 0}, {{"r14", "r14d", "r14w", "r14b"}, 1},
	{{"r13", "r13d", "r13w", "r13b"}, 2}, {{"r12", "r12d", "r12w", "r12b"}, 3},
	{{"rbp", "ebp", "bp", "bpl"}, 4},     {{"rbx", "ebx", "bx", "bl"}, 5},
	{{"r11", "r11d", "r11w", "r11b"}, 6}, {{"r10", "r10d", "r10w", "r10b"}, 7},
	{{"r9", "r9d", "r9w", "r9b"}, 8},     {{"r8", "r8d", "r8w", "r8b"}, 9},
	{{"rax", "eax", "ax", "al"}, 10},     {{"rcx", "ecx", "cx", "cl"}, 11},
	{{"rdx", "edx", "dx", "dl"}, 12},     {{"rsi", "esi", "si", "sil"}, 13},
	{{"rdi", "edi", "di", "dil"}, 14},    {{"rip", "eip", "ip", ""}, X86_IP},
	{{"rsp", "esp", "sp", "spl"}, 19},
};

static bool x86_register(const char *name, size_t n, u8 *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(x86_registers); i++)
		for (u32 width = 0; width < 4; width++) {
			const char *have = x86_registers[i].names[width];

			if (n && strlen(have) == n && memcmp(have, name, n) == 0) {
				*ret = x86_registers[i].word;
				return true;
			}
		}
	return false;
}

/* struct user_pt_regs: regs[31], sp, pc */
static bool arm64_register(const char *name, size_t n, u8 *ret)
{
	u32 number;

	if ((n == 2 && memcmp(name, "sp", 2) == 0) || (n == 3 && memcmp(name, "wsp", 3) == 0)) {
		*ret = 31;
		return true;
	}
	if (n < 2 || n > 3 || (name[0] != 'x' && name[0] != 'w') || !isdigit((u8)name[1]) ||
	    (n == 3 && !isdigit((u8)name[2])))
		return false;
	number = (u32)(name[1] - '0');
	if (n == 3)
		number = number * 10 + (u32)(name[2] - '0');
	if (number > 30)
		return false;
	*ret = (u8)number;
	return true;
}

/* ---- operands ---- */

struct operand {
	const char *text; /* NUL-terminated */
	const struct usdt_probe *probe;
	usdt_symbol_fn *symbol;
	void *arg;
};

/* A number at the begin of the text. Returns what is behind it, or NULL. */
static const char *read_number(const char *text, s64 *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(text, &end, 0);
	return end == text || errno ? NULL : end;
}

/* "16", "-0x10+8", "symbol", "symbol+8". Returns what is behind it, or NULL. */
static const char *read_offset(const struct operand *o, const char *text, bool *ret_symbolic,
			       s64 *ret)
{
	size_t n = strcspn(text, "+-(");
	char name[256];
	u64 svma;
	s64 number;

	*ret = 0;
	*ret_symbolic = false;
	if (n && !isdigit((u8)*text)) {
		if (n >= sizeof(name) || !o->symbol)
			return NULL;
		snprintf(name, sizeof(name), "%.*s", (int)n, text);
		if (o->symbol(o->arg, name, &svma) < 0)
			return NULL;
		*ret = (s64)svma;
		*ret_symbolic = true;
		text += n;
	}
	while (*text && *text != '(') {
		text = read_number(text, &number);
		if (!text || __builtin_add_overflow(*ret, number, ret))
			return NULL;
	}
	return text;
}

/* "(%rbx)", "(%rbx,%rcx,8)", "(,%rcx,8)": the registers of an address. */
static bool x86_address(const char *text, bool *ret_has_base, struct trace_usdt_argument *a)
{
	char base[8] = "", index[8] = "", end;
	int n, scale = 1;

	a->kind = 2;
	if (sscanf(text, "(%%%7[a-z0-9]%c%n", base, &end, &n) == 2 && end == ')' && !text[n]) {
		*ret_has_base = true;
		return x86_register(base, strlen(base), &a->base);
	}
	if (sscanf(text, "(%%%7[a-z0-9],%%%7[a-z0-9],%d%c%n", base, index, &scale, &end, &n) != 4 &&
	    sscanf(text, "(%%%7[a-z0-9],%%%7[a-z0-9]%c%n", base, index, &end, &n) != 3)
		return false;
	a->kind = 3;
	a->scale = (u8)scale;
	*ret_has_base = true;
	return end == ')' && !text[n] && (scale == 1 || scale == 2 || scale == 4 || scale == 8) &&
	       x86_register(base, strlen(base), &a->base) &&
	       x86_register(index, strlen(index), &a->index);
}

static bool x86_operand(const struct operand *o, struct trace_usdt_argument *a)
{
	const char *text = o->text;
	bool symbolic, has_base = false;

	if (*text == '$') {
		text = read_offset(o, text + 1, &symbolic, &a->offset);
		a->kind = 0;
		return text && !*text && !symbolic;
	}
	if (*text == '%') {
		a->kind = 1;
		return x86_register(text + 1, strlen(text + 1), &a->base);
	}
	text = read_offset(o, text, &symbolic, &a->offset);
	if (!text || *text != '(' || !x86_address(text, &has_base, a))
		return false;
	/* A symbol is as far from the probe as in the file; rip is the probe's address. */
	if (a->base == X86_IP) {
		a->offset -= (s64)o->probe->svma;
		return symbolic && a->kind == 2;
	}
	return !symbolic;
}

static bool arm64_operand(const struct operand *o, struct trace_usdt_argument *a)
{
	const char *text = o->text, *end;
	char base[8] = "", index[8] = "", last;
	long long offset = 0;
	int n = 0;

	if (arm64_register(text, strlen(text), &a->base)) {
		a->kind = 1;
		return true;
	}
	if (strcmp(text, "xzr") == 0 || strcmp(text, "wzr") == 0) {
		a->kind = 0;
		return true;
	}
	if (*text != '[') {
		a->kind = 0;
		end = read_number(text + (*text == '#'), &a->offset);
		return end && !*end;
	}
	a->kind = 2;
	if ((sscanf(text, "[%7[a-z0-9]%c%n", base, &last, &n) == 2 && last == ']' && !text[n]) ||
	    (sscanf(text, "[%7[a-z0-9], %lli%c%n", base, &offset, &last, &n) == 3 && last == ']' &&
	     !text[n]) ||
	    (sscanf(text, "[%7[a-z0-9], #%lli%c%n", base, &offset, &last, &n) == 3 && last == ']' &&
	     !text[n])) {
		a->offset = offset;
		return arm64_register(base, strlen(base), &a->base);
	}
	a->kind = 3;
	a->scale = 1;
	return sscanf(text, "[%7[a-z0-9], %7[a-z0-9]%c%n", base, index, &last, &n) == 3 &&
	       last == ']' && !text[n] && arm64_register(base, strlen(base), &a->base) &&
	       arm64_register(index, strlen(index), &a->index);
}

/*
 * Copies the next operand of the list. Spaces separate operands, but not inside of brackets.
 * Returns what is behind it, NULL at the end or if it is too long.
 */
static const char *next_operand(const char *list, char *ret, size_t max)
{
	size_t n = 0;
	bool inside = false;

	list += strspn(list, " ");
	if (!*list)
		return NULL;
	for (; *list && (inside || *list != ' '); list++) {
		inside = *list == '[' || (inside && *list != ']');
		if (n + 1 == max)
			return NULL;
		ret[n++] = *list;
	}
	ret[n] = '\0';
	return list;
}

/* "-4@": the size, 8 bytes if there is none. Returns what is behind it, or NULL. */
static const char *read_size(const char *text, s8 *ret)
{
	const char *at = strchr(text, '@'), *end;
	s64 bytes;

	*ret = 8;
	if (!at)
		return text;
	end = read_number(text, &bytes);
	if (end != at || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != -1 &&
			  bytes != -2 && bytes != -4 && bytes != -8))
		return NULL;
	*ret = (s8)bytes;
	return at + 1;
}

u32 usdt_arguments(const struct usdt_probe *p, u16 machine, usdt_symbol_fn *symbol, void *arg,
		   struct trace_usdt_argument ret[USDT_MAX_ARGUMENTS])
{
	const char *list = p->arguments;
	char text[320];
	u32 n = 0;

	while (n < USDT_MAX_ARGUMENTS && (list = next_operand(list, text, sizeof(text)))) {
		struct trace_usdt_argument a = {};
		struct operand o = {read_size(text, &a.bytes), p, symbol, arg};
		bool known = o.text &&
			     (machine == EM_AARCH64 ? arm64_operand(&o, &a) : x86_operand(&o, &a));

		if (!known)
			a = (struct trace_usdt_argument){.bytes = 8, .kind = USDT_UNREADABLE};
		ret[n++] = a;
	}
	return n;
}
