# SPDX-License-Identifier: Apache-2.0
# What chains.pl runs with `do`.
my $x = leaf(); # @loaded
1;
