/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the owner of a process from its cgroup, environment and executable. */
#include "proc/proc.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "proc/internal.h"

static size_t hex_digits(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && (isdigit((unsigned char)s[i]) || (s[i] >= 'a' && s[i] <= 'f')))
		i++;
	return i;
}

static bool has_prefix(const char *s, size_t n, const char *prefix)
{
	size_t m = strlen(prefix);

	return n >= m && !memcmp(s, prefix, m);
}

static bool has_ending(const char *s, size_t n, const char *ending)
{
	size_t m = strlen(ending);

	return n >= m && !memcmp(s + n - m, ending, m);
}

static bool has_container(const struct proc_cgroup_owner *o)
{
	return o->container_id[0] || o->container_name[0];
}

/* The pod of a container in a pod's container is still that of the outer one. */
static void set_id(struct proc_cgroup_owner *ret, const char *id, size_t n)
{
	ret->nested |= has_container(ret);
	if (ret->pod_uid[0] && ret->container_id[0] && !ret->pod_container_id[0])
		memcpy(ret->pod_container_id, ret->container_id, sizeof(ret->container_id));
	memcpy(ret->container_id, id, n);
	ret->container_id[n] = '\0';
	ret->container_name[0] = '\0';
}

/*
 * Finds an id at the end of a path component: alone, or after the engine's prefix
 * ("docker-ID.scope", "cri-containerd-ID.scope", "crio-ID", "libpod-payload-ID"). Groups such as
 * "libpod-conmon-ID.scope" are of the engine's monitor of the container.
 */
static bool find_container(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	const char *dash, *colon;

	if (has_ending(s, n, ".scope"))
		n -= 6;
	dash = memrchr(s, '-', n);
	/* ECS: 32 digits, a dash and a number. */
	if (dash && dash - s == 32 && hex_digits(s, 32) == 32 &&
	    strspn(dash + 1, "0123456789") >= n - 33 && n > 33 && n <= 64) {
		set_id(ret, s, n);
		return true;
	}
	if (dash && has_ending(s, (size_t)(dash - s), "conmon"))
		return false;
	/* "kubepods-podUID.slice:cri-containerd:ID" is systemd's form where systemd is not asked. */
	colon = memrchr(s, ':', n);
	if (colon && (!dash || colon > dash))
		dash = colon;
	if (dash) {
		n -= (size_t)(dash + 1 - s);
		s = dash + 1;
	}
	if (n != 64 || hex_digits(s, n) != 64)
		return false;
	set_id(ret, s, n);
	return true;
}

static int hex_digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* As systemd escapes names of units: \x2d is '-'. Names that are too long are left out. */
static void set_name(struct proc_cgroup_owner *ret, const char *s, size_t n)
{
	char name[sizeof(ret->container_name)];
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		bool escape = n - i >= 4 && s[i] == '\\' && s[i + 1] == 'x';
		int high = escape ? hex_digit(s[i + 2]) : -1;
		int low = escape ? hex_digit(s[i + 3]) : -1;

		if (len + 1 == sizeof(name))
			return;
		if (high >= 0 && low >= 0 && (high || low)) {
			name[len++] = (char)(high << 4 | low);
			i += 3;
		} else {
			name[len++] = s[i];
		}
	}
	name[len] = '\0';
	if (!len)
		return;
	ret->nested |= has_container(ret);
	memcpy(ret->container_name, name, len + 1);
	ret->container_id[0] = ret->unit[0] = '\0';
}

/*
 * LXC's "lxc.payload.NAME", before LXC 4 "lxc.payload/NAME" and "lxc/NAME". systemd's machines:
 * "machine-NAME.scope" and "systemd-nspawn@NAME.service", except virtual machines of libvirt, and
 * except the group "supervisor" in them. `parent`: the component before, of m bytes.
 */
static void find_named(const char *s, size_t n, const char *parent, size_t m,
		       struct proc_cgroup_owner *ret)
{
	static const char payload[] = "lxc.payload.", scope[] = "machine-",
			  service[] = "systemd-nspawn@";
	bool in_lxc = (m == 3 && !memcmp(parent, "lxc", 3)) ||
		      (m == 11 && !memcmp(parent, "lxc.payload", 11));

	if (has_prefix(s, n, payload))
		set_name(ret, s + sizeof(payload) - 1, n - (sizeof(payload) - 1));
	else if (in_lxc)
		set_name(ret, s, n);
	else if (has_prefix(s, n, scope) && has_ending(s, n, ".scope") &&
		 !has_prefix(s + 8, n - 8, "qemu"))
		set_name(ret, s + 8, n - 8 - 6);
	else if (has_prefix(s, n, service) && has_ending(s, n, ".service"))
		set_name(ret, s + sizeof(service) - 1, n - (sizeof(service) - 1) - 8);
	else if (n == 10 && !memcmp(s, "supervisor", 10) &&
		 (has_prefix(parent, m, scope) || has_prefix(parent, m, service)))
		ret->container_name[0] = '\0';
}

/* "user-1000.slice" */
static void find_user(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	u64 uid = 0;
	size_t i = 5;

	/* The first counts: below it the user may make groups of any name. */
	if (ret->user || !has_prefix(s, n, "user-") || !has_ending(s, n, ".slice"))
		return;
	for (; i < n - 6 && isdigit((unsigned char)s[i]) && uid <= ~0u; i++)
		uid = uid * 10 + (u64)(s[i] - '0');
	if (i == n - 6 && uid <= ~0u)
		ret->user = (u32)uid;
}

/* Reads a pod's uid with '-' or '_' in it, or one of 32 digits; 0: there is none at s. */
static size_t read_uid(const char *s, size_t n, char ret[37])
{
	size_t i, digits = hex_digits(s, MIN(n, (size_t)33));

	/* A static pod's is a hash. */
	if (digits == 32) {
		memcpy(ret, s, 32);
		ret[32] = '\0';
		return 32;
	}
	if (n < 36)
		return 0;
	for (i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? s[i] != '-' && s[i] != '_' : !hex_digits(s + i, 1))
			return 0;
		ret[i] = dash ? '-' : s[i];
	}
	ret[36] = '\0';
	return 36;
}

/* "pod8f…" or "kubepods-burstable-pod8f….slice", with '_' for '-' in the second. */
static void find_pod(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	const char *pod = memmem(s, n, "pod", 3);
	char uid[37];

	for (; pod; pod = memmem(pod + 1, (size_t)(s + n - pod - 1), "pod", 3)) {
		if ((pod > s && pod[-1] != '-') ||
		    !read_uid(pod + 3, (size_t)(s + n - pod) - 3, uid))
			continue;
		memcpy(ret->pod_uid, uid, strlen(uid) + 1);
		/* A container that the pod is in is a node, as kind has them. */
		ret->nested |= has_container(ret);
		ret->container_id[0] = ret->container_name[0] = ret->pod_container_id[0] = '\0';
		return;
	}
}

static void find_unit(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	static const char ending[] = ".service";
	size_t m = sizeof(ending) - 1;

	if (n <= m || memcmp(s + n - m, ending, m) != 0 || n - m >= sizeof(ret->unit))
		return;
	/* Everything in a login session belongs to the user's service manager. */
	if (n > 5 && !memcmp(s, "user@", 5))
		return;
	memcpy(ret->unit, s, n - m);
	ret->unit[n - m] = '\0';
}

void proc_cgroup_describe(const char *path, struct proc_cgroup_owner *ret)
{
	const char *parent = path;
	size_t m = 0;

	*ret = (struct proc_cgroup_owner){};
	/* From the root down, so that the component nearest to the process wins. */
	while (*path) {
		size_t n = strcspn(path, "/");

		find_pod(path, n, ret);
		find_unit(path, n, ret);
		if (!find_container(path, n, ret))
			find_named(path, n, parent, m, ret);
		find_user(path, n, ret);
		parent = path;
		m = n;
		path += n + (path[n] == '/');
	}
}

void proc_environ_parse(const char *text, size_t n_text, const char *const *names, size_t n,
			struct str *ret_values)
{
	const char *end = text + n_text;

	while (text < end) {
		const char *nul = memchr(text, '\0', (size_t)(end - text));
		const char *stop = nul ? nul : end;

		for (size_t i = 0; i < n; i++) {
			size_t m = strlen(names[i]);

			/* As with getenv(), the first of several values wins. */
			if ((size_t)(stop - text) > m && text[m] == '=' &&
			    !memcmp(text, names[i], m) && !ret_values[i].n)
				(void)str_append(&ret_values[i], text + m + 1,
						 (size_t)(stop - text) - m - 1);
		}
		text = stop + 1;
	}
}

int proc_environ_read(u32 pid, const char *const *names, size_t n, struct str *ret_values)
{
	_cleanup_free_ char *text = malloc(PROC_MAX_ENVIRON);
	size_t have;
	int r;

	if (!text)
		return -ENOMEM;
	r = proc_read_text(pid, "environ", text, PROC_MAX_ENVIRON, &have);
	if (r == 0 && !have)
		r = -ENODATA;
	if (r == 0)
		proc_environ_parse(text, have, names, n, ret_values);
	return r;
}

int proc_exe_read(u32 pid, struct str *ret_path)
{
	static const char gone[] = " (deleted)";
	char name[48], path[PATH_MAX];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%u/exe", pid);
	n = readlink(name, path, sizeof(path));
	if (n < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if ((size_t)n >= sizeof(gone) &&
	    !memcmp(path + n - (sizeof(gone) - 1), gone, sizeof(gone) - 1))
		n -= (ssize_t)sizeof(gone) - 1;
	str_clear(ret_path);
	return str_append(ret_path, path, (size_t)n);
}
