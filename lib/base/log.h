/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging, one line without control characters to standard error. Libraries log at debug level
 * only; the code that handles an error logs it, once. Each call site prints at most ten lines a
 * second; the next line reports how many were suppressed. Any thread.
 */
#pragma once

#include "base/types.h"

enum log_level { LOG_LEVEL_ERR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_site {
	u64 window_s;
	u32 n;
};

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
/* Sets a function that is called before each line, to clear a progress display. NULL removes it. */
void log_set_hook(void (*hook)(void *arg), void *arg);
void log_write(struct log_site *site, enum log_level level, const char *fmt, ...)
	CULPRIT_PRINTF(3, 4);

/* False during the minute after it returned true. */
bool log_is_due(struct log_site *site);

#define log_at_(level, ...)                                                                        \
	do {                                                                                       \
		static struct log_site log_site_;                                                  \
		log_write(&log_site_, level, __VA_ARGS__);                                         \
	} while (0)
/* For conditions that may last long: one line a minute. A counter tells how often they occur. */
#define log_warn_rarely(...)                                                                       \
	do {                                                                                       \
		static struct log_site log_rare_site_;                                             \
		if (log_is_due(&log_rare_site_))                                                   \
			log_warn(__VA_ARGS__);                                                     \
	} while (0)
#define log_err(...) log_at_(LOG_LEVEL_ERR, __VA_ARGS__)
#define log_warn(...) log_at_(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at_(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at_(LOG_LEVEL_DEBUG, __VA_ARGS__)
/*
 * Logs, at debug level, what is damaged in an open file that a reader goes on without; finds the
 * path of the file. fd < 0: the bytes are in memory.
 */
void log_damage(int fd, const char *text);
void log_damage_at(int fd, u64 offset, const char *text);
