/* SPDX-License-Identifier: Apache-2.0 */
/* Names from the files of container engines, in roots that the tests make, and files to ignore. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/identity/container.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DOCKER "var/lib/docker/containers/" ID
#define K8S "run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID
#define CRIO "run/containers/storage/overlay-containers/" ID "/userdata"
#define PODMAN "var/lib/containers/storage/overlay-containers"
#define RUNC "run/runc/" ID

static char root[64];
static struct container_lists lists;

static void make_root(void)
{
	snprintf(root, sizeof(root), "/tmp/culprit-test-container-XXXXXX");
	cr_assert(mkdtemp(root));
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, dir);
	for (char *p = path + strlen(root) + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		(void)mkdir(path, 0700);
		*p = c;
		if (!c)
			break;
	}
	snprintf(path, sizeof(path), "%s/%s/%s", root, dir, name);
	f = fopen(path, "we");
	cr_assert(f, "%s", path);
	fputs(text, f);
	fclose(f);
}

static int note(void *arg, const char *name, const char *value)
{
	return str_printf(arg, "%s=%s\n", name, value);
}

static int describe(const char *id, struct str *ret)
{
	struct proc_cgroup_owner o = {};

	snprintf(o.container_id, sizeof(o.container_id), "%s", id);
	return container_describe(&lists, root, &o, note, ret);
}

static void expect(int status, const char *text)
{
	_cleanup_str_ struct str got = {};

	cr_assert_eq(describe(ID, &got), status);
	cr_assert_str_eq(str_get(&got), text);
}

TestSuite(container, .init = make_root);

Test(container, docker)
{
	put(DOCKER, "config.v2.json",
	    "{\"Name\":\"/web\",\"Config\":{\"Image\":\"nginx:1.2\",\"Labels\":{\"x\":\"y\"}}}");
	expect(0, "container.name=web\ncontainer.image.name=nginx:1.2\nservice.name=web\n");
}

Test(container, compose_and_a_label_that_says_it)
{
	put(DOCKER, "config.v2.json",
	    "{\"Name\":\"/shop_web_1\",\"Config\":{\"Labels\":{\"com.docker.compose.service\":"
	    "\"web\"}}}");
	expect(0, "container.name=shop_web_1\nservice.name=web\n");
	put(DOCKER, "config.v2.json",
	    "{\"Name\":\"/shop_web_1\",\"Config\":{\"Labels\":{\"com.docker.compose.service\":"
	    "\"web\",\"service.name\":\"checkout\"}}}");
	expect(0, "container.name=shop_web_1\nservice.name=checkout\n");
}

Test(container, containerd_of_kubernetes)
{
	put(K8S, "config.json",
	    "{\"annotations\":{\"io.kubernetes.cri.container-name\":\"app\","
	    "\"io.kubernetes.cri.sandbox-name\":\"app-6f-x2\","
	    "\"io.kubernetes.cri.sandbox-namespace\":\"prod\","
	    "\"io.kubernetes.cri.sandbox-uid\":\"1-2\","
	    "\"io.kubernetes.cri.image-name\":\"reg/app:7\"}}");
	expect(0, "k8s.container.name=app\ncontainer.image.name=reg/app:7\n"
		  "k8s.pod.name=app-6f-x2\nk8s.pod.uid=1-2\nk8s.namespace.name=prod\n"
		  "service.name=app\n");
}

Test(container, crio)
{
	put(CRIO, "config.json",
	    "{\"annotations\":{\"io.kubernetes.container.name\":\"db\","
	    "\"io.kubernetes.pod.name\":\"db-0\",\"io.kubernetes.pod.namespace\":\"prod\"}}");
	expect(0, "k8s.container.name=db\nk8s.pod.name=db-0\nk8s.namespace.name=prod\n"
		  "service.name=db\n");
}

Test(container, podman)
{
	put(PODMAN, "containers.json",
	    "[{\"id\":\"" OTHER "\",\"names\":[\"no\"]},{\"id\":\"" ID "\",\"names\":[\"yes\"]}]");
	expect(0, "container.name=yes\nservice.name=yes\n");
}

/* Podman has one file for all containers: it is parsed again only when it has changed. */
Test(container, podmans_list_is_parsed_once)
{
	_cleanup_str_ struct str text = {};
	char id[65];

	str_puts(&text, "[");
	for (int i = 0; i < 5000; i++)
		str_printf(&text, "%s{\"id\":\"%064x\",\"names\":[\"name-%d\"]}", i ? "," : "", i,
			   i);
	str_puts(&text, "]");
	put(PODMAN, "containers.json", str_get(&text));
	for (int i = 0; i < 5000; i++) {
		_cleanup_str_ struct str got = {}, want = {};

		snprintf(id, sizeof(id), "%064x", i);
		str_printf(&want, "container.name=name-%d\nservice.name=name-%d\n", i, i);
		cr_assert_eq(describe(id, &got), 0);
		cr_assert_str_eq(str_get(&got), str_get(&want));
	}
	cr_expect_eq(lists.root.n_parsed, 1);
	put(PODMAN, "containers.json", "[{\"id\":\"" ID "\",\"names\":[\"new\"]}]");
	expect(0, "container.name=new\nservice.name=new\n");
	container_lists_deinit(&lists);
}

Test(container, a_list_that_is_too_large_is_not_read)
{
	char *text = malloc(CONTAINER_NAMES_MAX_BYTES + 2);

	cr_assert_not_null(text);
	memset(text, ' ', CONTAINER_NAMES_MAX_BYTES + 1);
	text[CONTAINER_NAMES_MAX_BYTES + 1] = '\0';
	put(PODMAN, "containers.json", text);
	free(text);
	expect(-ENOENT, "");
	expect(-ENOENT, "");
	cr_expect_eq(lists.root.n_parsed, 0);
}

Test(container, runc)
{
	put(RUNC, "state.json",
	    "{\"config\":{\"labels\":[\"io.kubernetes.pod.name=p\",\"bundle=/x\",\"odd\",7]}}");
	expect(0, "k8s.pod.name=p\n");
}

Test(container, nothing_and_nonsense)
{
	static const char *const bad[] = {"",
					  "{",
					  "[]",
					  "7",
					  "\"\"",
					  "{\"Name\":7,\"Config\":[]}",
					  "{\"Config\":{\"Labels\":[1]}}",
					  "{\"Name\":\"\"}",
					  "\xff\xfe"};

	expect(-ENOENT, "");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_str_ struct str got = {};

		put(DOCKER, "config.v2.json", bad[i]);
		put(RUNC, "state.json", bad[i]);
		put(PODMAN, "containers.json", bad[i]);
		(void)describe(ID, &got);
		cr_assert_str_empty(str_get(&got));
	}
}

Test(container, nonsense_is_logged_with_its_place)
{
	char want[512];

	put(DOCKER, "config.v2.json", "{\"Name\": nil}");
	put(PODMAN, "containers.json", "[\n nil]");
	snprintf(want, sizeof(want),
		 "culprit: debug: %s/%s: not JSON: line 1: invalid token near 'nil' at offset 0xc\n"
		 "culprit: debug: %s/%s: not JSON: line 2: invalid token near 'nil' "
		 "at offset 0x6\n",
		 root, DOCKER "/config.v2.json", root, PODMAN "/containers.json");
	log_set_level(LOG_LEVEL_DEBUG);
	cr_redirect_stderr();
	expect(-ENOENT, "");
	fflush(stderr);
	cr_expect_stderr_eq_str(want);
}

Test(container, only_ids_are_looked_for)
{
	static const char *const ids[] = {"", "..", "../x", "a/b", "A", "a b"};
	_cleanup_str_ struct str got = {};

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		cr_assert_eq(describe(ids[i], &got), -EINVAL);
}

/* Links in the engine's directory are not followed; the directory itself may be a link. */
Test(container, links)
{
	char from[512], to[512];

	put("elsewhere/" ID, "config.v2.json", "{\"Name\":\"/web\"}");
	put("var/lib/docker", "x", "");
	snprintf(from, sizeof(from), "%s/var/lib/docker/containers", root);
	cr_assert_eq(symlink("/elsewhere", from), 0);
	expect(0, "container.name=web\nservice.name=web\n");
	cr_assert_eq(unlink(from), 0);
	put("var/lib/docker/containers", "x", "");
	snprintf(from, sizeof(from), "%s/" DOCKER, root);
	snprintf(to, sizeof(to), "%s/elsewhere/" ID, root);
	cr_assert_eq(symlink(to, from), 0);
	expect(-ENOENT, "");
	cr_assert_eq(unlink(from), 0);
	put(DOCKER, "x", "");
	snprintf(from, sizeof(from), "%s/" DOCKER "/config.v2.json", root);
	snprintf(to, sizeof(to), "%s/elsewhere/" ID "/config.v2.json", root);
	cr_assert_eq(symlink(to, from), 0);
	expect(-ENOENT, "");
	cr_assert_eq(unlink(from), 0);
	cr_assert_eq(mkfifo(from, 0600), 0);
	expect(-ENOENT, "");
}

Test(container, too_large)
{
	char *text = malloc(CONTAINER_MAX_BYTES + 32);

	cr_assert(text);
	memset(text, ' ', CONTAINER_MAX_BYTES + 32);
	memcpy(text, "{\"Name\":\"/web\"}", 15);
	text[CONTAINER_MAX_BYTES + 31] = '\0';
	put(DOCKER, "config.v2.json", text);
	expect(-ENOENT, "");
	free(text);
}

Test(container, of_another_user)
{
	char path[512];

	if (geteuid() != 0)
		cr_skip_test("needs root to give a file away");
	put(DOCKER, "config.v2.json", "{\"Name\":\"/web\"}");
	snprintf(path, sizeof(path), "%s/" DOCKER "/config.v2.json", root);
	cr_assert_eq(chown(path, 65534, 65534), 0);
	expect(-ENOENT, "");
}
