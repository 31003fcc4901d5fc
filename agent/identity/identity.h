/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels that identify a process, by OpenTelemetry's semantic conventions: service.name,
 * process.executable.{name,path}, process.runtime.{name,version}, container.id,
 * container.{name,image.name}, k8s.*, systemd.unit, host.{name,id,arch}, os.type, and
 * OTEL_RESOURCE_ATTRIBUTES of its environment. The pid is not among them: it belongs to the sample.
 *
 * service.name is the first that exists of: the process's own context (doc/context.md),
 * OTEL_SERVICE_NAME, service.name in OTEL_RESOURCE_ATTRIBUTES, what the container's engine says
 * (container.h), the systemd unit, the executable's name.
 *
 * Thread-safe: the recording thread calls identities_see(), the symbolizing thread
 * identities_resource().
 */
#pragma once

#include "agent/context/context.h"
#include "agent/procman/procman.h"
#include "agent/runtime/runtime.h"
#include "base/cleanup.h"
#include "base/types.h"
#include "profile/profile.h"

struct identities;

/* Reads the host's labels. -ENOMEM. */
int identities_create(struct identities **ret);
void identities_destroy(struct identities *s);
DEFINE_CLEANUP(identities, struct identities *, identities_destroy)
#define _cleanup_identities_ _cleanup_(identities)

/*
 * Reads what is not known yet about the process's image, while it lives. False: the process has
 * just started and its environment was not readable; call this again at its next sample.
 */
bool identities_see(struct identities *s, const struct procman_process *p, struct runtimes *r);
/*
 * Sets the labels that the process has published. They take precedence over labels that were found
 * out, and replace those published before.
 */
void identities_say(struct identities *s, const struct procman_process *p,
		    const struct context_label *labels, u32 n);
/*
 * Adds the labels of a process as a resource. A process that identities_see() never saw has only
 * the host's labels and its name.
 */
int identities_resource(struct identities *s, u64 image, const char *comm, struct profile *into,
			u32 *ret_resource);
/* A process of a service, as identities_see() saw it last. */
struct identity_process {
	u64 image;
	u64 start_ticks; /* as in struct procman_process */
	u32 pid;
};
/*
 * The processes with this service.name that are known, at most `max`; a program that a process has
 * run before may be among them. How many.
 */
size_t identities_find(struct identities *s, const char *service, struct identity_process *ret,
		       size_t max);
/*
 * Calls fn with each process that is known and its service.name, which is borrowed for the call.
 * It is called under a lock: it must return soon, and call nothing of identities.
 */
void identities_each(struct identities *s,
		     void (*fn)(void *arg, const struct identity_process *p, const char *service),
		     void *arg);
/*
 * Copies the value of this label for processes that do not set it themselves, cut to n bytes: from
 * identities_set_labels(), else the host's; "": unknown.
 */
void identities_host(struct identities *s, const char *name, char *ret, size_t n);
/*
 * Forgets processes that were neither seen nor asked for since the call before the last one.
 * Processes seen before a call stay known for the batch that is symbolized after it.
 */
void identities_sweep(struct identities *s);
/*
 * Looks again at the files of container engines, which may be written after a process has started,
 * and change. To be called about once a second.
 */
void identities_follow(struct identities *s);
/* Labels omitted so far because all texts together had reached their limit. */
u64 identities_left_out(struct identities *s);

/*
 * Sets labels for all processes: NAME=VALUE,… as below; NULL: none. A process's own labels take
 * precedence over them, and they over the host's. -EINVAL: the text is invalid, and nothing has
 * changed.
 */
int identities_set_labels(struct identities *s, const char *text);
/* Sets where the host's / is mounted, for the files of container engines; NULL: at /. */
int identities_set_root(struct identities *s, const char *path);

/*
 * Parses "key=value,…" with %XX, as in OTEL_RESOURCE_ATTRIBUTES. fn receives clean UTF-8, borrowed;
 * a result other than 0 stops and is returned. -EINVAL: the text is invalid; fn was not called.
 */
int identity_parse_attributes(const char *text,
			      int (*fn)(void *arg, const char *name, const char *value), void *arg);

/* The container of a process, as its cgroup and the files of engines tell it; "": not known. */
struct identity_container {
	char id[65];
	char outer_id[65]; /* of the pod's container that it is in */
	char pod_uid[37];
	char name[256];	    /* its own */
	char pod_name[256]; /* in its pod */
};
void identities_container(struct identities *s, u32 pid, struct identity_container *ret);
