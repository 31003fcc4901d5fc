/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the ring: each is checked against its length before anything of it is printed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "trace/print.h"

/* What cat() shows of a file, as bpftrace by default. */
#define CAT_MAX 10240
#define JOIN_MAX 64

/* The payload of a record: what follows its head. */
struct payload {
	const struct trace_record *head;
	const u8 *data;
	size_t n;
};

/* {"type": …, "data": text} as a line; or the text. */
static void put_text(const struct trace_printer *p, const char *type, const char *text,
		     struct str *out)
{
	struct json_writer w = {.out = out};

	if (!p->json) {
		str_puts(out, text);
		return;
	}
	json_open_object(&w, NULL);
	json_put_text(&w, "type", type);
	json_put_exact(&w, "data", text);
	json_close(&w);
	str_putc(out, '\n');
}

static int print_format(const struct trace_printer *p, const struct payload *r, struct str *out,
			struct str *err)
{
	_cleanup_str_ struct str text = {};
	const struct trace_format *f;

	if (r->head->index >= p->program->formats.n)
		return -EBADMSG;
	f = &p->program->formats.data[r->head->index];
	if (!trace_format_text(p, f, r->data, r->n, &text))
		return -EBADMSG;
	if (f->to_stderr && !p->json)
		str_append(err, str_get(&text), text.n);
	else
		put_text(p, f->to_stderr ? "errorf" : "printf", str_get(&text), out);
	return 0;
}

static void print_value(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
			struct str *out)
{
	struct json_writer w = {.out = out};

	if (p->json) {
		json_open_object(&w, NULL);
		json_put_text(&w, "type", "value");
		trace_value_json(p, t, value, 1, &w, "data");
		json_close(&w);
	} else {
		trace_value_text(p, t, value, 1, out);
	}
	str_putc(out, '\n');
}

static int take_print(const struct trace_printer *p, const struct payload *r, struct str *out,
		      struct trace_request *ret)
{
	const struct trace_print *print;

	if (r->head->index >= p->program->prints.n)
		return -EBADMSG;
	print = &p->program->prints.data[r->head->index];
	if (print->map >= 0) {
		if ((u32)print->map >= p->program->maps.n)
			return -EBADMSG;
		*ret = (struct trace_request){
			.type = TRACE_RECORD_PRINT, .map = (u32)print->map, .print = print};
		return 0;
	}
	if (r->n < trace_type_room(&print->type))
		return -EBADMSG;
	print_value(p, &print->type, r->data, out);
	return 0;
}

/* A text of the program; NULL: there is no such. */
static const char *text_at(const struct trace_printer *p, u32 index)
{
	return index < p->program->texts.n ? p->program->texts.data[index].data : NULL;
}

static int print_time(const struct trace_printer *p, const struct payload *r, struct str *out)
{
	const char *format = text_at(p, r->head->index);
	_cleanup_str_ struct str text = {};

	if (!format)
		return -EBADMSG;
	trace_time_text(format, clock_ns(CLOCK_REALTIME), false, &text);
	put_text(p, "time", str_get(&text), out);
	return 0;
}

static int print_join(const struct trace_printer *p, const struct payload *r, struct str *out)
{
	const char *between = text_at(p, r->head->index);
	u64 room = p->program->join_bytes, n = r->n >= 8 ? trace_word(r->data, 0) : JOIN_MAX + 1;
	_cleanup_str_ struct str text = {};

	if (!between || n > JOIN_MAX || r->n - 8 < n * room)
		return -EBADMSG;
	for (u64 i = 0; i < n; i++) {
		const char *part = (const char *)r->data + 8 + i * room;

		if (i)
			str_puts(&text, between);
		str_append(&text, part, strnlen(part, room));
	}
	put_text(p, "join", str_get(&text), out);
	if (!p->json)
		str_putc(out, '\n');
	return 0;
}

/* A script may name a pipe or a device: neither is waited for. */
static int print_file(const struct trace_printer *p, const struct payload *r, struct str *out,
		      struct str *err)
{
	_cleanup_str_ struct str path = {}, text = {};
	_cleanup_close_ int fd = -1;
	char part[CAT_MAX];
	ssize_t n = 1;

	if (r->head->index >= p->program->formats.n ||
	    !trace_format_text(p, &p->program->formats.data[r->head->index], r->data, r->n, &path))
		return -EBADMSG;
	fd = open(str_get(&path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (fd >= 0 && n > 0 && text.n < CAT_MAX) {
		n = read(fd, part, CAT_MAX - text.n);
		if (n > 0)
			str_append(&text, part, (size_t)n);
	}
	if (fd < 0 || n < 0)
		str_printf(err, "cat: %s: %s\n", str_get(&path), strerror(errno));
	put_text(p, "cat", str_get(&text), out);
	return 0;
}

static int take_command(const struct trace_printer *p, const struct payload *r,
			struct trace_request *ret)
{
	struct str command = {};

	if (r->head->index >= p->program->formats.n ||
	    !trace_format_text(p, &p->program->formats.data[r->head->index], r->data, r->n,
			       &command)) {
		str_deinit(&command);
		return -EBADMSG;
	}
	*ret = (struct trace_request){.type = TRACE_RECORD_SYSTEM, .command = command};
	return 0;
}

void trace_print_system(const struct trace_printer *p, const char *output, struct str *out)
{
	put_text(p, "syscall", output, out);
}

static int print_error(const struct trace_printer *p, const struct payload *r, struct str *out,
		       struct str *err)
{
	struct json_writer w = {.out = out};
	const char *what;
	s64 result;

	if (r->head->index >= p->program->errors.n || r->n < 8)
		return -EBADMSG;
	what = p->program->errors.data[r->head->index].data;
	result = (s64)trace_word(r->data, 0);
	if (!p->json) {
		str_printf(err, "%s: %s\n", what, strerror((int)-result));
		return 0;
	}
	json_open_object(&w, NULL);
	json_put_text(&w, "type", "helper_error");
	json_put_exact(&w, "msg", what);
	json_put_s64(&w, "retcode", result);
	json_close(&w);
	str_putc(out, '\n');
	return 0;
}

int trace_print_record(const struct trace_printer *p, const void *record, size_t n, struct str *out,
		       struct str *err, struct trace_request *ret)
{
	struct payload r = {.head = record, .data = (const u8 *)record + sizeof(*r.head)};

	*ret = (struct trace_request){};
	if (n < sizeof(*r.head))
		return -EBADMSG;
	r.n = n - sizeof(*r.head);
	switch (r.head->type) {
	case TRACE_RECORD_PRINTF:
		return print_format(p, &r, out, err);
	case TRACE_RECORD_PRINT:
		return take_print(p, &r, out, ret);
	case TRACE_RECORD_CLEAR:
	case TRACE_RECORD_ZERO:
		if (r.head->index >= p->program->maps.n)
			return -EBADMSG;
		*ret = (struct trace_request){.type = r.head->type, .map = r.head->index};
		return 0;
	case TRACE_RECORD_TIME:
		return print_time(p, &r, out);
	case TRACE_RECORD_JOIN:
		return print_join(p, &r, out);
	case TRACE_RECORD_CAT:
		return print_file(p, &r, out, err);
	case TRACE_RECORD_EXIT:
		*ret = (struct trace_request){.type = TRACE_RECORD_EXIT,
					      .status = r.n >= 8 ? (u32)trace_word(r.data, 0) : 0};
		return 0;
	case TRACE_RECORD_ERROR:
		return print_error(p, &r, out, err);
	case TRACE_RECORD_SYSTEM:
		return take_command(p, &r, ret);
	default:
		return -EBADMSG;
	}
}

void trace_print_attached(const struct trace_printer *p, u32 probes, struct str *out)
{
	struct json_writer w = {.out = out};

	if (!p->json) {
		str_printf(out, "Attached %u probe%s\n", probes, probes == 1 ? "" : "s");
		return;
	}
	json_open_object(&w, NULL);
	json_put_text(&w, "type", "attached_probes");
	json_put_u64(&w, "count", probes);
	json_open_object(&w, "data");
	json_put_u64(&w, "probes", probes);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}

void trace_print_detached(const struct trace_printer *p, const char *probe, u32 n, double percent,
			  double budget, struct str *out)
{
	_cleanup_str_ struct str others = {};
	struct json_writer w = {.out = out};

	if (n > 1)
		str_printf(&others, " and %u other%s", n - 1, n == 2 ? "" : "s");
	if (!p->json) {
		str_printf(out,
			   "culprit: %s%s: detached, because the events cost %.0f %% of a CPU, and "
			   "the budget is %g %%. What is printed has no later ones. --budget %.0f "
			   "allows that, --budget 0 anything\n",
			   probe, str_get(&others), percent, budget, percent * 1.5 + 1);
		return;
	}
	json_open_object(&w, NULL);
	json_put_text(&w, "type", "detached_probes");
	json_put_u64(&w, "count", n);
	json_open_object(&w, "data");
	json_put_text(&w, "probe", probe);
	json_put_fixed(&w, "cpu_percent", percent, 1);
	json_put_double(&w, "budget_percent", budget);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}

static const char *const losses[TRACE_LOSS_N] = {
	[TRACE_LOST_RING] = "of output, because it came faster than it was read",
	[TRACE_LOST_MAP] = "of new keys, because a map was full",
	[TRACE_LOST_NESTED] = "of actions, because too many were under way on a CPU",
	[TRACE_LOST_WALK] = "of stacks, which could not be taken",
	[TRACE_LOST_MISSED] = "of events, at which the kernel was running a BPF program already",
};
static const char *const loss_names[TRACE_LOSS_N] = {
	[TRACE_LOST_RING] = "output",	[TRACE_LOST_MAP] = "map_full",
	[TRACE_LOST_NESTED] = "nested", [TRACE_LOST_WALK] = "stacks",
	[TRACE_LOST_MISSED] = "missed",
};

void trace_print_lost(const struct trace_printer *p, const u64 lost[TRACE_LOSS_N], struct str *out)
{
	struct json_writer w = {.out = out};
	u64 sum = 0;

	for (u32 i = 0; i < TRACE_LOSS_N; i++) {
		if (lost[i] && !p->json)
			str_printf(out, "%s%llu %s", sum ? "; " : "lost: ", lost[i], losses[i]);
		sum += lost[i];
	}
	if (sum && !p->json)
		str_putc(out, '\n');
	if (!sum || !p->json)
		return;
	json_open_object(&w, NULL);
	json_put_text(&w, "type", "lost_events");
	json_put_u64(&w, "count", sum);
	json_open_object(&w, "data");
	json_put_u64(&w, "events", sum);
	for (u32 i = 0; i < TRACE_LOSS_N; i++)
		json_put_u64(&w, loss_names[i], lost[i]);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}
