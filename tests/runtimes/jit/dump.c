/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes two functions, describes them in a jitdump (jit-PID.dump in the given directory), and runs
 * them for a second of CPU time: jit_outer, line 7 of made.src, calls jit_leaf, which loops in line
 * 42. Before, the memory had another function, and only the time of a sample tells which one ran.
 * x86-64 only.
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LOAD, MOVE, DEBUG };

static FILE *out;

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void u32(uint32_t v)
{
	fwrite(&v, sizeof(v), 1, out);
}

static void u64(uint64_t v)
{
	fwrite(&v, sizeof(v), 1, out);
}

static void text(const char *s)
{
	fwrite(s, strlen(s) + 1, 1, out);
}

static void prefix(uint32_t id, size_t body)
{
	u32(id);
	u32((uint32_t)(16 + body));
	u64(now(CLOCK_MONOTONIC));
}

static void tell(const char *name, int line, const void *code, size_t n)
{
	static uint64_t index;

	prefix(DEBUG, 16 + 16 + sizeof("made.src"));
	u64((uint64_t)code);
	u64(1);
	u64((uint64_t)code);
	u32((uint32_t)line);
	u32(0);
	text("made.src");
	prefix(LOAD, 40 + strlen(name) + 1 + n);
	u32((uint32_t)getpid());
	u32((uint32_t)getpid());
	u64((uint64_t)code);
	u64((uint64_t)code);
	u64(n);
	u64(index++);
	text(name);
	fwrite(code, n, 1, out);
	fflush(out);
}

/* push %rbp; mov %rsp,%rbp; mov $target,%rax; call *%rax; pop %rbp; ret */
static size_t emit_call(unsigned char *p, const void *target)
{
	static const unsigned char head[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8};
	static const unsigned char tail[] = {0xff, 0xd0, 0x5d, 0xc3};

	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), &target, 8);
	memcpy(p + sizeof(head) + 8, tail, sizeof(tail));
	return sizeof(head) + 8 + sizeof(tail);
}

/* push %rbp; mov %rsp,%rbp; mov $n,%ecx; 1: dec %ecx; jnz 1b; pop %rbp; ret */
static size_t emit_loop(unsigned char *p, uint32_t n)
{
	static const unsigned char head[] = {0x55, 0x48, 0x89, 0xe5, 0xb9};
	static const unsigned char tail[] = {0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};

	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), &n, 4);
	memcpy(p + sizeof(head) + 4, tail, sizeof(tail));
	return sizeof(head) + 4 + sizeof(tail);
}

static void begin(const char *folder)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/jit-%d.dump", folder, getpid());
	out = fopen(path, "w+");
	u32(0x4A695444);
	u32(1);
	u32(40);
	u32(EM_X86_64);
	u32(0);
	u32((uint32_t)getpid());
	u64(now(CLOCK_MONOTONIC));
	u64(0);
	fflush(out);
	/* This mapping leads profilers to the file. */
	(void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(out), 0);
}

int main(int argc, char **argv)
{
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*outer)(void) = (void (*)(void))(code + 256);
	uint64_t end = 1000000000;
	size_t n;

	begin(argc > 1 ? argv[1] : ".");
	tell("jit_before", 1, code, 512);
	n = emit_loop(code, 1000000);
	tell("jit_leaf", 42, code, n);
	n = emit_call(code + 256, code);
	tell("jit_outer", 7, code + 256, n);
	while (now(CLOCK_PROCESS_CPUTIME_ID) < end)
		outer();
	return 0;
}
