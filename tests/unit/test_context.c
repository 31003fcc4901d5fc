/* SPDX-License-Identifier: Apache-2.0 */
/* What a process says of itself: this one, published by libculprit-context or by hand. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/context/internal.h"
#include "base/str.h"
#include "context/culprit_context.h"

struct page {
	char signature[8];
	u32 version, n;
	u64 published, payload;
};

static int hear(void *arg, const char *name, const char *value)
{
	str_printf(arg, "%s=%s;", name, value);
	return 0;
}

static int read_own(struct process_context *c, struct str *out)
{
	str_clear(out);
	return process_context_read((u32)getpid(), c, hear, out);
}

Test(context, what_the_library_publishes_is_read_and_read_again_when_it_is_another)
{
	const char *names[] = {"service.name", "deployment.environment.name"};
	const char *values[] = {"shop", "prod"};
	struct process_context c = {};
	_cleanup_str_ struct str out = {};
	int key;

	cr_assert_eq(read_own(&c, &out), -ENOENT);
	cr_assert_eq(culprit_context_process(names, values, 2), 0);
	cr_assert_eq(read_own(&c, &out), 1);
	cr_assert_str_eq(str_get(&out), "service.name=shop;deployment.environment.name=prod;");
	cr_assert_eq(read_own(&c, &out), 0);
	values[0] = "till";
	cr_assert_eq(culprit_context_process(names, values, 1), 0);
	cr_assert_eq(read_own(&c, &out), 1);
	cr_assert_str_eq(str_get(&out), "service.name=till;");
	key = culprit_context_key("http.route");
	cr_assert_eq(key, 0);
	cr_assert_eq(culprit_context_key("http.route"), key);
	cr_assert_eq(culprit_context_key("other"), 1);
	cr_assert_eq(read_own(&c, &out), 1);
}

Test(context, a_forked_child_publishes_the_same_and_its_own)
{
	const char *names[] = {"service.name"}, *values[] = {"shop"};
	struct process_context c = {};
	_cleanup_str_ struct str out = {};
	int status;
	pid_t pid;

	cr_assert_eq(culprit_context_process(names, values, 1), 0);
	pid = fork();
	if (!pid) {
		bool same = read_own(&c, &out) == 1 && !strcmp(str_get(&out), "service.name=shop;");

		values[0] = "child";
		same &= culprit_context_process(names, values, 1) == 0 && read_own(&c, &out) == 1 &&
			!strcmp(str_get(&out), "service.name=child;");
		_exit(!same);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	cr_assert_eq(read_own(&c, &out), 1);
	cr_assert_str_eq(str_get(&out), "service.name=shop;");
}

Test(context, attributes_of_a_thread_stay_within_their_bounds)
{
	u8 trace[16] = {1}, span[8] = {2};
	char text[256] = "";
	int key = culprit_context_key("k");

	cr_assert_eq(culprit_context_attribute(key, "v", 1), -ENOENT);
	cr_assert_eq(culprit_context_enter(trace, span, 1), 0);
	cr_assert_eq(culprit_context_attribute(key + 1, "v", 1), -EINVAL);
	cr_assert_eq(culprit_context_attribute(-1, "v", 1), -EINVAL);
	cr_assert_eq(culprit_context_attribute(key, text, 256), -EINVAL);
	cr_assert_eq(culprit_context_attribute(key, text, 255), 0);
	cr_assert_eq(culprit_context_attribute(key, text, 255), 0);
	cr_assert_eq(culprit_context_attribute(key, text, 97), -ENOSPC);
	cr_assert_eq(culprit_context_attribute(key, text, 96), 0);
	cr_assert_eq(culprit_context_attribute(key, text, 0), -ENOSPC);
	culprit_context_leave();
	cr_assert_eq(culprit_context_attribute(key, "v", 1), -ENOENT);
}

/* ---- by hand ---- */

static const char message[] = "\x0a\x0b\x0a\x09\x0a\x02"
			      "ab"
			      "\x12\x03\x0a\x01"
			      "c";

/* A page of one of the kinds that there are; NULL: not on this kernel. */
static struct page *make_page(int kind)
{
	int fd = kind ? -1 : memfd_create("OTEL_CTX", MFD_CLOEXEC);
	struct page *p;

	if (!kind && ftruncate(fd, 4096) < 0)
		return NULL;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | (kind ? MAP_ANONYMOUS : 0), fd,
		 0);
	if (p == MAP_FAILED)
		return NULL;
	if (fd >= 0)
		close(fd);
	/* PR_SET_VMA, PR_SET_VMA_ANON_NAME: Linux 5.17 with CONFIG_ANON_VMA_NAME */
	if (kind && prctl(0x53564d41, 0, p, 4096, "OTEL_CTX") < 0)
		return NULL;
	memcpy(p->signature, "OTEL_CTX", 8);
	p->version = 2;
	p->n = sizeof(message) - 1;
	p->published = 7;
	p->payload = (u64)message;
	return p;
}

Test(context, pages_are_found_by_each_of_their_names)
{
	for (int kind = 0; kind < 2; kind++) {
		struct page *p = make_page(kind);
		struct process_context c = {};
		_cleanup_str_ struct str out = {};

		/* This kernel names no memory: then there is only the memfd. */
		if (!p && kind)
			continue;
		cr_assert(p);
		cr_assert_eq(read_own(&c, &out), 1);
		cr_assert_str_eq(str_get(&out), "ab=c;");
		munmap(p, 4096);
		cr_assert_eq(read_own(&c, &out), -ENOENT);
	}
}

Test(context, what_is_being_written_or_makes_no_sense_is_not_taken)
{
	struct page *p = make_page(0), good;
	struct process_context c = {};
	_cleanup_str_ struct str out = {};

	cr_assert(p);
	good = *p;
	p->published = 0;
	cr_assert_eq(read_own(&c, &out), -EAGAIN);
	*p = good;
	p->version = 1;
	cr_assert_eq(read_own(&c, &out), -ENOENT);
	*p = good;
	p->n = 65537;
	cr_assert_eq(read_own(&c, &out), -ENOENT);
	*p = good;
	p->payload = 8;
	cr_assert_eq(read_own(&c, &out), -EAGAIN);
	*p = good;
	p->payload++;
	cr_assert_lt(read_own(&c, &out), 0);
	/* The same time says that it is the same. */
	*p = good;
	cr_assert_eq(read_own(&c, &out), 0);
	p->published++;
	cr_assert_eq(read_own(&c, &out), 1);
	cr_assert_str_eq(str_get(&out), "ab=c;");
}
