# SPDX-License-Identifier: Apache-2.0
# The program that test_perl.py profiles: known chains through Perl, C and XS, and Perl again.
#
# A line that the test refers to carries a comment `@name`. Perl may give a statement that contains a
# block the line where the block begins. Runs until it is killed.
use strict;
use warnings;
use FindBin;
use List::Util qw(first reduce);
use Storable ();

my $turns = 1500;

sub leaf { # @leaf
	my $x = 0; # @leaf
	for my $i (1 .. $turns) { # @leaf
		$x += $i ^ 3; # @leaf
	}
	return $x; # @leaf
}

package Outer::Inner;
sub method {
	my ($class, $n) = @_;
	return main::leaf($n) + 1; # @method
}

package Number;
use overload '+' => \&add, '""' => sub { "number" };
sub add {
	my $sum = main::leaf(); # @add
	return $sum;
}

package Tied;
sub TIESCALAR { return bless [] }
sub FETCH {
	my $x = eval { # @FETCH_eval
		main::leaf() + 1; # @FETCH_eval
	};
	return after($x); # @FETCH
}
sub after {
	my $y = main::leaf(); # @after
	return $y;
}
sub STORE {
	main::leaf(); # @STORE
	return;
}

package Doomed;
sub DESTROY {
	main::leaf(); # @DESTROY
	return;
}

package Frozen;
sub STORABLE_freeze {
	main::leaf(); # @STORABLE_freeze
	return "frozen";
}

package Auto;
our $AUTOLOAD;
sub AUTOLOAD {
	main::leaf(); # @AUTOLOAD
	return;
}

package main;

sub by_value {
	leaf(); # @by_value
	return $_[0] <=> $_[1];
}

sub by_name {
	leaf(); # @by_name
	return $a <=> $b;
}

sub through_method {
	my $x = Outer::Inner->method(1); # @through_method
	return $x;
}

sub through_eval {
	my $x = eval { # @through_eval
		leaf() + 1; # @block
	};
	return $x;
}

sub through_text {
	my $x = eval 'leaf() + 1'; # @through_text
	return $x;
}

sub through_sort_block {
	my @x = sort { by_value($a, $b) } 2, 1; # @through_sort_block @sort_block
	return @x;
}

sub through_sort_statements {
	my @x = sort { # @through_sort_statements
		my $x = by_value($a, $b); # @sort_statements @through_sort_statements
		$x;
	} 2, 1;
	return @x;
}

sub through_sort_eval {
	my @x = sort { # @through_sort_eval
		my $x = eval { # @through_sort_eval @sort_eval
			by_value($a, $b) + 1; # @sort_eval
		};
		leaf(); # @sort_after_eval
		$x - 1;
	} 2, 1;
	return @x;
}

sub through_sort_sub {
	my @x = sort by_name 2, 1; # @through_sort_sub
	return @x;
}

sub through_first {
	my $x = first {
		leaf(); # @first
		$_ == 2;
	} 1, 2; # @through_first
	return $x;
}

sub through_reduce {
	my $x = reduce {
		leaf(); # @reduce
		$a + $b;
	} 1, 2, 3; # @through_reduce
	return $x;
}

sub through_overload {
	my $x = $_[0] + 1; # @through_overload
	return $x;
}

sub through_tie {
	tie my $tied, "Tied"; # @through_tie
	my $x = $tied; # @through_tie
	$tied = 1; # @through_store
	return $x;
}

sub through_destroy {
	my $doomed = bless [], "Doomed";
	undef $doomed; # @through_destroy
	return;
}

sub through_storable {
	my $x = Storable::freeze($_[0]); # @through_storable
	return $x;
}

sub through_regex {
	my $x = "a" =~ /a(?{ leaf() })/; # @through_regex @regex
	return $x;
}

sub through_do {
	do "$FindBin::Bin/loaded.pl"; # @through_do
	return;
}

sub through_begin {
	my $x = eval 'BEGIN { leaf() } 1'; # @through_begin
	return $x;
}

sub through_closure {
	my ($f) = @_;
	my $x = $f->(); # @through_closure
	return $x;
}

sub through_goto {
	goto &target;
}

sub target {
	my $x = leaf(); # @target
	return $x;
}

sub through_autoload {
	Auto->anything(1); # @through_autoload
	return;
}

sub through_warn {
	local $SIG{__WARN__} = sub {
		leaf(); # @warn
		return;
	};
	warn "a warning"; # @through_warn
	return;
}

sub through_signal {
	kill USR1 => $$; # @through_signal
	return; # @through_signal
}

sub on_signal {
	leaf(); # @on_signal
	return;
}

sub deep {
	my ($n) = @_;
	if ($n == 0) {
		my $x = leaf(); # @deepest
		return $x;
	}
	my $x = deep($n - 1); # @deep
	return $x;
}

sub through_deep {
	my $x = deep(40); # @through_deep
	return $x;
}

my $number = bless [], "Number";
my $frozen = bless [], "Frozen";
my $y = 1;
my $closure = sub {
	my $x = leaf($y); # @closure
	return $x;
};
$SIG{USR1} = \&on_signal;
$| = 1;
print "ready\n";
while (1) {
	through_method(); # @program
	through_eval(); # @program
	through_text(); # @program
	through_sort_block(); # @program
	through_sort_statements(); # @program
	through_sort_eval(); # @program
	through_sort_sub(); # @program
	through_first(); # @program
	through_reduce(); # @program
	through_overload($number); # @program
	through_tie(); # @program
	through_destroy(); # @program
	through_storable($frozen); # @program
	through_regex(); # @program
	through_do(); # @program
	through_begin(); # @program
	through_closure($closure); # @program
	through_goto(); # @program
	through_autoload(); # @program
	through_warn(); # @program
	through_signal(); # @program
	through_deep(); # @program
}
