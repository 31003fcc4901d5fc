// SPDX-License-Identifier: Apache-2.0

// Spans of Datadog's tracer that wait for each other: app.js SECONDS REQUESTS LOG, with the tracer's
// folder in NODE_PATH. See ../spans.c.
const fs = require('fs');
const tracer = require('dd-trace').init();

const [seconds, requests, path] = process.argv.slice(2);
const log = [];
const end = Date.now() + seconds * 1000;
let sink = 0;

function burn(ms) {
  for (const until = performance.now() + ms; performance.now() < until;)
    for (let i = 0; i < 200; i++)
      sink += i;
}

function work_0() { burn(2); }
function work_1() { burn(2); }
function work_2() { burn(2); }
function work_3() { burn(2); }
function idle_work() { burn(.5); }

const works = [work_0, work_1, work_2, work_3];

async function serve() {
  while (Date.now() < end) {
    await tracer.trace('request', { resource: '/pay' }, async span => {
      const trace = span.context().toTraceId(true), id = span.context().toSpanId(true);
      const n = parseInt(id.slice(-1), 16) % 4;

      log.push(`${trace} ${id} ${n} 0`);
      works[n]();
      await new Promise(done => setTimeout(done, 1)); // others run meanwhile
      works[n]();
    });
    idle_work();
    await new Promise(setImmediate);
  }
}

Promise.all(Array.from({ length: +requests }, serve)).then(() => {
  fs.writeFileSync(path, log.join('\n') + '\n');
  process.exit(0);
});
