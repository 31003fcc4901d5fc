/* SPDX-License-Identifier: Apache-2.0 */
/* The signals that end or reload a command. Handlers set flags; the main thread asks for them. */
#pragma once

#include "base/types.h"

/* After this, signals_ended() is true once SIGINT or SIGTERM came; SIGPIPE is ignored. */
void signals_catch_end(void);
bool signals_ended(void);
/* After this, signals_reload_wanted() is true once after each SIGHUP. */
void signals_catch_reload(void);
bool signals_reload_wanted(void);
