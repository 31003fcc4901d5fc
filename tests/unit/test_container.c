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

#include "agent/identity/containers.h"
#include "base/cleanup.h"
#include "base/clock.h"
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

Test(container, podman_with_another_driver_of_its_storage)
{
	put("var/lib/containers/storage/vfs-containers", "containers.json",
	    "[{\"id\":\"" ID "\",\"names\":[\"yes\"]}]");
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

/* ---- engines that came later ---- */

Test(container, isulad)
{
	put("var/lib/isulad/engines/lcr/" ID, "config.v2.json",
	    "{\"CommonConfig\":{\"Name\":\"box\",\"Image\":\"busybox:1\",\"Config\":{\"Labels\":{"
	    "\"io.kubernetes.pod.name\":\"p-1\",\"io.kubernetes.container.name\":\"c\"},"
	    "\"Annotations\":{\"io.kubernetes.cri.sandbox-uid\":\"1-2\"}}},\"State\":{}}");
	expect(0, "k8s.container.name=c\ncontainer.name=box\ncontainer.image.name=busybox:1\n"
		  "k8s.pod.name=p-1\nk8s.pod.uid=1-2\nservice.name=c\n");
}

static void expect_owner(const struct proc_cgroup_owner *o, int status, const char *text)
{
	_cleanup_str_ struct str got = {};

	cr_assert_eq(container_describe(&lists, root, o, note, &got), status);
	cr_expect_str_eq(str_get(&got), text);
}

Test(container, with_names)
{
	struct proc_cgroup_owner o = {.container_name = "web-1"};

	expect_owner(&o, 0, "container.name=web-1\nservice.name=web-1\n");
	/* The second group of "web": there is no "web-1". */
	put("var/lib/lxc/web", "config", "");
	expect_owner(&o, 0, "container.name=web\nservice.name=web\n");
	put("var/lib/incus/containers/web-1", "x", "");
	expect_owner(&o, 0, "container.name=web-1\nservice.name=web-1\n");
	put("run/systemd/machines", "web-1", "# private\nNAME=web-1\nCLASS=container\n");
	expect_owner(&o, 0, "container.name=web-1\nservice.name=web-1\n");
	put("run/systemd/machines", "web-1", "NAME=web-1\nCLASS=vm\n");
	expect_owner(&o, 0, "");
	/* Names that are no names of files. */
	snprintf(o.container_name, sizeof(o.container_name), "../x/y-2");
	expect_owner(&o, 0, "container.name=../x/y-2\nservice.name=../x/y-2\n");
}

/* The host's files say nothing of a container in a container, or of what a user calls so. */
Test(container, that_the_hosts_files_do_not_describe)
{
	struct proc_cgroup_owner nested = {.container_id = ID, .nested = true};
	struct proc_cgroup_owner users = {.container_id = ID, .user = 1000};
	struct proc_cgroup_owner named = {.container_name = "web", .nested = true};

	put(DOCKER, "config.v2.json", "{\"Name\":\"/not-this\"}");
	put("run/systemd/machines", "web", "NAME=other\nCLASS=container\n");
	expect_owner(&nested, -ENOENT, "");
	expect_owner(&users, -ENOENT, "");
	expect_owner(&named, 0, "container.name=web\nservice.name=web\n");
	cr_expect_eq(container_stamp(root, &nested), 0);
	cr_expect_eq(container_stamp(root, &users), 0);
}

#define ALICE "home/alice/.local/share"

static void give_to(const char *path, uid_t uid)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	cr_assert_eq(lchown(full, uid, uid), 0);
}

Test(container, of_a_user_without_root)
{
	struct proc_cgroup_owner o = {.container_id = ID, .user = 54321};
	struct proc_cgroup_owner other = {.container_id = ID, .user = 54322};
	char from[512], to[512], *large;

	if (geteuid() != 0)
		cr_skip_test("needs root to give files away");
	put("etc", "passwd",
	    "root:x:0:0::/root:/bin/sh\nodd\nalice:x:54321:1::/home/alice:/bin/sh\n"
	    "bob:x:54322:1::/home/bob:/bin/sh\n");
	put(ALICE "/docker/containers/" ID, "config.v2.json", "{\"Name\":\"/hers\"}");
	give_to(ALICE "/docker/containers/" ID "/config.v2.json", 54321);
	expect_owner(&o, 0, "container.name=hers\nservice.name=hers\n");
	expect_owner(&other, -ENOENT, "");
	cr_expect_neq(container_stamp(root, &o), 0);
	/* Somebody else's file, a link, and one that is too large, in her home. */
	give_to(ALICE "/docker/containers/" ID "/config.v2.json", 54322);
	expect_owner(&o, -ENOENT, "");
	put(DOCKER, "config.v2.json", "{\"Name\":\"/of-root\"}");
	snprintf(from, sizeof(from), "%s/" ALICE "/docker/containers/" ID "/config.v2.json", root);
	snprintf(to, sizeof(to), "%s/" DOCKER "/config.v2.json", root);
	cr_assert_eq(unlink(from), 0);
	cr_assert_eq(symlink(to, from), 0);
	expect_owner(&o, -ENOENT, "");
	cr_assert_eq(unlink(from), 0);
	large = malloc(CONTAINER_USER_MAX_BYTES + 32);
	cr_assert(large);
	memset(large, ' ', CONTAINER_USER_MAX_BYTES + 31);
	memcpy(large, "{\"Name\":\"/hers\"}", 16);
	large[CONTAINER_USER_MAX_BYTES + 31] = '\0';
	put(ALICE "/docker/containers/" ID, "config.v2.json", large);
	free(large);
	expect_owner(&o, -ENOENT, "");
	/* Her podman's list, and then root's, which is another one. */
	put(ALICE "/containers/storage/overlay-containers", "containers.json",
	    "[{\"id\":\"" ID "\",\"names\":[\"her-pod\"]}]");
	expect_owner(&o, 0, "container.name=her-pod\nservice.name=her-pod\n");
	expect(0, "container.name=of-root\nservice.name=of-root\n");
}

/* ---- containers that are known ---- */

static const char *name_of(struct containers *c, u64 key)
{
	const char *name = containers_label(c, key, "container.name");

	return name ? name : "";
}

#define S 1000000000ULL

Test(containers, are_looked_at_again)
{
	struct containers c = {};
	struct proc_cgroup_owner o = {.container_id = ID}, none = {};
	u64 key, now = clock_ns(CLOCK_MONOTONIC);
	char path[512];

	make_root();
	cr_assert_eq(containers_set_root(&c, root), 0);
	cr_expect_eq(containers_see(&c, &none), 0);
	key = containers_see(&c, &o);
	cr_assert_neq(key, 0);
	cr_expect_str_empty(name_of(&c, key));
	/* The file appears: not before a second has passed. */
	put(DOCKER, "config.v2.json", "{\"Name\":\"/first\"}");
	containers_follow(&c, now);
	cr_expect_str_empty(name_of(&c, key));
	containers_follow(&c, now += 2 * S);
	cr_expect_str_eq(name_of(&c, key), "first");
	/* It is written anew: within five seconds. */
	put(DOCKER, "config.v2.json", "{\"Name\":\"/second\"}");
	containers_follow(&c, now + 4 * S);
	cr_expect_str_eq(name_of(&c, key), "first");
	containers_follow(&c, now += 6 * S);
	cr_expect_str_eq(name_of(&c, key), "second");
	/* While it is damaged, and when it is gone, the container is what it was. */
	put(DOCKER, "config.v2.json", "{\"Na");
	containers_follow(&c, now += 6 * S);
	cr_expect_str_eq(name_of(&c, key), "second");
	snprintf(path, sizeof(path), "%s/" DOCKER "/config.v2.json", root);
	cr_assert_eq(unlink(path), 0);
	containers_follow(&c, now += 6 * S);
	cr_expect_str_eq(name_of(&c, key), "second");
	cr_expect_eq(containers_see(&c, &o), key);
	containers_deinit(&c);
}

/* A number behind the name of an LXC container is known to be one as long as there are files. */
Test(containers, keep_the_name_when_their_folder_goes)
{
	struct containers c = {};
	struct proc_cgroup_owner o = {.container_name = "web-1"};
	u64 key, now = clock_ns(CLOCK_MONOTONIC);
	char path[512];

	make_root();
	cr_assert_eq(containers_set_root(&c, root), 0);
	key = containers_see(&c, &o);
	cr_expect_str_eq(name_of(&c, key), "web-1");
	put("var/lib/lxc/web", "config", "");
	containers_follow(&c, now += 6 * S);
	cr_expect_str_eq(name_of(&c, key), "web");
	snprintf(path, sizeof(path), "%s/var/lib/lxc/web/config", root);
	cr_assert_eq(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	cr_assert_eq(rmdir(path), 0);
	containers_follow(&c, now += 6 * S);
	cr_expect_str_eq(name_of(&c, key), "web");
	containers_deinit(&c);
}

Test(containers, are_forgotten_when_nobody_asks_and_bounded)
{
	struct containers c = {};
	struct proc_cgroup_owner o = {};
	u64 key;

	make_root();
	cr_assert_eq(containers_set_root(&c, root), 0);
	for (u32 i = 0; i < CONTAINERS_MAX; i++) {
		snprintf(o.container_id, sizeof(o.container_id), "%064x", i);
		cr_assert_neq(containers_see(&c, &o), 0);
	}
	snprintf(o.container_id, sizeof(o.container_id), "%064x", CONTAINERS_MAX);
	cr_expect_eq(containers_see(&c, &o), 0, "all are in use");
	cr_expect_eq(c.left_out, 1);
	containers_sweep(&c);
	key = containers_see(&c, &o);
	cr_expect_neq(key, 0);
	cr_expect_leq(c.by_key.n, CONTAINERS_MAX);
	for (int i = 0; i < 3; i++) {
		containers_keep(&c, key);
		containers_sweep(&c);
	}
	cr_expect_eq(c.by_key.n, 1);
	cr_expect_eq(containers_see(&c, &o), key);
	containers_deinit(&c);
}

/* Two owners of one id are not one container: what may be read of them differs. */
Test(containers, are_told_apart_by_their_origin)
{
	struct proc_cgroup_owner all[] = {{.container_id = ID},
					  {.container_id = ID, .nested = true},
					  {.container_id = ID, .user = 1000},
					  {.container_id = ID, .user = 1001},
					  {.container_name = ID}};
	struct containers c = {};

	make_root();
	cr_assert_eq(containers_set_root(&c, root), 0);
	for (u32 i = 0; i < ARRAY_SIZE(all); i++) {
		cr_assert_neq(containers_see(&c, &all[i]), 0);
		cr_expect_eq(c.by_key.n, i + 1);
	}
	containers_deinit(&c);
}
