/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of tracepoints: their places in the record, and the texts of their values. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "agent/context/internal.h"
#include "agent/sampler/fields.h"

/* Formats that Linux 6.18 prints. */
static const char syscall_format[] =
	"name: sys_enter_openat\nID: 782\nformat:\n"
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
	"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
	"\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n"
	"\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n"
	"\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n"
	"\tfield:const char *const * argv;\toffset:32;\tsize:8;\tsigned:0;\n"
	"\tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n\n"
	"print fmt: \"dfd: 0x%08lx\", ((unsigned long)(REC->dfd))\n";
static const char event_format[] =
	"\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n"
	"\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n"
	"\tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n"
	"\tfield:__rel_loc char[] name;\toffset:64;\tsize:4;\tsigned:0;\n"
	"\tfield:u8 fsid[16];\toffset:68;\tsize:16;\tsigned:0;\n"
	"\tfield:__data_loc unsigned long[] args;\toffset:84;\tsize:4;\tsigned:0;\n"
	"\tfield:const char * driver;\toffset:88;\tsize:8;\tsigned:0;\n"
	"\tfield:void * skb;\toffset:96;\tsize:8;\tsigned:0;\n"
	"\tfield:s16 level;\toffset:104;\tsize:2;\tsigned:1;\n";

static struct source_field found(const char *format, const char *name, bool is_syscall)
{
	struct source_field f = {};
	struct diag diag = {};

	cr_assert_eq(field_find(format, name, is_syscall, &f, &diag), 0, "%s: %s", name, diag.text);
	return f;
}

static void is_at(const struct source_field *f, enum field_kind kind, u16 offset, u16 size)
{
	cr_expect_eq(f->where.kind, kind, "%s", f->name);
	cr_expect_eq(f->where.offset, offset, "%s", f->name);
	cr_expect_eq(f->where.size, size, "%s", f->name);
}

Test(fields, each_is_read_as_it_is_declared)
{
	struct source_field f = found(event_format, "dev", false);

	is_at(&f, FIELD_NUMBER, 8, 4);
	f = found(event_format, "rwbs", false);
	is_at(&f, FIELD_TEXT, 34, 10);
	f = found(event_format, "cmd", false);
	is_at(&f, FIELD_TEXT_AT, 60, 4);
	f = found(event_format, "name", false);
	is_at(&f, FIELD_TEXT_BEHIND, 64, 4);
	f = found(event_format, "driver", false);
	is_at(&f, FIELD_TEXT_OF_KERNEL, 88, 8);
	f = found(event_format, "skb", false);
	is_at(&f, FIELD_NUMBER, 96, 8);
	cr_expect(f.is_address);
	f = found(event_format, "level", false);
	is_at(&f, FIELD_NUMBER, 104, 2);
	cr_expect(f.is_signed);
}

Test(fields, arguments_of_system_calls_are_the_process_s)
{
	struct source_field f = found(syscall_format, "filename", true);

	is_at(&f, FIELD_TEXT_OF_USER, 24, 8);
	f = found(syscall_format, "dfd", true);
	is_at(&f, FIELD_NUMBER, 16, 4);
	cr_expect(f.is_signed);
	f = found(syscall_format, "mode", true);
	is_at(&f, FIELD_NUMBER, 40, 8);
}

Test(fields, what_cannot_be_an_attribute_is_told)
{
	struct source_field f;
	struct diag diag = {}, other = {};

	cr_expect_eq(field_find(event_format, "fsid", false, &f, &other), -ENOTSUP);
	cr_expect(strstr(other.text, "u8 fsid[16]"), "%s", other.text);
	cr_expect_eq(field_find(event_format, "args", false, &f, &other), -ENOTSUP);
	cr_expect_eq(field_find(syscall_format, "common_pid", true, &f, &diag), -ENOENT);
	cr_expect(strstr(diag.text, "it has __syscall_nr, dfd, filename, argv, mode"), "%s",
		  diag.text);
	cr_expect_eq(field_find("", "x", false, &f, &other), -ENOENT);
	cr_expect_eq(field_find("\tfield:int x;\toffset", "x", false, &f, &other), -ENOENT);
}

/* Makes labels of a BPF record's fields. */
static u32 labels_of(const struct source_field *fields, u32 n_fields, const void *bytes, u32 n,
		     struct context_label ret[CONTEXT_MAX_ATTRIBUTES], struct str *texts)
{
	struct record_attributes head = {.form = ATTRIBUTES_NAMED};
	struct attribute_bounds bounds = {};
	struct attribute_share share = {};
	u8 named[FIELDS_MAX_BYTES];
	bool partial;
	u32 n_labels;

	head.n = fields_to_named(fields, n_fields, bytes, n, named);
	attribute_bounds_begin(&bounds, 1);
	n_labels = attributes_decode(&head, named, NULL, &bounds, &share, texts, ret, &partial);
	attribute_bounds_deinit(&bounds);
	return n_labels;
}

Test(fields, values_become_texts)
{
	static const u8 record[] = "\x00\x04\xfe\xff\xff\xff"
				   "\x01\x08\x10\x20\0\0\0\0\0\0"
				   "\x02\x82/a"
				   "\x03\x01\xff"
				   "\x02\x80\x00\x80";
	struct source_field fields[] = {
		{"ret", true, false, {.size = 4, .kind = FIELD_NUMBER}},
		{"skb", false, true, {.size = 8, .kind = FIELD_NUMBER}},
		{"filename", false, false, {.kind = FIELD_TEXT_OF_USER}},
		{"flag", false, false, {.size = 1, .kind = FIELD_NUMBER}},
	};
	struct context_label labels[CONTEXT_MAX_ATTRIBUTES];
	struct str texts = {};

	cr_assert_eq(labels_of(fields, 4, record, sizeof(record) - 1, labels, &texts), 6);
	cr_expect_str_eq(labels[0].name, "event.ret");
	cr_expect_str_eq(labels[0].value, "-2");
	cr_expect_str_eq(labels[1].value, "0x2010");
	cr_expect_str_eq(labels[2].name, "event.filename");
	cr_expect_str_eq(labels[2].value, "/a…");
	cr_expect_str_eq(labels[3].value, "255");
	cr_expect_str_eq(labels[4].value, "[not readable]");
	cr_expect_str_eq(labels[5].name, "event.ret");
	cr_expect_str_eq(labels[5].value, "[not readable]");
	str_deinit(&texts);
}

Test(fields, what_breaks_off_ends_the_set)
{
	struct source_field fields[] = {{"ret", true, false, {.size = 4, .kind = FIELD_NUMBER}}};
	u8 named[FIELDS_MAX_BYTES];

	cr_expect_eq(fields_to_named(fields, 1, (const u8 *)"\x00\x04\xfe\xff", 4, named), 0);
	cr_expect_eq(fields_to_named(fields, 1, (const u8 *)"\x00\x02\xfe\xff", 4, named), 0);
	cr_expect_eq(fields_to_named(fields, 1, (const u8 *)"\x01\x00", 2, named), 0);
}
