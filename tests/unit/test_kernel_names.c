/* SPDX-License-Identifier: Apache-2.0 */
/* Names of modules and BPF programs that are loaded and unloaded between and within batches. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/symbolize/kernel.h"

#define KERNEL                                                                                     \
	"ffffffff81000000 T first\n"                                                               \
	"ffffffff81001000 T second\n"                                                              \
	"ffffffff81002000 D data\n"
#define EXT4 "ffffffffc0000000 t ext4_a\t[ext4]\nffffffffc0000040 t ext4_b\t[ext4]\n"
#define EXT4_AT "ext4 999424 1 - Live 0xffffffffc0000000\n"
#define XFS "ffffffffc0000000 t xfs_a\t[xfs]\n"
#define XFS_AT "xfs 999424 0 - Live 0xffffffffc0000000\n"
#define PROGRAM(name) "ffffffffc0100000 t bpf_prog_" name "\t[bpf]\n"

static int kallsyms_fd, modules_fd;
static char kallsyms_path[32], modules_path[32];
static u64 programs;
static int programs_error;

static int hash_of_programs(u64 *ret_hash)
{
	*ret_hash = programs;
	return programs_error;
}

static void put(int fd, const char *text)
{
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static struct kernel_names *begin(const char *kallsyms, const char *modules, bool read_always)
{
	struct kernel_names_options o = {kallsyms_path, modules_path, hash_of_programs,
					 read_always};
	struct kernel_names *k = NULL;

	kallsyms_fd = memfd_create("kallsyms", MFD_CLOEXEC);
	modules_fd = memfd_create("modules", MFD_CLOEXEC);
	snprintf(kallsyms_path, sizeof(kallsyms_path), "/proc/self/fd/%d", kallsyms_fd);
	snprintf(modules_path, sizeof(modules_path), "/proc/self/fd/%d", modules_fd);
	put(kallsyms_fd, kallsyms);
	put(modules_fd, modules);
	programs = 1;
	programs_error = 0;
	cr_assert_eq(kernel_names_create(&o, &k), 0);
	kernel_names_begin(k);
	return k;
}

static const char *name_of(struct kernel_names *k, u64 address)
{
	const char *name, *module;
	static char text[256];

	if (kernel_names_lookup(k, address, &name, &module) < 0)
		return "-";
	snprintf(text, sizeof(text), "%s[%s]", name, module);
	return text;
}

Test(kernel_names, what_is_loaded_later_is_named)
{
	_cleanup_kernel_names_ struct kernel_names *k = begin(KERNEL, "", true);

	cr_expect_str_eq(name_of(k, 0xffffffff81000004), "first[]");
	cr_expect_str_eq(name_of(k, 0xffffffff81002004), "-");
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "-");
	put(kallsyms_fd, KERNEL EXT4);
	put(modules_fd, EXT4_AT);
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0000044), "ext4_b[ext4]");
	put(kallsyms_fd, KERNEL EXT4 PROGRAM("12_x"));
	programs = 2;
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "ext4_a[ext4]");
	cr_expect_str_eq(name_of(k, 0xffffffff81001004), "second[]");
}

/* Code that was unloaded during a batch keeps its name for the samples from before. */
Test(kernel_names, what_was_unloaded_during_the_batch_keeps_its_name_for_it)
{
	_cleanup_kernel_names_ struct kernel_names *k = begin(KERNEL PROGRAM("12_x"), "", true);

	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	put(kallsyms_fd, KERNEL);
	programs = 2;
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "-");
}

Test(kernel_names, an_address_that_became_another_program_has_no_name_in_that_batch)
{
	_cleanup_kernel_names_ struct kernel_names *k =
		begin(KERNEL EXT4 PROGRAM("12_x"), EXT4_AT, true);

	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	put(kallsyms_fd, KERNEL XFS PROGRAM("34_y"));
	put(modules_fd, XFS_AT);
	programs = 2;
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "-");
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "-");
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_34_y[bpf]");
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "xfs_a[xfs]");
}

/* Reading this kallsyms takes so long that no second reading is due. */
Test(kernel_names, too_early_to_read_again_nothing_stale_is_said)
{
	static char big[4 << 20];
	_cleanup_kernel_names_ struct kernel_names *k = NULL;
	size_t n = 0;

	for (u32 i = 0; n < sizeof(big) - 200; i++)
		n += (size_t)snprintf(big + n, 100, "%llx T f%u\n", 0xffffffff81000000ULL + i * 16,
				      i);
	snprintf(big + n, sizeof(big) - n, "%s", EXT4 PROGRAM("12_x"));
	k = begin(big, EXT4_AT, false);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	put(kallsyms_fd, KERNEL EXT4 PROGRAM("34_y"));
	programs = 2;
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "-");
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "ext4_a[ext4]",
			 "its module is where it was");
	put(kallsyms_fd, KERNEL XFS);
	put(modules_fd, XFS_AT);
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0000004), "-");
}

/* One reading at the start serves both; as long as nothing is loaded, there is no other. */
Test(kernel_names, what_was_loaded_at_the_start_takes_no_reading)
{
	_cleanup_kernel_names_ struct kernel_names *k =
		begin(KERNEL EXT4 PROGRAM("12_x"), EXT4_AT, true);

	put(kallsyms_fd, "damaged");
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0000044), "ext4_b[ext4]");
}

/* Without CAP_SYS_ADMIN the list of BPF programs is not available. */
Test(kernel_names, programs_that_cannot_be_listed_are_read_each_time)
{
	_cleanup_kernel_names_ struct kernel_names *k = begin(KERNEL PROGRAM("12_x"), "", true);

	programs_error = -EPERM;
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_12_x[bpf]");
	put(kallsyms_fd, KERNEL PROGRAM("34_y"));
	kernel_names_begin(k);
	cr_expect_str_eq(name_of(k, 0xffffffffc0100010), "bpf_prog_34_y[bpf]");
}

Test(kernel_names, hidden_addresses_are_told)
{
	struct kernel_names_options o = {kallsyms_path, modules_path, hash_of_programs, true};
	struct kernel_names *k = begin(KERNEL, "", true), *other = NULL;

	put(kallsyms_fd, "0000000000000000 T first\n");
	cr_expect_eq(kernel_names_create(&o, &other), -EPERM);
	kernel_names_destroy(k);
}
