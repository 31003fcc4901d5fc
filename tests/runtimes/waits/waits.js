// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a lock, a time and the loop's events, each in a function of its own.
// Node has no socket on which a thread blocks: its loop polls.
"use strict";
const { Worker, isMainThread, workerData } = require("node:worker_threads");

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
  tick();
  console.log("ready");
} else {
  const shared = workerData;

  function wait_lock() {
    Atomics.wait(shared, 0, Atomics.load(shared, 0), 1000);
  }

  for (;;)
    wait_lock();
}
