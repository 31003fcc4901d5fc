/* SPDX-License-Identifier: Apache-2.0 */
/* `polar SECONDS THREADS LOG`: publishes spans as labels of Polar Signals' library. See spans.c. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "work.h"

typedef struct {
	size_t n;
	const unsigned char *at;
} text;

void *custom_labels_new(size_t capacity);
void custom_labels_free(void *set);
void *custom_labels_replace(void *set);
int custom_labels_set(void *set, text key, text value, text *ret_old);

static uint64_t end_us;
static FILE *log_file;

WORK(0, 2000)
WORK(1, 2000)

static __attribute__((noinline)) void idle_work(void)
{
	burn(500);
	sink++;
}

static void set_label(void *set, const char *key, const char *value)
{
	text k = {strlen(key), (const unsigned char *)key};
	text v = {strlen(value), (const unsigned char *)value};

	if (custom_labels_set(set, k, v, NULL) != 0)
		exit(1);
}

static void *serve(void *arg)
{
	(void)arg;
	while (now_us() < end_us) {
		void *set = custom_labels_new(4);
		char trace[33] = "", span[17] = "";
		uint8_t id[24];

		if (!set || getrandom(id, sizeof(id), 0) < 0)
			exit(1);
		for (int i = 0; i < 24; i++)
			snprintf((i < 16 ? trace : span) + 2 * (i % 16), 3, "%02x", id[i]);
		set_label(set, "customer", "ACME");
		set_label(set, "trace_id", trace);
		set_label(set, "span_id", span);
		custom_labels_replace(set);
		(id[23] & 1 ? work_1 : work_0)();
		custom_labels_replace(NULL);
		custom_labels_free(set);
		flockfile(log_file);
		fprintf(log_file, "%s %s %d 0\n", trace, span, id[23] & 1);
		funlockfile(log_file);
		idle_work();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int n = argc == 4 ? (int)strtol(argv[2], NULL, 10) : 0;

	if (n < 1 || n > 64)
		return 1;
	end_us = now_us() + (uint64_t)(strtod(argv[1], NULL) * 1e6);
	log_file = fopen(argv[3], "w");
	for (int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, serve, NULL);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return fclose(log_file);
}
