// SPDX-License-Identifier: Apache-2.0
// main calls outer calls (map, a builtin, calls) inner, over and over.
"use strict";

function inner(n) {
    for (let i = 0; i < 1000; i++)
        n = n * 31 % 1000003 + i;
    return n;
}

function outer(all) {
    return all.map(inner);
}

function main() {
    const all = Array.from({length: 100}, (_, i) => i);
    for (;;)
        outer(all);
}

console.log("ready");
main();
