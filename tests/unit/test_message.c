/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/message.h"

static int ends[2];

static void open_ends(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}

TestSuite(message, .init = open_ends);

Test(message, bytes_and_a_descriptor_arrive)
{
	_cleanup_str_ struct str got = {};
	struct stat a, b;
	int pass = -1;
	u32 kind;

	cr_assert_eq(message_send(ends[0], 7, "abc", 3, STDIN_FILENO), 0);
	cr_assert_eq(message_send(ends[0], 8, NULL, 0, -1), 0);
	cr_assert_eq(message_receive(ends[1], 3, &kind, &got, &pass), 0);
	cr_assert_eq(kind, 7);
	cr_assert_str_eq(str_get(&got), "abc");
	cr_assert_neq(pass, -1);
	cr_assert(fstat(pass, &a) == 0 && fstat(STDIN_FILENO, &b) == 0);
	cr_assert(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	cr_assert(fcntl(pass, F_GETFD) & FD_CLOEXEC);
	close(pass);
	cr_assert_eq(message_receive(ends[1], 3, &kind, &got, &pass), 0);
	cr_assert(kind == 8 && got.n == 0 && pass == -1);
}

/* One that takes no descriptors is not filled up with them. */
Test(message, an_unwanted_descriptor_is_dropped)
{
	_cleanup_str_ struct str got = {};
	int next = dup(STDIN_FILENO);
	u32 kind;

	close(next);
	for (u32 i = 0; i < 3; i++)
		cr_assert_eq(message_send(ends[0], i, "x", 1, STDIN_FILENO), 0);
	for (u32 i = 0; i < 3; i++)
		cr_assert_eq(message_receive(ends[1], 1, &kind, &got, NULL), 0);
	cr_assert_eq(dup(STDIN_FILENO), next);
}

static void *send_large(void *arg)
{
	const struct str *data = arg;

	cr_assert_eq(message_send(ends[0], 1, data->data, data->n, -1), 0);
	return NULL;
}

/* More than the socket holds at once. */
Test(message, a_large_one_arrives_whole)
{
	_cleanup_str_ struct str sent = {}, got = {};
	pthread_t sender;
	u32 kind;

	for (u32 i = 0; i < 1000000; i++)
		str_append(&sent, &i, sizeof(i));
	cr_assert_eq(pthread_create(&sender, NULL, send_large, &sent), 0);
	cr_assert_eq(message_receive(ends[1], sent.n, &kind, &got, NULL), 0);
	cr_assert_eq(pthread_join(sender, NULL), 0);
	cr_assert_eq(got.n, sent.n);
	cr_assert_eq(memcmp(got.data, sent.data, sent.n), 0);
}

Test(message, what_is_too_long_or_cut_is_refused)
{
	_cleanup_str_ struct str got = {};
	u32 kind = 99;

	cr_assert_eq(message_send(ends[0], 1, "abcd", 4, -1), 0);
	cr_assert_eq(message_receive(ends[1], 3, &kind, &got, NULL), -EMSGSIZE);
	cr_assert_eq(kind, 99);
	open_ends();
	/* A header that promises 4 GiB, and one byte. */
	cr_assert_eq(write(ends[0], "\1\0\0\0\377\377\377\377x", 9), 9);
	close(ends[0]);
	cr_assert_eq(message_receive(ends[1], (size_t)1 << 33, &kind, &got, NULL), -EPIPE);
	cr_assert_eq(message_receive(ends[1], 3, &kind, &got, NULL), -EPIPE);
	cr_assert_eq(message_send(ends[1], 1, "x", 1, -1), -EPIPE);
}
