<?php
// SPDX-License-Identifier: Apache-2.0
// More scenes of stopped.php, for PHP 8.1 and later.

enum Suit: string
{
    case Hearts = 'h';

    public function label(): string
    {
        return spin();
    }
}

$scenes += [
    'enum' => fn() => Suit::from('h')->label(),
    'callable' => function () {
        $spin = spin(...);
        return array_map($spin, [1]);
    },
    'fiber' => function () {
        $fiber = new Fiber(function () {
            Fiber::suspend(1);
            array_map('spin', [1]);
        });
        $fiber->start();
        $fiber->resume();
    },
    'fiber_in_fiber' => function () {
        $outer = new Fiber(function () {
            $inner = new Fiber(function () {
                Fiber::suspend(1);
                spin();
            });
            $inner->start();
            Fiber::suspend(2);
            $inner->resume();
        });
        $outer->start();
        $outer->resume();
    },
    'generator_in_fiber' => function () {
        $g = outer();
        $fiber = new Fiber(function () use ($g) {
            foreach ($g as $value) {
                Fiber::suspend($value);
            }
        });
        $fiber->start();
        while (!$fiber->isTerminated()) {
            $fiber->resume();
        }
    },
];
