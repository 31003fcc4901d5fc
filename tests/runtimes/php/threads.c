/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs PHP scripts at the same time, each in a thread: threads SCRIPT…. For a thread-safe build of
 * PHP with the embedded SAPI.
 */
#include <pthread.h>
#include <stdio.h>

#include <sapi/embed/php_embed.h>

static void *run(void *arg)
{
	zend_file_handle file;

	(void)ts_resource(0);
	if (php_request_startup() == FAILURE)
		return NULL;
	zend_first_try
	{
		zend_stream_init_filename(&file, arg);
		php_execute_script(&file);
		zend_destroy_file_handle(&file);
	}
	zend_end_try();
	php_request_shutdown(NULL);
	ts_free_thread();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	if (argc > 8 || php_embed_init(1, argv) == FAILURE)
		return 1;
	for (int i = 1; i < argc; i++)
		if (pthread_create(&threads[i - 1], NULL, run, argv[i]))
			return 1;
	puts("ready");
	fflush(stdout);
	for (int i = 1; i < argc; i++)
		pthread_join(threads[i - 1], NULL);
	return 0;
}
