/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine code made at run time, with frame pointers, named by /tmp/perf-PID.map: jit_outer calls
 * jit_inner, which calls back into C; jit_loop uses the CPU itself. x86-64 only (exit status 77).
 */
#include "truth.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

NOINLINE void callback(void)
{
	TRUTH();
	spin(300000);
}

#ifdef __x86_64__
/* push %rbp; mov %rsp,%rbp; mov $target,%rax; call *%rax; pop %rbp; ret */
static size_t emit_call(unsigned char *p, void *target)
{
	static const unsigned char head[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8};
	static const unsigned char tail[] = {0xff, 0xd0, 0x5d, 0xc3};

	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), &target, 8);
	memcpy(p + sizeof(head) + 8, tail, sizeof(tail));
	return sizeof(head) + 8 + sizeof(tail);
}

/* push %rbp; mov %rsp,%rbp; mov $n,%ecx; 1: dec %ecx; jnz 1b; pop %rbp; ret */
static size_t emit_loop(unsigned char *p, unsigned n)
{
	static const unsigned char head[] = {0x55, 0x48, 0x89, 0xe5, 0xb9};
	static const unsigned char tail[] = {0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};

	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), &n, 4);
	memcpy(p + sizeof(head) + 4, tail, sizeof(tail));
	return sizeof(head) + 4 + sizeof(tail);
}

NOINLINE void run(void (*outer)(void), void (*loop)(void))
{
	TRUTH();
	struct truth_node *a = truth_enter("jit_outer"), *b = truth_enter("jit_inner");

	outer();
	truth_leave(&b);
	truth_leave(&a);
	truth_knows("jit_loop");
	loop();
}

int main(int argc, char **argv)
{
	unsigned char *code =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *outer = code + 256, *loop = code + 512;
	size_t n_inner, n_outer, n_loop;
	char path[64];
	FILE *f;

	truth_init(argc, argv);
	TRUTH();
	if (code == MAP_FAILED)
		return 1;
	n_inner = emit_call(code, (void *)callback);
	n_outer = emit_call(outer, code);
	n_loop = emit_loop(loop, 500000);
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	f = fopen(path, "w");
	if (!f)
		return 1;
	fprintf(f, "%lx %zx jit_inner\n%lx %zx jit_outer\n%lx %zx jit_loop\n", (long)code, n_inner,
		(long)outer, n_outer, (long)loop, n_loop);
	fclose(f);
	while (truth_running())
		run((void (*)(void))outer, (void (*)(void))loop);
	truth_finish();
	return 0; /* the map stays, because culprit reads it at the end; the test removes it */
}
#else
int main(void)
{
	return 77;
}
#endif
