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

/*
 * Finds an id at the end of a path component: alone, or after the engine's prefix
 * ("docker-ID.scope", "cri-containerd-ID.scope", "crio-ID", "libpod-ID.scope").
 */
static bool find_container(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	const char *dash;

	if (n > 6 && !memcmp(s + n - 6, ".scope", 6))
		n -= 6;
	dash = memrchr(s, '-', n);
	/* ECS: 32 digits, a dash and a number. */
	if (dash && dash - s == 32 && hex_digits(s, 32) == 32 &&
	    strspn(dash + 1, "0123456789") >= n - 33 && n > 33 && n <= 64) {
		memcpy(ret->container_id, s, n);
		ret->container_id[n] = '\0';
		return true;
	}
	if (dash) {
		n -= (size_t)(dash + 1 - s);
		s = dash + 1;
	}
	if (n != 64 || hex_digits(s, n) != 64)
		return false;
	memcpy(ret->container_id, s, 64);
	ret->container_id[64] = '\0';
	return true;
}

/* "pod8f…" or "kubepods-burstable-pod8f….slice", with '_' for '-' in the second. */
static void find_pod(const char *s, size_t n, struct proc_cgroup_owner *ret)
{
	const char *pod = memmem(s, n, "pod", 3);
	char uid[37];

	for (; pod; pod = memmem(pod + 1, (size_t)(s + n - pod - 1), "pod", 3)) {
		size_t left = (size_t)(s + n - pod) - 3, i;

		if (left < 36 || (pod > s && pod[-1] != '-'))
			continue;
		for (i = 0; i < 36; i++) {
			bool dash = i == 8 || i == 13 || i == 18 || i == 23;
			char c = pod[3 + i];

			if (dash ? c != '-' && c != '_' : !hex_digits(&c, 1))
				break;
			uid[i] = dash ? '-' : c;
		}
		if (i < 36)
			continue;
		uid[36] = '\0';
		memcpy(ret->pod_uid, uid, sizeof(uid));
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
	*ret = (struct proc_cgroup_owner){};
	/* From the root down, so that the component nearest to the process wins. */
	while (*path) {
		size_t n = strcspn(path, "/");

		(void)find_container(path, n, ret);
		find_pod(path, n, ret);
		find_unit(path, n, ret);
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
