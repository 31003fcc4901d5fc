/* SPDX-License-Identifier: Apache-2.0 */
/* Where probes of allocators are inserted: instructions at the begin of their functions. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "agent/alloc/prologue.h"
#include "base/types.h"

#define PLACE(frees, code) alloc_emulated_place((const u8 *)(code), sizeof(code) - 1, frees)

/* As compilers begin the functions of Debian 12's allocators. */
Test(alloc, known_functions)
{
	/* push %r12 */
	cr_assert_eq(PLACE(false, "\x41\x54\x55\x53"), 0);
	/* glibc's free(): test %rdi,%rdi; je */
	cr_assert_eq(PLACE(true, "\x48\x85\xff\x0f\x84\xbf\x00\x00\x00\x55"), 3);
	/* for CET: endbr64; push %rbp */
	cr_assert_eq(PLACE(false, "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5"), 4);
	/* glibc's posix_memalign(): cmpb $0,0x140201(%rip); push %r12 */
	cr_assert_eq(PLACE(false, "\x80\x3d\x01\x02\x14\x00\x00\x41\x54\x49"), 7);
	/* jemalloc's malloc(): cmp $0x1000,%rdi; ja */
	cr_assert_eq(PLACE(false, "\x48\x81\xff\x00\x10\x00\x00\x0f\x87\x93\x00\x00\x00"), 7);
	/* jemalloc's free() */
	cr_assert_eq(PLACE(true, "\x48\x89\xf8"				/* mov %rdi,%rax */
				 "\x48\x8b\x15\x0e\x53\x0a\x00"		/* mov …(%rip),%rdx */
				 "\x48\x89\xf9\x48\xc1\xe8\x1a"		/* mov; shr $0x1a,%rax */
				 "\x48\x81\xe1\x00\x00\x00\xc0"		/* and $…,%rcx */
				 "\x25\xf0\x00\x00\x00"			/* and $0xf0,%eax */
				 "\x64\x48\x03\x04\x25\x00\x00\x00\x00" /* add %fs:0,%rax */
				 "\x48\x01\xd0"				/* add %rdx,%rax */
				 "\x48\x3b\x88\xb0\x01\x00\x00"		/* cmp 0x1b0(%rax),%rcx */
				 "\x0f\x85\x8a\x00\x00\x00"),		/* jne */
		     0x30);
	/* mov %rdi,%rbx; mov $8,%r8d; movzbl (%rdx,%rax,1),%ecx; lea 7(%rdi),%rax; nop */
	cr_assert_eq(PLACE(false,
			   "\x48\x89\xfb\x41\xb8\x08\x00\x00\x00\x0f\xb6\x0c\x02\x48\x8d\x47\x07"
			   "\x90\x90"),
		     17);
}

/* The probe stays at the begin where an instruction changes what the probe reads, or is unknown. */
Test(alloc, other_functions)
{
	/* sub $8,%rsp; push %rbx */
	cr_assert_eq(PLACE(false, "\x48\x83\xec\x08\x53\x53"), -ENOENT);
	/* cmp $8,%rsp is none of these */
	cr_assert_eq(PLACE(false, "\x48\x83\xfc\x08\x53\x53"), 4);
	/* mov %rax,%rdi; push */
	cr_assert_eq(PLACE(true, "\x48\x89\xc7\x53\x53"), -ENOENT);
	/* mov %rax,%r15, whose number differs by REX.B only; push */
	cr_assert_eq(PLACE(true, "\x49\x89\xc7\x53\x53"), 3);
	/* mov %rdi,%rsi: the second argument, which free() has not */
	cr_assert_eq(PLACE(true, "\x48\x89\xfe\x53\x53"), 3);
	cr_assert_eq(PLACE(false, "\x48\x89\xfe\x53\x53"), -ENOENT);
	/* mov 8(%rdi),%rdx */
	cr_assert_eq(PLACE(true, "\x48\x8b\x57\x08\x53\x53"), 4);
	cr_assert_eq(PLACE(false, "\x48\x8b\x57\x08\x53\x53"), -ENOENT);
	/* mov $1,%edx */
	cr_assert_eq(PLACE(false, "\xba\x01\x00\x00\x00\x53\x53"), -ENOENT);
	/* mov %rax,(%rdi) writes to memory; ret, call, jmp and int3 leave */
	cr_assert_eq(PLACE(true, "\x48\x89\x07\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xc3\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xe8\x00\x00\x00\x00\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xeb\x00\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xcc\x53\x53"), -ENOENT);
	/* pop %rsp; not of memory; lock: unknown */
	cr_assert_eq(PLACE(true, "\x5c\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xf7\x17\x53\x53"), -ENOENT);
	cr_assert_eq(PLACE(true, "\xf0\x48\x01\x07\x53\x53"), -ENOENT);
}

/* Code that is cut off anywhere has no place behind the cut. */
Test(alloc, cut_off)
{
	static const char code[] =
		"\x48\x85\xff\x80\x3d\x01\x02\x14\x00\x00\x64\x48\x03\x04\x25\x00"
		"\x00\x00\x00\x41\x54";

	for (size_t n = 0; n < sizeof(code) - 1; n++)
		cr_assert_eq(alloc_emulated_place((const u8 *)code, n, true), -ENOENT, "%zu", n);
	cr_assert_eq(alloc_emulated_place((const u8 *)code, sizeof(code) - 1, true), 19);
}
