/* SPDX-License-Identifier: Apache-2.0 */
/* Empty: bpf/unwind, compiled for the host, reads no memory of the kernel. */
#pragma once
