/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/cost.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/str.h"

#define ROUNDS 7
#define CALLS 1000
#define PAGES 500
#define CACHE_FILE "trace-costs"
#define CACHE_VERSION 1
#define LEAST_NS 1ULL

/* ---- what is probed ---- */

/* A function whose first instruction the kernel emulates; it steps most others. */
#ifdef __x86_64__
asm(".text\n"
    ".globl tracer_cost_emulated\n"
    ".type tracer_cost_emulated, @function\n"
    "tracer_cost_emulated: push %rbp; xor %eax, %eax; pop %rbp; ret\n"
    ".size tracer_cost_emulated, . - tracer_cost_emulated\n");
#else
asm(".text\n"
    ".globl tracer_cost_emulated\n"
    ".type tracer_cost_emulated, @function\n"
    "tracer_cost_emulated: nop; mov x0, #0; ret\n"
    ".size tracer_cost_emulated, . - tracer_cost_emulated\n");
#endif
int tracer_cost_emulated(void);

static void call_emulated(void)
{
	for (u32 i = 0; i < CALLS; i++)
		(void)tracer_cost_emulated();
}

/* A system call, and a function of the C library whose first instruction is a move. */
static void call_getppid(void)
{
	for (u32 i = 0; i < CALLS; i++)
		(void)getppid();
}

static void read_nothing(void)
{
	_cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char byte;

	for (u32 i = 0; fd >= 0 && i < CALLS; i++)
		(void)!read(fd, &byte, 1);
}

/* Touches new pages. */
static void fault(void)
{
	size_t page = (size_t)getpagesize(), n = PAGES * page;
	u8 *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return;
	(void)madvise(at, n, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < n; i += page)
		*(volatile u8 *)(at + i) = 1;
	munmap(at, n);
}

#define EMULATED "/proc/self/exe:tracer_cost_emulated"

static const struct kind {
	const char *name;
	const char *point;
	void (*run)(void); /* causes n events */
	u32 n;
	u64 guess_ns;
	const char *cheaper; /* or NULL: a point that costs less, of call_emulated() */
	u64 cheaper_guess_ns;
} kinds[TRACER_KIND_N] = {
	[TRACER_TRACEPOINT] = {"tracepoint", "tracepoint:syscalls:sys_enter_getppid", call_getppid,
			       CALLS, 100},
	[TRACER_RAWTRACEPOINT] = {"rawtracepoint", "rawtracepoint:sys_enter", call_getppid, CALLS,
				  50},
	[TRACER_KPROBE] = {"kprobe", "kprobe:vfs_read", read_nothing, CALLS, 200},
	[TRACER_KRETPROBE] = {"kretprobe", "kretprobe:vfs_read", read_nothing, CALLS, 400},
	[TRACER_FENTRY] = {"fentry", "fentry:vfs_read", read_nothing, CALLS, 50},
	[TRACER_FEXIT] = {"fexit", "fexit:vfs_read", read_nothing, CALLS, 100},
	[TRACER_UPROBE] = {"uprobe", "uprobe:libc:getppid", call_getppid, CALLS, 3000,
			   "uprobe:" EMULATED, 1000},
	[TRACER_URETPROBE] = {"uretprobe", "uretprobe:libc:getppid", call_getppid, CALLS, 4000,
			      "uretprobe:" EMULATED, 2000},
	[TRACER_SOFTWARE] = {"software", "software:page-faults:1", fault, PAGES, 500},
};

const char *tracer_kind_name(enum tracer_kind kind)
{
	return kinds[kind].name;
}

enum tracer_kind tracer_kind_of(const char *provider)
{
	static const struct {
		const char *provider;
		enum tracer_kind kind;
	} others[] = {
		{"usdt", TRACER_UPROBE},       {"kfunc", TRACER_FENTRY},
		{"kretfunc", TRACER_FEXIT},    {"profile", TRACER_SOFTWARE},
		{"hardware", TRACER_SOFTWARE}, {"watchpoint", TRACER_SOFTWARE},
	};

	for (u32 i = 0; i < TRACER_KIND_N; i++)
		if (strcmp(kinds[i].name, provider) == 0)
			return (enum tracer_kind)i;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (strcmp(others[i].provider, provider) == 0)
			return others[i].kind;
	return TRACER_KIND_N;
}

#ifdef __x86_64__
/* Pushes, nops, jumps and calls, as arch/x86/kernel/uprobes.c has it. */
bool tracer_is_emulated(const u8 code[4])
{
	switch (code[0]) {
	case 0x50 ... 0x57: /* push */
	case 0x70 ... 0x7f: /* jcc of 8 bits */
	case 0x90:
	case 0xe8:
	case 0xe9:
	case 0xeb:
		return true;
	case 0x41: /* push of r8 to r15 */
		return code[1] >= 0x50 && code[1] <= 0x57;
	case 0x0f: /* jcc of 32 bits */
		return code[1] >= 0x80 && code[1] <= 0x8f;
	default:
		return false;
	}
}
#else
/* As arm_probe_decode_insn() of arch/arm64/kernel/probes/decode-insn.c: nops and branches. */
bool tracer_is_emulated(const u8 code[4])
{
	u32 word = (u32)code[0] | (u32)code[1] << 8 | (u32)code[2] << 16 | (u32)code[3] << 24;

	return word == 0xd503201f || (word & 0x7c000000) == 0x14000000 ||
	       (word & 0xff000010) == 0x54000000 || (word & 0x7e000000) == 0x34000000;
}
#endif

void tracer_costs_guess(struct tracer_cost ret[TRACER_KIND_N])
{
	for (u32 i = 0; i < TRACER_KIND_N; i++)
		ret[i] = (struct tracer_cost){.ns = kinds[i].guess_ns,
					      .least_ns = kinds[i].cheaper_guess_ns};
}

/* ---- measuring ---- */

static int compare(const void *pa, const void *pb)
{
	const u64 *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

/* Nanoseconds of an event with what causes it: the median of several rounds. */
static u64 time_event(void (*run)(void), u32 n)
{
	u64 rounds[ROUNDS];

	run();
	for (u32 i = 0; i < ROUNDS; i++) {
		u64 begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		run();
		rounds[i] = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / n;
	}
	qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
	return rounds[ROUNDS / 2];
}

/* What an event costs at which a script has an empty action. */
static int measure_point(const char *point, void (*run)(void), u32 n, u64 *ret_ns, struct diag *d)
{
	_cleanup_fclose_ FILE *out = fopen("/dev/null", "we");
	_cleanup_str_ struct str text = {};
	struct trace_parameters none = {};
	struct tracer_session_options o = {.file = "",
					   .parameters = &none,
					   .pid = (u32)getpid(),
					   .out = out,
					   .no_warnings = true,
					   .no_maps = true};
	u64 plain = time_event(run, n), probed;
	struct tracer_session *s = NULL;
	int r;

	str_printf(&text, "%s { }", point);
	o.text = str_get(&text);
	o.n = text.n;
	r = tracer_session_create(&o, d, &s);
	if (r == 0)
		r = tracer_session_load(s, NULL, d);
	if (r == 0)
		r = tracer_session_start(s, d);
	if (r == 0) {
		probed = time_event(run, n);
		*ret_ns = probed > plain + LEAST_NS ? probed - plain : LEAST_NS;
	}
	tracer_session_destroy(s);
	return r;
}

/* The message without the place in the script, which is ours. */
static const char *reason(const struct diag *d, int error)
{
	const char *colon = strstr(d->text, ": ");

	if (!d->text[0])
		return strerror(-error);
	return d->text[0] >= '0' && d->text[0] <= '9' && colon ? colon + 2 : d->text;
}

static void measure(const struct kind *k, struct tracer_cost *ret)
{
	struct diag d = {}, ignored = {};
	int r;

	*ret = (struct tracer_cost){};
	r = measure_point(k->point, k->run, k->n, &ret->ns, &d);
	if (r < 0)
		snprintf(ret->refused, sizeof(ret->refused), "%.*s",
			 (int)strcspn(reason(&d, r), "\n"), reason(&d, r));
	/* A program without symbols has no such function. */
	else if (k->cheaper)
		(void)measure_point(k->cheaper, call_emulated, CALLS, &ret->least_ns, &ignored);
}

/* ---- the cache: "VERSION RELEASE\n", then a line "NAME NS LEAST REASON" for each kind ---- */

static bool path_of(const char *cache_dir, char *ret, size_t n)
{
	if (!cache_dir)
		return false;
	snprintf(ret, n, "%s/" CACHE_FILE, cache_dir);
	return true;
}

static void head_of(struct str *out)
{
	struct utsname name = {};

	(void)uname(&name);
	str_printf(out, "%d %s %s\n", CACHE_VERSION, name.release, name.version);
}

static void write_costs(const char *cache_dir, const struct tracer_cost costs[TRACER_KIND_N])
{
	_cleanup_str_ struct str text = {};
	char path[PATH_MAX];

	if (!path_of(cache_dir, path, sizeof(path)))
		return;
	(void)mkdir(cache_dir, 0755);
	head_of(&text);
	for (u32 i = 0; i < TRACER_KIND_N; i++)
		str_printf(&text, "%s %llu %llu %s\n", kinds[i].name, costs[i].ns,
			   costs[i].least_ns, costs[i].refused);
	if (!text.failed)
		(void)io_replace(path, text.data, text.n);
}

int tracer_costs_read(const char *cache_dir, struct tracer_cost ret[TRACER_KIND_N])
{
	struct tracer_cost costs[TRACER_KIND_N] = {};
	_cleanup_str_ struct str text = {}, head = {};
	char path[PATH_MAX];
	const char *at;

	if (!path_of(cache_dir, path, sizeof(path)) || io_read(path, 1 << 16, &text) < 0)
		return -ENOENT;
	head_of(&head);
	if (!str_starts(str_get(&text), str_get(&head)))
		return -ENOENT;
	at = str_get(&text) + head.n;
	for (u32 i = 0; i < TRACER_KIND_N; i++) {
		size_t name = strlen(kinds[i].name), line = strcspn(at, "\n");
		char *end;

		if (strncmp(at, kinds[i].name, name) != 0 || at[name] != ' ' || !at[line])
			return -ENOENT;
		costs[i].ns = strtoull(at + name + 1, &end, 10);
		costs[i].least_ns = strtoull(end, &end, 10);
		if (*end != ' ')
			return -ENOENT;
		snprintf(costs[i].refused, sizeof(costs[i].refused), "%.*s",
			 (int)(at + line - (end + 1)), end + 1);
		at += line + 1;
	}
	memcpy(ret, costs, sizeof(costs));
	return 0;
}

void tracer_costs_measure(const char *cache_dir, struct tracer_cost ret[TRACER_KIND_N])
{
	for (u32 i = 0; i < TRACER_KIND_N; i++)
		measure(&kinds[i], &ret[i]);
	write_costs(cache_dir, ret);
}
