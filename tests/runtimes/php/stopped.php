<?php
// SPDX-License-Identifier: Apache-2.0
// Runs a scene of test_php.py: prints debug_backtrace() as JSON at its end, and then stays there.

function spin()
{
    echo json_encode(debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS)), "\n"; $n = 0; for (;;) $n++;
}

class Base
{
    public static function make()
    {
        return new static;
    }

    public function run($next)
    {
        return $next();
    }

    public function __invoke($n)
    {
        return spin();
    }

    public function __get($name)
    {
        return $this(3);
    }

    public static function __callStatic($name, $arguments)
    {
        return (new Derived)->missing;
    }
}

class Derived extends Base
{
    public function __toString()
    {
        return (string) spin();
    }
}

class Ends
{
    private $base;

    public function __construct()
    {
        $this->base = new Base;
    }

    public function __destruct()
    {
        $this->base->run(
            fn() => spin()
        );
    }
}

function inner()
{
    yield 1;
    yield spin();
}

function middle()
{
    yield 0;
    yield from inner();
}

function outer()
{
    yield from middle();
}

function ends_last()
{
    $ends = new Ends;
}

class Walk implements IteratorAggregate
{
    public function getIterator(): Iterator
    {
        return new ArrayIterator([spin()]);
    }
}

function of_iterator()
{
    yield from new Walk;
}

$scenes = [
    'calls' => function () {
        return Base::make()->run(function () {
            return call_user_func([new Derived, 'run'], 'spin');
        });
    },
    'magic' => function () {
        return Derived::unknown(
            1,
            2
        );
    },
    'text' => function () {
        return str_replace('a', 'b', new Derived);
    },
    'generators' => function () {
        $g = outer();
        foreach ($g as $value) {
            if ($value) {
                continue;
            }
        }
    },
    'resumed' => function () {
        $g = outer();
        $g->next();
        array_map(function ($n) use ($g) {
            $g->next();
        }, [1]);
    },
    'iterator' => function () {
        foreach (of_iterator() as $value) {
            return $value;
        }
    },
    'destructor' => function () {
        ends_last();
    },
    'unset' => function () {
        $ends = new Ends;
        $ends = null;
    },
    'end_of_callback' => function () {
        array_map(function ($n) {
            $ends = new Ends;
            return $n;
        }, [1]);
    },
    'include' => function () {
        return require __DIR__ . '/scene.php';
    },
    'eval' => function () {
        return eval('
            return array_map("spin", [1]);');
    },
    'sort' => function () {
        $list = ['b', 'a'];
        uasort($list, new class {
            public function __invoke($a, $b)
            {
                return spin();
            }
        });
    },
    'exception' => function () {
        try {
            throw new Exception;
        } finally {
            spin();
        }
    },
    'handler' => function () {
        set_error_handler(function () {
            return spin();
        });
        return [] . '';
    },
    'autoload' => function () {
        spl_autoload_register(function ($class) {
            spin();
        });
        return class_exists('Missing\\One');
    },
    'shutdown' => function () {
        register_shutdown_function([new Base, 'run'], 'spin');
    },
    'reflection' => function () {
        return (new ReflectionMethod('Base', 'run'))->invoke(new Base, fn() => spin());
    },
];
if (PHP_VERSION_ID >= 80100) {
    require __DIR__ . '/fibers.php';
}
if (empty($argv[1])) {
    echo json_encode(array_keys($scenes)), "\n";
    exit;
}
$scenes[$argv[1]]();
