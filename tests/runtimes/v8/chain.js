// SPDX-License-Identifier: Apache-2.0
// Spins in a chain of known calls until it is killed. The first line that it prints is the chain by
// Error.stack. Arguments: which chain, and the addon. 二: a character that is not Latin-1, so that V8
// stores this source with two bytes per character.
'use strict';
const fs = require('fs');
const native = require(process.argv[3]);
let capture = true;
Error.stackTraceLimit = 100;

function leaf(n) {
  let t = 0;
  for (let i = 0; i < n; i++)
    t = (t * 31 + i) | 0;
  if (capture) {
    capture = false;
    console.log(JSON.stringify(new Error().stack));
  }
  return t;
}

// ---- through C and back, twice; a class, a generator, a callback of V8's library

function inner(n) {
  return native.call(leaf, n) + 1;
}

class Thing {
  method(n) {
    return native.call(inner, n);
  }
}

function* generate(n) {
  yield new Thing().method(n);
}

function outer(n) {
  let sum = 0;
  [1].forEach((k) => {
    for (const v of generate(n))
      sum += v + k;
  });
  return sum;
}

// ---- small enough to be inlined into each other

function small(n) {
  return leaf(n) + 1;
}

function smaller(n) {
  const v = small(n);
  return v ^ 1;
}

function hot(n) {
  return [1, 2].map((k) => smaller(n) + k)[0];
}

// ---- in one of many workers; one line each

function worker0(n) { for (;;) hot(n); }
function worker1(n) { for (;;) hot(n); }
function worker2(n) { for (;;) hot(n); }
function worker3(n) { for (;;) hot(n); }
function worker4(n) { for (;;) hot(n); }
function worker5(n) { for (;;) hot(n); }
function worker6(n) { for (;;) hot(n); }
function worker7(n) { for (;;) hot(n); }
const workers = [worker0, worker1, worker2, worker3, worker4, worker5, worker6, worker7];

// ---- into the kernel

function stat(n) {
  leaf(1);
  for (let i = 0; i < n; i++)
    fs.statSync('/proc/self/status');
}

function run(which) {
  const f = { native: outer, inlined: hot, kernel: stat }[which];
  const n = { native: 20000, inlined: 2000, kernel: 100 }[which];
  for (;;)
    f(n);
}

const which = process.argv[2];
if (/^workers?$/.test(which)) {
  const { Worker } = require('worker_threads');
  for (let i = 0; i < (which === 'workers' ? 8 : 1); i++)
    new Worker(__filename, { argv: [which === 'workers' ? `${i}` : 'inlined', process.argv[3]] });
} else if (/^\d$/.test(which)) {
  capture = which === '0';
  workers[which](2000);
} else {
  run(which);
}
