/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/privilege.h"

/* As SystemCallFilter=~@privileged of a unit does. */
static int refuse_capset(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_capset, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {ARRAY_SIZE(code), code};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

Test(privilege, a_process_that_has_none_may_be_refused_to_drop_them)
{
	pid_t child = fork();
	struct rlimit core;
	int status;

	if (!child) {
		if (privilege_keep(0, NULL) < 0 || refuse_capset() < 0)
			_exit(1);
		if (syscall(SYS_capset, NULL, NULL) == 0 || errno != EPERM)
			_exit(2);
		if (privilege_keep(0, NULL) < 0)
			_exit(3);
		_exit(getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_max ? 4 : 0);
	}
	cr_assert(child > 0 && waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned int)status);
}
