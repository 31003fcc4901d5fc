/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that this process publishes about itself, with libculprit-context or by hand. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/context/channel.h"
#include "agent/context/internal.h"
#include "base/str.h"
#include "context/culprit_context.h"

struct page {
	char signature[8];
	u32 version, n;
	u64 published, payload;
};

static int hear(void *arg, const struct otlp_said *s)
{
	if (s->of == OTLP_SAID_KEY)
		str_printf(arg, "key %s;", s->value);
	else
		str_printf(arg, "%s=%s;", s->name, s->value);
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
	cr_assert_str_eq(str_get(&out), "key http.route;key other;service.name=till;");
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
	culprit_context_enter(trace, span, 1);
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

extern _Thread_local u8 *otel_thread_ctx_v1;

Test(context, a_record_is_behind_the_pointer_to_it_unless_it_is_large)
{
	uintptr_t near = (uintptr_t)&otel_thread_ctx_v1 + CONTEXT_OTEL_BEHIND;
	u8 trace[16] = {1}, span[8] = {2};
	int key = culprit_context_key("k");
	const u8 *r;

	for (u8 round = 0; round < 2; round++) {
		trace[1] = round;
		culprit_context_enter(trace, span, 1);
		cr_assert_eq(culprit_context_attribute(key, "abc", 3), 0);
		cr_assert_eq((uintptr_t)otel_thread_ctx_v1, near);
		cr_assert_eq(culprit_context_attribute(key, (const char[98]){}, 98), 0);
		r = otel_thread_ctx_v1;
		cr_assert_neq((uintptr_t)r, near);
		cr_assert_eq(memcmp(r, trace, 16), 0);
		cr_assert_eq(memcmp(r + 16, span, 8), 0);
		/* The valid byte, flags, and attributes of 5 and 100 bytes. */
		cr_assert_eq(memcmp(r + 24, "\1\1\151\0\0\3abc\0\142", 11), 0);
	}
	culprit_context_leave();
	cr_assert_eq(otel_thread_ctx_v1, NULL);
}

/* ---- by hand ---- */

static const char message[] =
	"\x0a\x0b\x0a\x09\x0a\x02"
	"ab"
	"\x12\x03\x0a\x01"
	"c"
	/* Further attributes of the process, and the schema of its threads' attributes. */
	"\x12\x08\x0a\x01t\x12\x03\x0a\x01v"
	"\x12\x18\x0a\x0fthreadlocal.any\x12\x05\x0a\x03"
	"xyz";

/* Makes a page of one of the two kinds. NULL: this kernel has no such kind. */
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

		/* A kernel that cannot name memory has only the memfd. */
		if (!p && kind)
			continue;
		cr_assert(p);
		cr_assert_eq(read_own(&c, &out), 1);
		cr_assert_str_eq(str_get(&out), "t=v;ab=c;");
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
	/* An unchanged time of publication means an unchanged context. */
	*p = good;
	cr_assert_eq(read_own(&c, &out), 0);
	p->published++;
	cr_assert_eq(read_own(&c, &out), 1);
	cr_assert_str_eq(str_get(&out), "t=v;ab=c;");
}

/* ---- what threads say of their work ---- */

struct said {
	struct attribute_bounds bounds;
	struct attribute_share share;
	struct attribute_names names;
	struct str texts, out;
	bool partial;
};

static const char *decode(struct said *s, u32 form, const char *bytes, size_t n)
{
	struct record_attributes head = {.form = (u16)form, .n = (u16)n};
	struct context_label labels[CONTEXT_MAX_ATTRIBUTES];
	u32 got;

	attribute_bounds_begin(&s->bounds, 1);
	got = attributes_decode(&head, (const u8 *)bytes, &s->names, &s->bounds, &s->share,
				&s->texts, labels, &s->partial);
	str_clear(&s->out);
	for (u32 i = 0; i < got; i++)
		str_printf(&s->out, "%s=%s;", labels[i].name, labels[i].value);
	return str_get(&s->out);
}
#define DECODE(s, form, bytes) decode(s, ATTRIBUTES_##form, bytes, sizeof(bytes) - 1)

static void said_deinit(struct said *s)
{
	attribute_bounds_deinit(&s->bounds);
	attribute_names_deinit(&s->names);
	str_deinit(&s->texts);
	str_deinit(&s->out);
}

Test(attributes, numbers_are_names_that_the_process_has_told)
{
	static const char *const names[] = {"datadog.local_root_span_id", "http.route", "",
					    "process.pid", "tenant"};
	struct said s = {};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		cr_assert_eq(attribute_names_add(&s.names, names[i]), 0);
	cr_expect_str_eq(DECODE(&s, NUMBERED,
				"\0\x09rootspan0\1\6GET /x\4\1"
				"7"),
			 "http.route=GET /x;tenant=7;");
	/* Ignored are ids, names of the process itself, and attributes without name or text. */
	cr_expect_str_eq(DECODE(&s, NUMBERED, "\2\1x\3\1x\5\1x\4\0"), "");
	cr_expect_not(s.partial);
	/* Truncated attributes, and text that is not UTF-8. */
	cr_expect_str_eq(DECODE(&s, NUMBERED, "\1\2\xff\0\4\3ab"), "http.route=\xef\xbf\xbd;");
	cr_expect_str_eq(DECODE(&s, NUMBERED, "\1"), "");
	said_deinit(&s);
}

Test(attributes, names_may_come_with_them_and_texts_that_were_cut_say_so)
{
	struct said s = {};

	cr_expect_str_eq(DECODE(&s, NAMED, "\5\4routz/pay\7\3span_idabc"), "routz=/pay;");
	/* The text ends in the middle of a character. */
	cr_expect_str_eq(DECODE(&s, NAMED, "\1\x83xab\xc3"), "x=ab…;");
	cr_expect_str_eq(DECODE(&s, NAMED, "\1\x84xab\xc3\xa9"), "x=abé…;");
	cr_expect_str_eq(DECODE(&s, NAMED, "\3\3a\nbc\0d"), "a b=c d;");
	cr_expect_str_eq(DECODE(&s, NAMED, "\3\0abc"), "");
	cr_expect_str_eq(DECODE(&s, NAMED, "\x09\1trace_idx"), "");
	said_deinit(&s);
}

/* Decodes one attribute whose value is the number i. */
static const char *decode_number(struct said *s, const char *name, u32 i)
{
	char bytes[64];
	int n = snprintf(bytes, sizeof(bytes), "%c%c%s%05u", (char)strlen(name), 5, name, i);

	return decode(s, ATTRIBUTES_NAMED, bytes, (size_t)n);
}

Test(attributes, a_process_has_a_bound_on_how_many)
{
	struct said s = {.share.said = true}, other = {};
	u32 kept = 0;

	for (u32 i = 0; i < 2 * ATTRIBUTES_MAX_OF_NAME; i++)
		kept += *decode_number(&s, "id", i) != '\0';
	cr_expect_eq(kept, ATTRIBUTES_MAX_OF_NAME);
	cr_expect(s.partial);
	/* Known values are accepted again, and other names still have room. */
	cr_expect_str_eq(decode_number(&s, "id", 7), "id=00007;");
	cr_expect_not(s.partial);
	for (u32 name = 'a'; name <= 'z'; name++)
		for (u32 i = 0; i < ATTRIBUTES_MAX_OF_NAME; i++)
			kept += *decode_number(&s, (char[]){(char)name, 0}, i) != '\0';
	cr_expect_eq(kept, ATTRIBUTES_MAX_TEXTS);
	/* Another process has bounds of its own, and after an hour all bounds begin anew. */
	other.bounds = s.bounds;
	other.share = (struct attribute_share){.owner = 1, .hour = s.bounds.hour, .said = true};
	cr_expect_str_eq(decode_number(&other, "id", 999), "id=00999;");
	s.bounds = other.bounds;
	other.bounds = (struct attribute_bounds){};
	attribute_bounds_begin(&s.bounds, 3600000000001ULL);
	cr_expect_eq(s.bounds.known.n, 0);
	cr_expect_str_eq(decode_number(&s, "id", 999), "id=00999;");
	said_deinit(&s);
	said_deinit(&other);
}

Test(attributes, and_on_how_many_sets)
{
	struct said s = {.share.said = true};
	u32 kept = 0;

	for (u32 i = 0; i < 64; i++)
		for (u32 j = 0; j < 64; j++) {
			char bytes[] = {1, 1, 'a', (char)('0' + i), 1, 1, 'b', (char)('0' + j)};

			/* 63 texts: DEL becomes a space, which is trimmed to nothing. */
			kept += *decode(&s, ATTRIBUTES_NAMED, bytes, sizeof(bytes)) != '\0';
		}
	cr_expect_eq(kept, ATTRIBUTES_MAX_SETS);
	cr_expect(s.partial);
	said_deinit(&s);
}

/* ---- Elastic's ---- */

Test(elastic, what_a_process_says_is_taken_as_a_whole_or_not_at_all)
{
	u8 bytes[] = "\1\0\2\0\0\0ab\0\0\0\0\3\0\0\0/s0";
	struct elastic_storage s;

	cr_assert_eq(elastic_parse(bytes, sizeof(bytes) - 1, &s), 0);
	cr_assert_str_eq(s.service, "ab");
	cr_assert_str_eq(s.environment, "");
	cr_assert_str_eq(s.socket, "/s0");
	for (size_t n = 0; n < sizeof(bytes) - 1; n++)
		cr_assert_eq(elastic_parse(bytes, n, &s), -EINVAL);
	bytes[2] = 129;
	cr_assert_eq(elastic_parse(bytes, sizeof(bytes) - 1, &s), -EINVAL);
	bytes[5] = 255;
	cr_assert_eq(elastic_parse(bytes, sizeof(bytes) - 1, &s), -EINVAL);
}

struct receiver {
	char folder[64], path[96];
	int fd;
};

static void receiver_open(struct receiver *r)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	r->fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/essock", r->folder);
	unlink(a.sun_path);
	cr_assert_eq(bind(r->fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void receiver_init(struct receiver *r)
{
	snprintf(r->folder, sizeof(r->folder), "/tmp/culprit-context-XXXXXX");
	cr_assert(mkdtemp(r->folder));
	/* The path leads through a link, as that of a temporary folder may. */
	snprintf(r->path, sizeof(r->path), "%s/link/essock", r->folder);
	char link[96];
	snprintf(link, sizeof(link), "%s/link", r->folder);
	cr_assert_eq(symlink(r->folder, link), 0);
	receiver_open(r);
}

static void receiver_deinit(struct receiver *r)
{
	char path[96];

	close(r->fd);
	snprintf(path, sizeof(path), "%s/essock", r->folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/link", r->folder);
	unlink(path);
	rmdir(r->folder);
}

/* Receives a message of at most n bytes. 0: none arrived for a minute. */
static size_t receive(const struct receiver *r, u8 *ret, size_t n)
{
	struct pollfd p = {.fd = r->fd, .events = POLLIN};
	ssize_t got = poll(&p, 1, 60000) > 0 ? recv(r->fd, ret, n, 0) : 0;

	return got > 0 ? (size_t)got : 0;
}

Test(elastic, who_listens_is_registered_once_and_counts_are_split)
{
	static const u64 counts[] = {1, 32767, 32768, 100000};
	struct context_report report = {.trace_id = {1}, .root_id = {2}};
	struct channels *c;
	struct receiver r;
	u64 left = 0;
	u8 m[1024];

	receiver_init(&r);
	cr_assert_eq(channels_create(750, "a-host", &c), 0);
	channels_open(c, (u32)getpid(), r.path);
	channels_open(c, (u32)getpid(), r.path);
	cr_assert_eq(receive(&r, m, sizeof(m)), 18);
	cr_assert(!memcmp(m, "\2\0\1\0\xee\2\0\0\6\0\0\0a-host", 18));
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++, left = 0) {
		report.stack_id[0] = (u8)i;
		channels_report(c, (u32)getpid(), &report, counts[i]);
		while (left < counts[i]) {
			s16 count;

			cr_assert_eq(receive(&r, m, sizeof(m)), 46);
			cr_assert(!memcmp(m, "\1\0\1\0", 4));
			cr_assert(!memcmp(m + 4, &report, sizeof(report)));
			memcpy(&count, m + 44, 2);
			cr_assert_gt(count, 0);
			left += (u64)count;
		}
		cr_assert_eq(left, counts[i]);
	}
	/* A new delay is sent if it is longer. */
	channels_late(c, 700);
	channels_late(c, 1000);
	cr_assert_eq(receive(&r, m, sizeof(m)), 18);
	cr_assert(!memcmp(m + 4, "\xdc\5\0\0", 4));
	channels_destroy(c);
	receiver_deinit(&r);
}

/* More messages at once than the socket's queue holds, while nobody reads. */
Test(elastic, what_does_not_go_out_at_once_waits)
{
	struct context_report report = {.trace_id = {1}};
	struct channels *c;
	struct receiver r;
	u8 m[1024];

	receiver_init(&r);
	cr_assert_eq(channels_create(1000, "", &c), 0);
	channels_open(c, (u32)getpid(), r.path);
	for (u32 i = 0; i < 500; i++) {
		memcpy(report.stack_id, &i, sizeof(i));
		channels_report(c, (u32)getpid(), &report, 1);
	}
	cr_assert_eq(receive(&r, m, sizeof(m)), 12);
	usleep(100000);
	for (u32 i = 0; i < 500; i++) {
		u32 got;

		cr_assert_eq(receive(&r, m, sizeof(m)), 46);
		memcpy(&got, m + 28, sizeof(got));
		cr_assert_eq(got, i);
	}
	channels_destroy(c);
	receiver_deinit(&r);
}

Test(elastic, who_listens_again_is_registered_again)
{
	struct context_report report = {.trace_id = {1}};
	struct channels *c;
	struct receiver r;
	u8 m[1024];

	receiver_init(&r);
	cr_assert_eq(channels_create(1000, "", &c), 0);
	channels_open(c, (u32)getpid(), r.path);
	cr_assert_eq(receive(&r, m, sizeof(m)), 12);
	close(r.fd);
	receiver_open(&r);
	/* A message to the previous socket fails, which shows that the socket is gone. */
	channels_report(c, (u32)getpid(), &report, 1);
	for (int i = 0; i < 30000; i++) {
		struct pollfd p = {.fd = r.fd, .events = POLLIN};

		channels_open(c, (u32)getpid(), r.path);
		if (poll(&p, 1, 1) > 0)
			break;
	}
	cr_assert_eq(receive(&r, m, sizeof(m)), 12);
	cr_assert_eq(receive(&r, m, sizeof(m)), 46);
	channels_destroy(c);
	receiver_deinit(&r);
}
