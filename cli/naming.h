/* SPDX-License-Identifier: Apache-2.0 */
/* Names for frames of files that have none (perf.data, gperftools), from the files of this host. */
#pragma once

#include "profile/profile.h"

/*
 * Names what can be named, with inlined functions. A file is used if it has the build id that the
 * profile tells, and by its path alone if the profile tells none; kernel symbols only of the same
 * kernel. `command` stands before what is said of files that could not be used. -ENOMEM.
 */
int naming_apply(struct profile *p, const char *command);
