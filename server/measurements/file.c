/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of measurements, DIRECTORY/measurement-ID.json. The lock is held while one is written; that
 * is rare.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "server/measurements/internal.h"

#define MAX_FILE_BYTES (8u << 20)
#define PREFIX "measurement-"
#define SUFFIX ".json"

static int path_of(const struct measurements *m, const char *id, struct str *ret)
{
	str_printf(ret, "%s/" PREFIX "%s" SUFFIX, m->directory, id);
	return ret->failed ? -ENOMEM : 0;
}

int measurement_file_save(const struct measurements *m, struct measurement_entry *e,
			  struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {}, path = {};
	struct json_writer w = {.out = &text};
	int r;

	e->changed = false;
	e->saved_ms = clock_epoch_ms();
	if (!m->directory)
		return 0;
	json_open_object(&w, NULL);
	measurement_put_file(&w, &e->info);
	json_close(&w);
	str_putc(&text, '\n');
	r = text.failed ? -ENOMEM : path_of(m, e->info.id, &path);
	if (r == 0)
		r = io_replace(str_get(&path), text.data, text.n);
	if (r == 0)
		return 0;
	e->changed = true;
	if (!reterr_diag)
		log_warn("%s: cannot write the file of a measurement: %s; the server tries again",
			 str_get(&path), strerror(-r));
	return diag_set(reterr_diag, r, "cannot write the file of a measurement: %s", strerror(-r));
}

void measurement_file_remove(const struct measurements *m, const char *id)
{
	_cleanup_str_ struct str path = {};

	if (m->directory && path_of(m, id, &path) == 0 && unlink(str_get(&path)) < 0 &&
	    errno != ENOENT)
		log_warn("%s: cannot remove the file of a measurement: %s", str_get(&path),
			 strerror(errno));
}

static int load_file(void *arg, const char *id)
{
	struct measurements *m = arg;
	_cleanup_str_ struct str path = {}, text = {};
	struct measurement_entry *e;
	struct diag d = {};
	json_t *o = NULL;
	int r;

	if (m->list.n >= MEASUREMENTS_MAX)
		return 0;
	e = calloc(1, sizeof(*e));
	r = e ? path_of(m, id, &path) : -ENOMEM;
	if (r == 0)
		r = io_read(str_get(&path), MAX_FILE_BYTES, &text);
	if (r == 0)
		r = json_read(str_get(&text), text.n, 0, &o, &d);
	if (r == 0)
		r = measurement_read(o, &e->info, &d);
	json_decref(o);
	/* The file's name counts. */
	if (r == 0)
		snprintf(e->info.id, sizeof(e->info.id), "%s", id);
	if (r == 0)
		r = vec_push(&m->list, e);
	if (r < 0)
		measurement_entry_destroy(e);
	if (r < 0 && r != -ENOMEM)
		log_warn("%s: %s; this measurement is left out", str_get(&path),
			 d.text[0] ? d.text : strerror(-r));
	return r == -ENOMEM ? r : 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct measurement_info *x = &(*(struct measurement_entry *const *)a)->info,
				      *y = &(*(struct measurement_entry *const *)b)->info;

	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

int measurement_files_load(struct measurements *m, struct diag *reterr_diag)
{
	int r = io_each_id(m->directory, PREFIX, SUFFIX, CONTROL_ID_BYTES - 1, load_file, m,
			   reterr_diag);

	if (m->list.n)
		qsort(m->list.data, m->list.n, sizeof(*m->list.data), compare_entries);
	return r;
}
