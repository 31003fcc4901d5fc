# SPDX-License-Identifier: Apache-2.0
# Perl's threads, each with an interpreter of its own: test_perl.py knows what each runs.
use strict;
use warnings;
use threads;

sub leaf { # @leaf
	my $x = 0; # @leaf
	for my $i (1 .. 3000) { # @leaf
		$x += $i ^ 3; # @leaf
	}
	return $x; # @leaf
}

sub one {
	while (1) {
		my $x = leaf(); # @one
	}
}

sub two {
	while (1) {
		my @x = sort { leaf(); $a <=> $b } 2, 1; # @two @sort
	}
}

$| = 1;
my @threads = map { threads->create($_) } qw(one two);
print "ready\n";
while (1) {
	my $x = leaf(); # @program
}
