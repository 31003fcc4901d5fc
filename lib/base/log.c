/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/diag.h"
#include "base/text.h"

#define LINES_PER_SECOND 10
#define RARELY_S 60

static enum log_level max_level = LOG_LEVEL_INFO;
static void (*before_line)(void *arg);
static void *before_line_arg;

void log_set_level(enum log_level level)
{
	max_level = level;
}

bool log_enabled(enum log_level level)
{
	return level <= max_level;
}

void log_set_hook(void (*hook)(void *arg), void *arg)
{
	before_line = hook;
	before_line_arg = arg;
}

bool log_is_due(struct log_site *site)
{
	u64 now_s = clock_ns(CLOCK_MONOTONIC) / 1000000000;

	if (site->n && now_s - site->window_s < RARELY_S)
		return false;
	site->window_s = now_s;
	site->n = 1;
	return true;
}

void log_write(struct log_site *site, enum log_level level, const char *fmt, ...)
{
	static const char *const prefix[] = {
		"culprit: ", "culprit: warning: ", "culprit: ", "culprit: debug: "};
	u64 now_s;
	char line[1024];
	u32 suppressed = 0;
	va_list ap;

	if (level > max_level)
		return;
	now_s = clock_ns(CLOCK_MONOTONIC) / 1000000000;
	if (site->window_s != now_s) {
		if (site->n > LINES_PER_SECOND)
			suppressed = site->n - LINES_PER_SECOND;
		site->window_s = now_s;
		site->n = 0;
	}
	if (++site->n > LINES_PER_SECOND)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* Names and paths of others must not make lines of their own, or command a terminal. */
	text_clean(line);
	if (before_line)
		before_line(before_line_arg);
	if (suppressed)
		fprintf(stderr, "%s%s (%u more like this)\n", prefix[level], line, suppressed);
	else
		fprintf(stderr, "%s%s\n", prefix[level], line);
}

void log_damage(int fd, const char *text)
{
	char link[32], path[512];
	ssize_t n;

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = fd < 0 ? -1 : readlink(link, path, sizeof(path));
	log_debug("%.*s: %s", n < 0 ? 8 : (int)n, n < 0 ? "[memory]" : path, text);
}

void log_damage_at(int fd, u64 offset, const char *text)
{
	struct diag d = {};

	diag_set_at(&d, 0, offset, "%s", text);
	log_damage(fd, d.text);
}
