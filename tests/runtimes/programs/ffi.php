<?php
// SPDX-License-Identifier: Apache-2.0
// PHP that calls qsort() of libc by FFI, which calls PHP back.
$libc = FFI::cdef('void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));', 'libc.so.6');

function digest(int $n): int
{
	return crc32(str_repeat("$n", 40));
}

function compare(FFI\CData $a, FFI\CData $b): int
{
	return digest(FFI::cast('int *', $a)[0]) <=> digest(FFI::cast('int *', $b)[0]);
}

function sort_by_digest(FFI $libc, FFI\CData $numbers, int $n): void
{
	$libc->qsort($numbers, $n, 4, 'compare');
}

$end = microtime(true) + (float)$argv[1];
while (microtime(true) < $end) {
	$numbers = $libc->new('int[200]');
	for ($i = 0; $i < 200; $i++)
		$numbers[$i] = $i;
	sort_by_digest($libc, $numbers, 200);
}
echo "sorted\n";
