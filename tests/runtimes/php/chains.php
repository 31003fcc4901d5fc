<?php
// SPDX-License-Identifier: Apache-2.0
// The program that test_php.py profiles: known chains through PHP, C and PHP again. A line that the test refers to
// carries a comment @name. Runs until it is killed, or serves a request for so many rounds.

function leaf($n)
{
    $x = 0;
    for ($i = 0; $i < $n; $i++) { // @leaf
        $x += $i * $i % 7; // @leaf
    }
    return $x; // @leaf
}

trait Traited
{
    public function ofTrait($n)
    {
        return leaf($n); // @ofTrait
    }
}

class Outer
{
    use Traited;

    public function method($n)
    {
        return $this->ofTrait($n); // @method
    }

    public static function fixed($n)
    {
        return (new Outer)->method($n); // @fixed
    }

    public function __get($name)
    {
        return self::fixed(3000); // @__get
    }

    public function __call($name, $arguments)
    {
        return leaf(3000); // @__call
    }

    public function __toString()
    {
        return (string) leaf(3000); // @__toString
    }
}

class Ends
{
    public function __destruct()
    {
        leaf(3000); // @__destruct
    }
}

class Pair implements IteratorAggregate
{
    #[ReturnTypeWillChange]
    public function getIterator()
    {
        return new Walk; // @getIterator
    }
}

class Walk implements Iterator
{
    private $at = 0;

    #[ReturnTypeWillChange]
    public function current()
    {
        return leaf(3000); // @current
    }

    #[ReturnTypeWillChange]
    public function key()
    {
        return $this->at; // @key
    }

    #[ReturnTypeWillChange]
    public function next()
    {
        $this->at++; // @next
    }

    #[ReturnTypeWillChange]
    public function rewind()
    {
        $this->at = 0; // @rewind
    }

    #[ReturnTypeWillChange]
    public function valid()
    {
        return $this->at < 2; // @valid
    }
}

function by_key($a, $b)
{
    return (new Outer)->value % 3; // @by_key
}

function through_usort()
{
    $list = [3, 1, 2]; // @through_usort
    usort($list, 'by_key'); // @through_usort
    return $list; // @through_usort
}

function generator()
{
    while (true) { // @generator
        yield by_key(1, 2); // @generator
    }
}

function delegates()
{
    yield from generator(); // @delegates
}

function delegates_again()
{
    yield from delegates(); // @delegates_again
}

function through_foreach()
{
    foreach (generator() as $value) { // @through_foreach
        return $value; // @through_foreach
    }
}

function through_delegates()
{
    $outer = delegates_again(); // @through_delegates
    return $outer->current(); // @through_delegates
}

function through_closure()
{
    return array_map(function ($n) { // @through_closure
        return leaf(3000); // @closure
    }, [1, 2]); // @through_closure
}

function through_arrow()
{
    return array_filter([1, 2], fn($n) => leaf(3000)); // @through_arrow
}

function through_magic()
{
    $o = new Outer; // @through_magic
    $o->unknown(1); // @through_magic
    return "$o"; // @through_magic
}

function through_destructor()
{
    return array_map(function ($n) { // @through_destructor
        $ends = new Ends; // @ending
        return 1; // @ending
    }, [1, 2]); // @through_destructor
}

function through_iterator()
{
    foreach (new Pair as $value) { // @through_iterator
        $last = $value; // @through_iterator
    }
    return $last; // @through_iterator
}

function through_iterators_of_generators()
{
    $g = (function () { // @through_iterators
        yield from new Walk; // @yields
    })(); // @through_iterators
    return $g->current(); // @through_iterators
}

function through_anonymous()
{
    $object = new class {
        public function run()
        {
            return leaf(3000); // @anonymous
        }
    };
    return call_user_func_array([$object, 'run'], []); // @through_anonymous
}

function through_include()
{
    return include __DIR__ . '/included.php'; // @through_include
}

function through_eval()
{
    return eval('return leaf(3000);'); // @through_eval
}

function through_replace()
{
    return preg_replace_callback('/b/', function ($m) { // @through_replace
        return (string) leaf(3000); // @replacing
    }, 'abc'); // @through_replace
}

function deep($n)
{
    if ($n) { // @deep
        return deep($n - 1); // @deep
    }
    return leaf(3000); // @deepest
}

function through_deep()
{
    return deep(40); // @through_deep
}

function through_hash()
{
    static $text = null; // @through_hash
    $text = $text ?? str_repeat('x', 100000); // @through_hash
    return hash('sha256', $text); // @through_hash
}

function round_of_all()
{
    through_usort(); // @round
    through_foreach(); // @round
    through_delegates(); // @round
    through_closure(); // @round
    through_arrow(); // @round
    through_magic(); // @round
    through_destructor(); // @round
    through_iterator(); // @round
    through_iterators_of_generators(); // @round
    through_anonymous(); // @round
    through_include(); // @round
    through_eval(); // @round
    through_replace(); // @round
    through_deep(); // @round
    through_hash(); // @round
}

$rounds = isset($_GET['rounds']) ? (int) $_GET['rounds'] : PHP_INT_MAX; // @main
echo "ready\n"; // @main
flush(); // @main
while ($rounds-- > 0) { // @main
    round_of_all(); // @main
}
