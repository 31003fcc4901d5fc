<?php
// SPDX-License-Identifier: Apache-2.0
// Burns CPU at the end of $argv[1] frames.
function leaf(): void
{
    $x = 1;
    $i = 0;
    while (true) {
        $x = ($x * 5 + $i) & 0xffff;
        $i = ($i + 1) & 0xffff;
    }
}

function level(int $n): int
{
    if ($n > 1) {
        level($n - 1);
    } else {
        leaf();
    }
    return $n;
}

level((int)$argv[1] - 2);
