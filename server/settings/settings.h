/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How agents sample always, as far as a server sets it: rules for hosts, which agents hear of when
 * they ask (lib/control), and what the agents say is in force.
 *
 * Of the rules for a host, each setting is that of the rule that names the host exactly, or else of
 * the one with the longest pattern that has it. The file is DIRECTORY/agents.json. All functions
 * may be called from any thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"
#include "base/json.h"
#include "base/types.h"
#include "base/vec.h"
#include "control/control.h"

#define SETTINGS_MAX_RULES 256
#define SETTINGS_MAX_AGENTS 10000 /* that are remembered */
#define SETTINGS_AGENT_MS 600000  /* for so long after they asked */

struct settings_rule {
	char host[CONTROL_TEXT_BYTES]; /* '*' stands for any characters */
	struct control_settings set;
	u64 at_ms;
	char by[64];
};

struct settings;

/* NULL: in memory only. A damaged file is an error: what was set would be lost. */
int settings_create(const char *directory, struct diag *reterr_diag, struct settings **ret);
void settings_destroy(struct settings *s);
DEFINE_CLEANUP(settings, struct settings *, settings_destroy)
#define _cleanup_settings_ _cleanup_(settings)

/*
 * Changes the rule of object's host by its other members; a rule that sets nothing is removed.
 * -EINVAL; -E2BIG: too many rules; or the file's error, and nothing has changed.
 */
int settings_set(struct settings *s, struct json_t *object, const char *by,
		 char ret_host[CONTROL_TEXT_BYTES], struct diag *reterr_diag);
/* -ENOENT. */
int settings_unset(struct settings *s, const char *host, struct diag *reterr_diag);
/* Puts rules and agents into an open object. */
void settings_put(struct settings *s, struct json_writer *w);
/* Notes what an agent says, and adds what it is to do to its answer. */
void settings_sync(struct settings *s, const struct control_request *q,
		   struct control_response *ret);
