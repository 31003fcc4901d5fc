/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the vocabularies, and memory of the messages. */
#include "control/control.h"

#include <string.h>

const char *control_reason_name(enum control_reason r)
{
	static const char *const names[] = {
#define X(id, name, help) [CONTROL_REASON_##id] = name,
		CONTROL_REASONS(X)
#undef X
	};

	return r < CONTROL_REASON_N ? names[r] : "unknown";
}

const char *control_state_name(enum control_state s)
{
	static const char *const names[] = {
#define X(id, name, help) [CONTROL_STATE_##id] = name,
		CONTROL_STATES(X)
#undef X
	};

	return s < CONTROL_STATE_N ? names[s] : "unknown";
}

const char *control_outcome_name(enum control_outcome o)
{
	static const char *const names[] = {
#define X(id, name, help) [CONTROL_OUTCOME_##id] = name,
		CONTROL_OUTCOMES(X)
#undef X
	};

	return o < CONTROL_OUTCOME_N ? names[o] : "unknown";
}

const char *control_quantity_name(enum control_quantity q)
{
	static const char *const names[] = {
#define X(id, name, help) [CONTROL_QUANTITY_##id] = name,
		CONTROL_QUANTITIES(X)
#undef X
	};

	return q < CONTROL_QUANTITY_N ? names[q] : "unknown";
}

bool control_is_function(const char *name)
{
	for (const char *c = name; *c; c++)
		if ((*c == '*' && (c == name || c[-1] != '(')) || *c == '?' || (u8)*c < ' ')
			return false;
	return *name && strcmp(name, "(*") != 0;
}

void control_request_deinit(struct control_request *r)
{
	vec_deinit(&r->tasks);
	vec_deinit(&r->kept);
	vec_deinit(&r->watched);
	vec_deinit(&r->measured);
	vec_deinit(&r->calls);
}

void control_response_deinit(struct control_response *r)
{
	vec_deinit(&r->tasks);
	vec_deinit(&r->keeps);
	vec_deinit(&r->watches);
	vec_deinit(&r->measures);
}
