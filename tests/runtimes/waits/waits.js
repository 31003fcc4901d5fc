// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a lock, a socket (standard input) and a time, each in a function of its own.
"use strict";
const fs = require("node:fs");
const { Worker, isMainThread, workerData } = require("node:worker_threads");

const buffer = Buffer.alloc(1);

function wait_lock(shared) {
  Atomics.wait(shared, 0, Atomics.load(shared, 0), 1000);
}

function wait_socket() {
  return fs.readSync(0, buffer) === 1;
}

if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(4));
  const nobody = new Int32Array(new SharedArrayBuffer(4));

  function wait_sleep() {
    Atomics.wait(nobody, 0, 0, 20);
  }

  function tick() {
    wait_sleep();
    Atomics.add(shared, 0, 1);
    Atomics.notify(shared, 0);
    setTimeout(tick, 5);
  }

  new Worker(__filename, { workerData: shared });
  new Worker(__filename, { workerData: null });
  tick();
  console.log("ready");
} else if (workerData) {
  for (;;)
    wait_lock(workerData);
} else {
  while (wait_socket());
}
