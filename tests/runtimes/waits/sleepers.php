<?php
// SPDX-License-Identifier: Apache-2.0
// Sleeps on in functions of its own. A comment "in NAME" marks the line at which NAME waits.

function main_inner()
{
    sleep(1000); // in main_inner
}

function main_middle()
{
    main_inner(); // in main_middle
}

function main_outer()
{
    main_middle(); // in main_outer
}

echo "ready\n";
main_outer(); // in {main}
