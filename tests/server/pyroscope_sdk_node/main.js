// SPDX-License-Identifier: Apache-2.0

// A program that computes and keeps memory for some seconds, with pauses in which the SDK can send, and that Pyroscope's SDK
// for Node.js profiles. Arguments: server, name of the application, seconds.
const pyroscope = require("@pyroscope/nodejs");

const [server, application, seconds] = process.argv.slice(2);
const kept = [];
let turns = 0;

function burn(end) {
	while (Date.now() < end) {
		kept[turns++ % 20000] = new Array(100).fill(turns);
	}
}

pyroscope.init({
	serverAddress: server,
	appName: application,
	tags: { env: "test" },
	flushIntervalMs: 1000,
	wall: { collectCpuTime: true, samplingDurationMs: 1000 },
	heap: { samplingIntervalBytes: 128 * 1024 },
});
pyroscope.start();
const end = Date.now() + 1000 * Number(seconds);

function turn() {
	if (Date.now() < end) {
		burn(Date.now() + 100);
		setTimeout(turn, 20);
	} else {
		// The last profiles are on their way when stop() has ended.
		pyroscope.stop().then(() => setTimeout(() => process.exit(0), 1000));
	}
}
turn();
