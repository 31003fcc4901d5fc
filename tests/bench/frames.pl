# SPDX-License-Identifier: Apache-2.0
# Burns CPU at the end of $ARGV[0] frames.
use strict;
use warnings;

sub leaf {
	my ($x, $i) = (1, 0);
	while (1) {
		$x = ($x * 5 + $i) & 0xffff;
		$i = ($i + 1) & 0xffff;
	}
}

sub level {
	my ($n) = @_;
	if ($n > 1) {
		level($n - 1);
	} else {
		leaf();
	}
	return $n;
}

level($ARGV[0] - 2);
