// SPDX-License-Identifier: Apache-2.0
// Threads that sleep on, each in functions of its own. A comment "in NAME" marks the line at which NAME waits.
"use strict";
const { Worker, isMainThread } = require("node:worker_threads");

const word = new Int32Array(new SharedArrayBuffer(4));

function main_inner() {
  Atomics.wait(word, 0, 0, 1000000); // in main_inner
}

function main_middle() {
  [1].forEach(main_inner); // in main_middle
}

function main_outer() {
  main_middle(); // in main_outer
}

function nap_inner() {
  Atomics.wait(word, 0, 0, 1000000); // in nap_inner
}

function nap_outer() {
  nap_inner(); // in nap_outer
}

if (isMainThread) {
  new Worker(__filename).on("online", () => {
    require("node:fs").writeSync(1, "ready\n");
    main_outer(); // in event
  });
} else {
  nap_outer(); // in top
}
