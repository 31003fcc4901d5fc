# SPDX-License-Identifier: Apache-2.0
# What embed.c runs.
use strict;
use warnings;

sub leaf { # @leaf
	my $x = 0; # @leaf
	for my $i (1 .. 3000) { # @leaf
		$x += $i ^ 3; # @leaf
	}
	return $x; # @leaf
}

sub first {
	leaf(); # @first
	return;
}

sub second {
	my @x = sort { leaf(); $a <=> $b } 2, 1; # @second @sort
	return;
}
