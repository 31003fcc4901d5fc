# SPDX-License-Identifier: Apache-2.0
# A page of Dancer2 for Starman: a route with a parameter, its own template engine, a session in a cookie.
package Shop;
use Dancer2;

set template => 'tiny';
set views    => '/tmp';
set logger   => 'null';

sub prices_of {
	my $count = shift;
	return map { {name => "part $_", price => sprintf('%.2f', sqrt($_) * 17 % 1000)} } 1 .. $count;
}

get '/parts/:count' => sub {
	my @parts = sort { $a->{price} <=> $b->{price} || $a->{name} cmp $b->{name} } prices_of(route_parameters->get('count'));
	return template dancer => {title => 'Parts', total => scalar @parts, text => to_json(\@parts)}, {layout => undef};
};

__PACKAGE__->to_app;
