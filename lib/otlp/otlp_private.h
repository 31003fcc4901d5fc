/* SPDX-License-Identifier: Apache-2.0 */
/* What encoder and decoder agree on; doc/format/otlp.md says why. */
#pragma once

#include "base/arena.h"
#include "base/pb.h"
#include "base/str.h"
#include "base/types.h"
#include "otlp/otlp_profiles.pb-c.h"
#include "profile/profile.h"

/* Resource attributes that are a thread's process; the others are labels. */
#define OTLP_PID "process.pid"
#define OTLP_EXECUTABLE "process.executable.name"
/* The process's name, where the resource's label OTLP_EXECUTABLE is another. */
#define OTLP_COMM "culprit.process.comm"
/* Of a sample. */
#define OTLP_THREAD_NAME "thread.name"
#define OTLP_THREAD_ID "thread.id"
/* Which CPU: no label, as every stack would be as many as there are CPUs. */
#define OTLP_CPU "cpu.logical_number"
/* An attribute of a sample that says who it is of; the others are labels of it. */
bool otlp_is_threads_own(const char *name);
/* Of a mapping, of a location. */
#define OTLP_BUILD_ID_GNU "process.executable.build_id.gnu"
#define OTLP_BUILD_ID_GO "process.executable.build_id.go"
#define OTLP_BUILD_ID_HTLHASH "process.executable.build_id.htlhash"
#define OTLP_FRAME_TYPE "profile.frame.type"
/* Of a profile. */
#define OTLP_TITLE "culprit.title"

/* The quality of a profile, an attribute each; of the first profile of a type only. */
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

/* The value of profile.frame.type, and back: FRAME_KIND_N when there is none. */
const char *otlp_frame_type(u8 kind);
u8 otlp_frame_kind(const char *type);

/* Decodes a request that is unpacked; the arena is what it lies in. */
struct otlp_profiles;
int otlp_decode_request(const Otlp__ExportProfilesServiceRequest *in, struct arena *arena,
			struct otlp_profiles *ret, struct diag *reterr_diag);
/* OTLP's JSON into an initialised message, which lies in the arena; its limit is set here. */
int otlp_json_read(const char *data, size_t n, size_t max_bytes, struct arena *arena,
		   ProtobufCMessage *m, struct diag *reterr_diag);
/* A value that is no plain text, as text: numbers, true, hex digits, JSON for what nests. */
void otlp_any_text(const Otlp__AnyValue *v, struct str *out);
