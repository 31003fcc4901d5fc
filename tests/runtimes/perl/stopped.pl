# SPDX-License-Identifier: Apache-2.0
# The program that test_perl.py compares with Carp: one process for each chain, which writes Carp's view
# of its stack, then stays in spin(). Prints the process ids.
use strict;
use warnings;
use Carp ();
use FindBin;
use List::Util qw(first);

my ($folder) = @ARGV;
my $parent = $$;

sub trace {
	return Carp::longmess("");
}

sub spin {
	my $text = trace();
	open my $out, ">", "$folder/$$.part" or die;
	print $out $text;
	close $out;
	rename "$folder/$$.part", "$folder/$$.txt";
	1 while getppid == $parent;
}

package Tied;
sub TIESCALAR { return bless [] }
sub FETCH {
	return eval {
		main::spin();
	};
}

package Number;
use overload '<=>' => \&compare;
sub compare {
	my @x = sort {
		main::spin();
		1;
	} 2, 1;
	return 1;
}

package Doomed;
sub DESTROY {
	eval 'main::spin()';
	return;
}

package main;

sub recurse {
	my ($n) = @_;
	return recurse($n - 1) + 1 if $n;
	my $f = sub { return spin() };
	return $f->();
}

my @chains = (
	sub { tie my $x, "Tied"; my $y = $x; },
	sub { my $x = bless []; my @x = sort { $x <=> $a } 1, 2, bless([], "Number"), bless([], "Number"); },
	sub { my $x = bless [], "Doomed"; undef $x; },
	sub { recurse(3) },
	sub { first { recurse(1) } 1 .. 3; },
	sub { "abc" =~ /b(?{ spin() })/; },
	sub { eval { eval "recurse(0); 1" }; },
	sub { local $SIG{__DIE__} = sub { spin() }; eval { die "now" }; },
	sub { do "$FindBin::Bin/spins.pl"; },
);
$| = 1;
my @pids;
for my $chain (@chains) {
	my $pid = fork;
	if (!$pid) {
		$chain->();
		exit;
	}
	push @pids, $pid;
}
print "ready\n@pids\n";
wait for @pids;
