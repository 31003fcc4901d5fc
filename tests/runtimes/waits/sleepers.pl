# SPDX-License-Identifier: Apache-2.0
# Sleeps on in functions of its own. A comment "in NAME" marks the line at which NAME waits.
use strict;
use warnings;

sub main_inner {
    sleep 1000; # in main_inner
}

sub main_middle {
    main_inner(); # in main_middle
}

sub main_outer {
    main_middle(); # in main_outer
}

$| = 1;
print "ready\n";
main_outer(); # in program
