// SPDX-License-Identifier: Apache-2.0
// Burns CPU at the end of process.argv[2] frames.
"use strict";

function leaf() {
    let x = 1;
    for (let i = 0; ; i++) x = (Math.imul(x, 5) + i) & 0xffff;
}

function level(n) {
    if (n > 1) level(n - 1);
    else leaf();
    return n;
}

level(Number(process.argv[2]) - 2);
