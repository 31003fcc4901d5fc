/* SPDX-License-Identifier: Apache-2.0 */
#include "base/privilege.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/str.h"

#define OWN_USER "culprit"
#define FIRST_FREE_UID 60578
#define LAST_FREE_UID 61183
#define ENTRY_BYTES 4096 /* strings of an entry of passwd(5) */

/* ---- users ---- */

/* 0 with `name` NULL: by number. -ENOENT: there is no such user. */
static int look_up(const char *name, uid_t uid, struct privilege_user *ret)
{
	struct passwd entry, *found = NULL;
	char text[ENTRY_BYTES];
	int r = name ? getpwnam_r(name, &entry, text, sizeof(text), &found)
		     : getpwuid_r(uid, &entry, text, sizeof(text), &found);

	if (!found)
		return r == ERANGE ? -ERANGE : -ENOENT;
	*ret = (struct privilege_user){.uid = found->pw_uid, .gid = found->pw_gid};
	snprintf(ret->name, sizeof(ret->name), "%s", found->pw_name);
	return 0;
}

static void nameless(uid_t uid, struct privilege_user *ret)
{
	*ret = (struct privilege_user){.uid = uid, .gid = uid};
	snprintf(ret->name, sizeof(ret->name), "%u", uid);
}

int privilege_find_user(const char *name, struct privilege_user *ret, struct diag *reterr_diag)
{
	struct privilege_user u;
	u64 number;

	if (name && str_to_u64(name, 10, &number) == 0 && number < UINT32_MAX) {
		if (look_up(NULL, (uid_t)number, ret) < 0)
			nameless((uid_t)number, ret);
		return 0;
	}
	if (look_up(name ? name : OWN_USER, 0, ret) == 0)
		return 0;
	if (name)
		return diag_set(reterr_diag, -EINVAL, "--user %s: there is no such user", name);
	for (uid_t uid = FIRST_FREE_UID; uid <= LAST_FREE_UID; uid++)
		if (look_up(NULL, uid, &u) == -ENOENT) {
			nameless(uid, ret);
			return 0;
		}
	return diag_set(reterr_diag, -ENOENT, "no free user number from %d to %d: give --user NAME",
			FIRST_FREE_UID, LAST_FREE_UID);
}

/* ---- capabilities ---- */

static int set_capabilities(u64 keep)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct now[2] = {}, after[2] = {};

	if (syscall(SYS_capget, &h, now) < 0)
		return -errno;
	for (u32 i = 0; i < 2; i++) {
		after[i].permitted = now[i].permitted & (u32)(keep >> 32 * i);
		after[i].effective = after[i].permitted;
	}
	/* A unit's filter may refuse capset(2) to a process that has nothing to drop. */
	if (!memcmp(now, after, sizeof(now)))
		return 0;
	return syscall(SYS_capset, &h, after) < 0 ? -errno : 0;
}

/* Without CAP_SETPCAP the bounding set stays: no_new_privs keeps it from mattering. */
static int bound_capabilities(u64 keep)
{
	for (u32 cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EPERM ? 0 : -errno;
	return 0;
}

static int keep_capabilities(u64 keep)
{
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	r = bound_capabilities(keep);
	return r < 0 ? r : set_capabilities(keep);
}

int privilege_keep(u64 capabilities, struct diag *reterr_diag)
{
	const struct rlimit none = {};
	int r = keep_capabilities(capabilities);

	if (r == 0 && setrlimit(RLIMIT_CORE, &none) < 0)
		r = -errno;
	return r < 0 ? diag_set(reterr_diag, r, "cannot drop capabilities: %s", strerror(-r)) : 0;
}

/* ---- all of it ---- */

static int change_user(const struct privilege_user *u, struct diag *reterr_diag)
{
	if (setgroups(0, NULL) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
	    setresuid(u->uid, u->uid, u->uid) < 0)
		return diag_set(reterr_diag, -errno,
				"cannot become user %s: %s; give --user NAME with a user that "
				"exists here",
				u->name, strerror(errno));
	return 0;
}

int privilege_drop(const struct privilege_user *u, struct diag *reterr_diag)
{
	int r = bound_capabilities(0);

	if (r == 0 && u)
		r = change_user(u, reterr_diag);
	if (r == 0)
		r = privilege_keep(0, reterr_diag);
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = -errno;
	return r < 0 ? diag_set(reterr_diag, r, "cannot drop privileges: %s", strerror(-r)) : 0;
}
