/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/identity. */
#pragma once

#include "agent/identity/container.h"

/* Passes the labels of a container of which only the name is known (container_text.c). */
int container_pass_name(const char *name, container_label *fn, void *arg);
