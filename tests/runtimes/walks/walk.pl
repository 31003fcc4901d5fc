# SPDX-License-Identifier: Apache-2.0
# main calls outer calls (sort, in C, calls) inner, over and over.
use strict;
use warnings;

sub inner {
	my ($n) = @_;
	for my $i (1 .. 1000) {
		$n = ($n * 31 + $i) % 1000003;
	}
	return $n;
}

sub outer {
	my @sorted = sort { inner($a) <=> inner($b) } 1 .. 100;
	return @sorted;
}

sub main {
	while (1) {
		outer();
	}
}

$| = 1;
print "ready\n";
main();
