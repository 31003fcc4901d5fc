/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes that encoder and decoder share; doc/format/otlp.md explains them. */
#pragma once

#include "base/arena.h"
#include "base/pb.h"
#include "base/pbjson.h"
#include "base/str.h"
#include "base/types.h"
#include "otlp/otlp_packed.pb-c.h"
#include "otlp/otlp_profiles_service.pb-c.h"
#include "profile/profile.h"

/* Resource attributes that describe the process of a thread; the others are labels. */
#define OTLP_PID "process.pid"
#define OTLP_EXECUTABLE "process.executable.name"
/* The name of the process, if the resource has another label OTLP_EXECUTABLE. */
#define OTLP_COMM "culprit.process.comm"
/* Of a sample. */
#define OTLP_THREAD_NAME "thread.name"
#define OTLP_THREAD_ID "thread.id"
/* The CPU. It does not become a label, or each stack would split into one per CPU. */
#define OTLP_CPU "cpu.logical_number"
/* Whether an attribute of a sample identifies its thread; the others become labels. */
bool otlp_is_threads_own(const char *name);
/* Of a mapping, of a location. */
#define OTLP_BUILD_ID_GNU "process.executable.build_id.gnu"
#define OTLP_BUILD_ID_GO "process.executable.build_id.go"
#define OTLP_BUILD_ID_HTLHASH "process.executable.build_id.htlhash"
#define OTLP_FRAME_TYPE "profile.frame.type"
/* Of a profile. */
#define OTLP_TITLE "culprit.title"

/* The quality of a profile, one attribute for each number, on the first profile of a type only. */
struct otlp_quality_field {
	const char *name;
	size_t offset; /* of a u64 in struct profile_quality */
};
#define OTLP_QUALITY_FIELDS                                                                        \
	{                                                                                          \
		{"culprit.samples.seen", offsetof(struct profile_quality, samples)},               \
			{"culprit.samples.lost", offsetof(struct profile_quality, lost)},          \
			{"culprit.samples.truncated",                                              \
			 offsetof(struct profile_quality, truncated)},                             \
			{"culprit.samples.user_stacks",                                            \
			 offsetof(struct profile_quality, user_stacks)},                           \
			{"culprit.frames.seen", offsetof(struct profile_quality, frames)},         \
			{"culprit.frames.unknown", offsetof(struct profile_quality, unknown)},     \
	}

/*
 * The value of profile.frame.type of a frame kind, and the reverse: FRAME_KIND_N if there is none.
 */
const char *otlp_frame_type(u8 kind);
u8 otlp_frame_kind(const char *type);

/* Decodes an unpacked request, which is in the arena. */
struct otlp_profiles;
int otlp_decode_request(const Otlp__ExportProfilesServiceRequest *in, struct arena *arena,
			struct otlp_profiles *ret, struct diag *reterr_diag);
/* For pbjson_read(). */
extern const struct pbjson_dialect otlp_json;
/* Appends a value as text: numbers, true, bytes in hex, nested values as JSON. */
void otlp_any_text(const Otlp__AnyValue *v, struct str *out);
