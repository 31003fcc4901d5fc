// SPDX-License-Identifier: Apache-2.0
// A chain of functions, for some seconds of CPU time.
function leaf(n) {
  let x = 0;
  for (let i = 0; i < n; i++)
    x = (x * 31 + i) | 0;
  return x;
}

function middle(n) {
  return leaf(n) + 1;
}

function outer(n) {
  return middle(n) + 1;
}

const seconds = Number(process.argv[2]);
while (process.cpuUsage().user < seconds * 1e6)
  outer(100000);
