/* SPDX-License-Identifier: Apache-2.0 */
/* Values of counters with what they say together: instructions per cycle, shares, rates. */
#include <stdio.h>
#include <string.h>

#include "agent/stat/stat.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

/* A value that was counted, by one of its names; 0: there is none. */
static double find(const struct stat_value *v, u32 n, const char *name, const char *alias)
{
	for (u32 i = 0; i < n; i++) {
		const char *colon = strchr(v[i].name, ':'), *bare = colon ? colon + 1 : v[i].name;

		if (v[i].is_supported && (strcmp(bare, name) == 0 || strcmp(bare, alias) == 0))
			return v[i].scaled;
	}
	return 0;
}

/* A value in relation to another one. Shares are in percent. */
static const struct relation {
	const char *name, *alias, *to, *to_alias;
	bool is_share;
	const char *text;
} relations[] = {
	{"instructions", "", "cpu-cycles", "cycles", false, "insn per cycle"},
	{"branch-misses", "", "branch-instructions", "branches", true, "of all branches"},
	{"cache-misses", "", "cache-references", "", true, "of all cache refs"},
};

static bool put_relation(const struct stat_value *v, const struct stat_value *all, u32 n,
			 struct str *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(relations); i++) {
		const struct relation *r = &relations[i];
		double to = find(all, n, r->to, r->to_alias);

		if (to == 0 || strcmp(v->name, r->name) != 0)
			continue;
		str_printf(out, "  # %8.2f%s %s", v->scaled / to * (r->is_share ? 100 : 1),
			   r->is_share ? "%" : "", r->text);
		return true;
	}
	return false;
}

static void put_note(const struct stat_value *v, const struct stat_value *all, u32 n,
		     const struct stat_times *t, struct str *out)
{
	double cpu_s = find(all, n, "task-clock", "cpu-clock") / 1e9;

	if (put_relation(v, all, n, out))
		return;
	if (v->is_time && t->elapsed_s > 0)
		str_printf(out, "  # %8.3f CPUs utilized", v->scaled / 1e9 / t->elapsed_s);
	else if (!v->is_time && cpu_s > 0 && strstr(v->name, "cycles"))
		str_printf(out, "  # %8.3f GHz", v->scaled / 1e9 / cpu_s);
	else if (!v->is_time && cpu_s > 0)
		str_printf(out, "  # %8.3f K/sec", v->scaled / 1e3 / cpu_s);
}

static void put_value(const struct stat_value *v, struct str *out)
{
	_cleanup_str_ struct str number = {};

	if (!v->is_supported)
		str_printf(out, "%20s     ", "<not supported>");
	else if (v->share == 0)
		str_printf(out, "%20s     ", "<not counted>");
	else if (v->is_time)
		str_printf(out, "%20.2f msec", v->scaled / 1e6);
	else {
		text_append_count(&number, (s64)(v->scaled + 0.5));
		str_printf(out, "%20s     ", str_get(&number));
	}
}

static void put_line(const struct stat_value *v, const struct stat_value *all, u32 n,
		     const struct stat_times *t, struct str *out)
{
	bool is_counted = v->is_supported && v->share > 0;

	put_value(v, out);
	str_printf(out, " %-24s", v->name);
	if (is_counted)
		put_note(v, all, n, t, out);
	if (is_counted && v->share < 0.9995)
		str_printf(out, "  (%.2f%%)", v->share * 100);
	while (out->n && out->data[out->n - 1] == ' ')
		out->n--;
	str_putc(out, '\n');
}

void stat_print_text(const struct stat_value *v, u32 n, const char *what,
		     const struct stat_times *t, struct str *out)
{
	if (t->at_s <= 0) {
		str_puts(out, "\n Counters of ");
		text_append_clean(out, what, 0);
		str_puts(out, ":\n\n");
	}
	for (u32 i = 0; i < n; i++) {
		if (t->at_s > 0)
			str_printf(out, "%12.6f ", t->at_s);
		put_line(&v[i], v, n, t, out);
	}
	if (t->at_s > 0)
		return;
	str_printf(out, "\n%20.9f seconds time elapsed\n", t->elapsed_s);
	if (t->user_s >= 0)
		str_printf(out, "\n%20.9f seconds user\n%20.9f seconds sys\n", t->user_s, t->sys_s);
}

static void put_json_value(struct json_writer *w, const struct stat_value *v)
{
	json_open_object(w, NULL);
	json_put_text(w, "event", v->name);
	json_put_bool(w, "supported", v->is_supported);
	if (v->is_supported && v->share > 0) {
		json_put_double(w, "value", v->scaled);
		json_put_double(w, "counted", v->counted);
		if (v->is_time)
			json_put_text(w, "unit", "ns");
	}
	json_put_fixed(w, "running_pct", v->share * 100, 2);
	json_close(w);
}

void stat_print_json(const struct stat_value *v, u32 n, const struct stat_times *t, struct str *out)
{
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	if (t->at_s > 0)
		json_put_fixed(&w, "at_s", t->at_s, 9);
	json_put_fixed(&w, "elapsed_s", t->elapsed_s, 9);
	if (t->user_s >= 0) {
		json_put_fixed(&w, "user_s", t->user_s, 6);
		json_put_fixed(&w, "sys_s", t->sys_s, 6);
	}
	json_open_array(&w, "events");
	for (u32 i = 0; i < n; i++)
		put_json_value(&w, &v[i]);
	json_close(&w);
	json_close(&w);
	str_putc(out, '\n');
}
