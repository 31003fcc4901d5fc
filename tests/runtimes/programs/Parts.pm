# SPDX-License-Identifier: Apache-2.0
# One page for mod_perl and for nginx's Perl module.
package Parts;
use strict;
use warnings;

sub price_of {
	my $part = shift;
	return join '', map { chr(97 + ord($_) % 26) } split //, sprintf '%.6f', sqrt $part;
}

sub page {
	my %price_of = map { ("part $_" => price_of($_)) } 1 .. 400;
	my @names = sort { $price_of{$a} cmp $price_of{$b} || $a cmp $b } keys %price_of;
	return "ready\n" . join "\n", map { "$_: $price_of{$_}" } @names;
}

sub modperl {
	my $request = shift;
	$request->content_type('text/plain');
	$request->print(page());
	return 0;
}

sub nginx {
	my $request = shift;
	$request->send_http_header('text/plain');
	$request->print(page());
	return 0;
}

1;
