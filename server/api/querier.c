/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api/internal.h"

const struct api_route api_querier_routes[] = {{}};
