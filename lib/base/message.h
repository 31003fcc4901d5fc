/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between two processes of ours over a stream socket. A message is a number that says what
 * it is, bytes, and at most one descriptor.
 */
#pragma once

#include "base/str.h"
#include "base/types.h"

/*
 * `pass`: a descriptor that the receiver gets a copy of, or -1. -EPIPE: the other process has
 * closed the socket; -EAGAIN: it did not read within the socket's SO_SNDTIMEO. After an error the
 * socket is of no more use.
 */
int message_send(int fd, u32 kind, const void *data, size_t n, int pass);
/*
 * Waits for a message. *ret_pass is the descriptor that came with it, owned by the caller, or -1;
 * with ret_pass NULL it is dropped. -EPIPE: the other process has closed the socket; -EMSGSIZE:
 * more than `max` bytes. After an error the socket is of no more use.
 */
int message_receive(int fd, size_t max, u32 *ret_kind, struct str *ret_data, int *ret_pass);
