/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two requests to the flame graph probe, separated by a zero byte, and a process that the
 * configuration may mean. What a GET gives back must be JSON.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/json.h"

static const char *cmdline_of(void *arg)
{
	return "/usr/bin/java -jar shop.jar ";
}

static const struct identity_container *container_of_process(void *arg)
{
	static const struct identity_container c = {.id = "0123456789abcdef",
						    .pod_uid =
							    "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
						    .name = "shop"};

	return &c;
}

static void apply(struct stackprobe_config *c, const char *json, size_t n)
{
	char message[STACKPROBE_MESSAGE_BYTES] = "";
	struct stackprobe_config next, old = *c;

	if (stackprobe_config_put(c, json, n, 1u << STACKPROBE_MEM_GLIBC, &next, message) < 0) {
		if (!message[0] || strnlen(message, sizeof(message)) == sizeof(message))
			abort();
		return;
	}
	*c = next;
	stackprobe_config_drop(&old, c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct stackprobe_process p = {
		.pid = 7, .comm = "java", .cmdline = cmdline_of, .container = container_of_process};
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	size_t first = zero ? (size_t)(zero - data) : size;
	_cleanup_str_ struct str out = {};
	struct stackprobe_config c;
	json_t *json = NULL;

	stackprobe_config_init(&c);
	apply(&c, (const char *)data, first);
	if (zero)
		apply(&c, (const char *)zero + 1, size - first - 1);
	(void)stackprobe_choose(c.snoopers, &p);
	stackprobe_config_print(&c, &out);
	if (!out.failed && json_read(str_get(&out), out.n, 0, &json, NULL) < 0)
		abort();
	json_decref(json);
	stackprobe_config_deinit(&c);
	return 0;
}
