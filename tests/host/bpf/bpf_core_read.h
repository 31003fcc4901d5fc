/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing of the kernel is read where bpf/unwind is compiled for the host. */
#pragma once
