/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a JVM's answers, and files in its /tmp. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/attach/internal.h"
#include "base/cleanup.h"

static void assert_parsed(const char *answer, s32 expected, const char *text)
{
	s32 code = 77;
	size_t at = 99;

	cr_assert_eq(answer_parse(answer, strlen(answer), &code, &at), 0, "%s", answer);
	cr_assert_eq(code, expected);
	cr_assert_str_eq(answer + at, text);
}

Test(attach, answers)
{
	static const char *const none[] = {
		"", "\n", "0", "-", "-\n", "0 \n", "x0\n", "+1\n", "1234567890123\n", "0\r\n"};
	size_t at = 5;
	s32 code = 7;

	assert_parsed("0\nStarted", 0, "Started");
	assert_parsed("0\n", 0, "");
	assert_parsed("-1\nno", -1, "no");
	assert_parsed("101\n", 101, "");
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		cr_assert_eq(answer_parse(none[i], strlen(none[i]), &code, &at), -EPROTO, "'%s'",
			     none[i]);
	cr_assert(code == 7 && at == 5);
}

Test(attach, releases)
{
	cr_assert_eq(answer_release("OpenJDK 64-Bit Server VM version 17.0.15+6\nJDK 17.0.15\n"),
		     17);
	cr_assert_eq(answer_release("VM version 25.402-b06\nJDK 8.0_402\n"), 8);
	cr_assert_eq(answer_release("JDK 25.0.3"), 25);
	cr_assert_eq(answer_release("My JDK 25.0.3"), 0);
	cr_assert_eq(answer_release("JDK \n"), 0);
	cr_assert_eq(answer_release(""), 0);
	cr_assert_lt(answer_release("JDK 99999999999999999999"), 10000);
}

/* A recording of somebody else is never taken for ours. */
Test(attach, names_of_recordings)
{
	cr_assert(answer_has_recording("Recording 1: name=culprit (running)\n", "culprit"));
	cr_assert(
		answer_has_recording("Recording 1: name=a\nRecording 2: name=culprit", "culprit"));
	cr_assert(answer_has_recording("Recording: recording=1 name=\"culprit\" (running)",
				       "culprit"));
	cr_assert_not(answer_has_recording("Recording 1: name=culprit-two (running)", "culprit"));
	cr_assert_not(answer_has_recording("Recording 1: name=not-culprit (running)", "culprit"));
	cr_assert_not(answer_has_recording("Recording 1: name=\"culprit two\"", "culprit"));
	cr_assert_not(answer_has_recording("No available recordings. culprit", "culprit"));
	cr_assert_not(answer_has_recording("", "culprit"));
}

Test(attach, lines)
{
	char line[24];

	answer_line(" \n Could not\n\tstart \n", line, sizeof(line));
	cr_assert_str_eq(line, "Could not  start");
	answer_line("\n \n", line, sizeof(line));
	cr_assert_str_eq(line, "no text");
	answer_line("\x1b[2J\xff"
		    "a very long answer that has no end",
		    line, sizeof(line));
	cr_assert(strlen(line) < sizeof(line) && !strchr(line, '\x1b'));
}

static char folder[] = "/tmp/culprit-attach-XXXXXX";
static struct jvm jvm;

static void begin(void)
{
	cr_assert_not_null(mkdtemp(folder));
	jvm = (struct jvm){.uid = getuid(), .pidfd = -1};
	jvm.tmp = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(jvm.tmp, 0);
}

static void end(void)
{
	jvm_close(&jvm);
	cr_assert_eq(rmdir(folder), 0, "a file is left behind");
}

static void make(const char *name, size_t n)
{
	_cleanup_close_ int fd =
		openat(jvm.tmp, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)n), 0);
}

static int take(const char *name)
{
	u64 bytes = 0;
	int fd = -1, r = jvm_take_file(&jvm, name, &fd, &bytes);

	if (r == 0) {
		cr_assert_eq(bytes, 100);
		close(fd);
	}
	return r;
}

/* A file that is refused is removed, too. */
Test(attach, files_that_are_refused, .init = begin, .fini = end)
{
	make("good", 100);
	cr_assert_eq(take("good"), 0);
	cr_assert_eq(take("good"), -ENOENT);
	make("large", DUMP_MAX_BYTES + 1);
	cr_assert_eq(take("large"), -E2BIG);
	cr_assert_eq(symlinkat("/etc/passwd", jvm.tmp, "link"), 0);
	cr_assert_eq(take("link"), -EPERM);
	cr_assert_eq(mkfifoat(jvm.tmp, "fifo", 0600), 0);
	cr_assert_eq(take("fifo"), -EPERM);
	make("two", 100);
	cr_assert_eq(linkat(jvm.tmp, "two", jvm.tmp, "names", 0), 0);
	cr_assert_eq(take("two"), -EPERM);
	cr_assert_eq(unlinkat(jvm.tmp, "names", 0), 0);
	make("others", 100);
	jvm.uid++;
	cr_assert_eq(take("others"), -EPERM);
}

/* Settings are not written into a file, or through a link, that is there already. */
Test(attach, settings_are_new_files, .init = begin, .fini = end)
{
	char name[JVM_FILE_NAME], other[JVM_FILE_NAME];

	cr_assert_eq(jvm_file_name(".jfc", name), 0);
	cr_assert_eq(jvm_file_name(".jfc", other), 0);
	cr_assert_str_neq(name, other);
	cr_assert_eq(jvm_write_file(&jvm, name, "text"), 0);
	cr_assert_eq(jvm_write_file(&jvm, name, "text"), -EEXIST);
	jvm_remove_file(&jvm, name);
	cr_assert_eq(symlinkat("/tmp/culprit-attach-nowhere", jvm.tmp, name), 0);
	cr_assert_eq(jvm_write_file(&jvm, name, "text"), -EEXIST);
	cr_assert_neq(access("/tmp/culprit-attach-nowhere", F_OK), 0);
	jvm_remove_file(&jvm, name);
}

/* A process is asked only if it is the program that was seen. */
Test(attach, another_program)
{
	struct jvm j = {.pid = (u32)getpid(), .start_ticks = 1, .start_stack = 1};
	struct diag d = {};

	cr_assert_eq(jvm_open(&j, &d), -ESRCH);
}
