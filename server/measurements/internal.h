/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of server/measurements. */
#pragma once

#include <pthread.h>

#include "server/measurements/measurements.h"

struct measurement_entry {
	struct measurement_info info;
	bool changed;
	u64 saved_ms;
};

struct measurements {
	char *directory; /* owned; or NULL */
	pthread_mutex_t lock;
	vec(struct measurement_entry *) list; /* owned; oldest first */
};

/* The caller of what follows holds the lock. */

void measurement_entry_destroy(struct measurement_entry *e);

/* ---- file.c ---- */

/* Replaces the file, if there is a directory. */
int measurement_file_save(const struct measurements *m, struct measurement_entry *e,
			  struct diag *reterr_diag);
void measurement_file_remove(const struct measurements *m, const char *id);
int measurement_files_load(struct measurements *m, struct diag *reterr_diag);

/* ---- json.c ---- */

/* The members of a file. */
void measurement_put_file(struct json_writer *w, const struct measurement_info *i);
int measurement_read(const struct json_t *o, struct measurement_info *ret,
		     struct diag *reterr_diag);
