<?php
// SPDX-License-Identifier: Apache-2.0
// Regular expressions that PCRE2's JIT has compiled, for test_php.py: called by PHP, and by PHP that a regular
// expression's replacement has called back. A line that the test refers to carries a comment @name.

function matching($text)
{
    return preg_match('/(\w+)\s+(\w+)[=#]/', $text); // @matching
}

function inside($text)
{
    return preg_match_all('/(?:a|b|cd)+[e-h]{2,}?[=#]/', $text); // @inside
}

class Replaces
{
    public function round($text)
    {
        return preg_replace_callback('/\(lm.*?[=#]|7\)/s', [$this, 'replacement'], $text); // @round
    }

    public function replacement($found)
    {
        return $found[0] . inside(self::TEXT); // @replacement
    }

    const TEXT = 'abcdefgh ijk (lm(n)(op) 7) abcdefgh ijk (lm(n)(op) 7) abcdefgh ijk abcdcdcdcdcdefgh cdcdcdefghabcd';
}

echo "ready\n";
$text = str_repeat(Replaces::TEXT . "\n", 20);
$replaces = new Replaces();
while (true) {
    matching($text); // @main
    $replaces->round($text); // @main
}
