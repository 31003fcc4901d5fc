/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a process is, as labels by OpenTelemetry's semantic conventions: service.name,
 * process.executable.{name,path}, process.runtime.{name,version}, container.id,
 * container.{name,image.name}, k8s.*, systemd.unit, host.{name,id,arch}, os.type, and what
 * OTEL_RESOURCE_ATTRIBUTES of its environment says. Not its pid, which belongs to the sample.
 *
 * service.name is the first there is of: the process's own context (doc/context.md),
 * OTEL_SERVICE_NAME, service.name in
 * OTEL_RESOURCE_ATTRIBUTES, what the container's engine says (container.h), the systemd unit, the
 * executable's name.
 *
 * Thread-safe: processes are seen by the thread that records, resources made by the one that names.
 */
#pragma once

#include "agent/context/context.h"
#include "agent/procman/procman.h"
#include "agent/runtime/runtime.h"
#include "base/cleanup.h"
#include "base/types.h"
#include "profile/profile.h"

struct identities;

int identities_create(struct identities **ret);
void identities_destroy(struct identities *s);
DEFINE_CLEANUP(identities, struct identities *, identities_destroy)
#define _cleanup_identities_ _cleanup_(identities)

/*
 * Reads what is not known yet of the process's image, while it lives. False: it has just
 * begun, and what its environment says had not come yet; see it again with its next sample.
 */
bool identities_see(struct identities *s, const struct procman_process *p, struct runtimes *r);
/*
 * What the process says of itself, which counts more than all that was found out about it: in place
 * of what it said before.
 */
void identities_say(struct identities *s, const struct procman_process *p,
		    const struct context_label *labels, u32 n);
/* The labels of what was seen; of what was not, those of the host and of its name. */
int identities_resource(struct identities *s, u64 image, const char *comm, struct profile *into,
			u32 *ret_resource);
/*
 * What resources have of this name whose processes say nothing of it themselves, cut to n: by
 * identities_set_labels(), or the host's; "" when it is not known.
 */
void identities_host(struct identities *s, const char *name, char *ret, size_t n);
/*
 * Forgets those that were neither seen nor asked for since the last but one call. What was seen
 * before the call is there for the batch that is named after it.
 */
void identities_sweep(struct identities *s);
/* Labels that were left out so far because all texts together had reached their limit. */
u64 identities_left_out(struct identities *s);

/*
 * What is said of all from now on, besides: NAME=VALUE,… as below; NULL: nothing. A process's own
 * word counts more, what is known of the host less. -EINVAL, and nothing has changed.
 */
int identities_set_labels(struct identities *s, const char *text);
/* Where the host's / is mounted, for what containers' engines say; NULL: it is /. */
int identities_set_root(struct identities *s, const char *path);

/*
 * "key=value,…" with %XX, as in OTEL_RESOURCE_ATTRIBUTES. fn gets clean UTF-8, borrowed; not 0:
 * stop, and return this. -EINVAL: not of this form; then nothing of it counts.
 */
int identity_parse_attributes(const char *text,
			      int (*fn)(void *arg, const char *name, const char *value), void *arg);
