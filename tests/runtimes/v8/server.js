// SPDX-License-Identifier: Apache-2.0
// An HTTP server, which prints a line with its port. The first argument is a directory with
// node_modules/express, or empty for a server without Express. With "own" as the second argument the
// process also sends requests to itself.
'use strict';
const http = require('http');
const crypto = require('crypto');
const fs = require('fs');

function fibonacci(n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

const routes = {
  '/number': (req, res) => res.end(String(fibonacci(15))),
  '/hash': (req, res) => res.end(crypto.createHash('sha256').update('x'.repeat(10000)).digest('hex')),
  '/file': async (req, res) => {
    const text = await fs.promises.readFile(__filename, 'utf8');
    res.end(text.replace(/[aeiou]/g, (c) => c.toUpperCase()));
  },
  '/json': (req, res) => {
    const rows = [];
    for (let i = 0; i < 200; i++)
      rows.push({ i, name: 'row' + i, at: new Date(i) });
    rows.sort((a, b) => b.i - a.i);
    res.end(JSON.stringify(JSON.parse(JSON.stringify(rows))));
  },
};

function listener() {
  if (!process.argv[2])
    return (req, res) => routes[req.url](req, res);
  const app = require(process.argv[2] + '/node_modules/express')();
  for (const path of Object.keys(routes))
    app.get(path, routes[path]);
  return app;
}

const server = http.createServer(listener());
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const paths = Object.keys(routes);
  const agent = new http.Agent({ keepAlive: true });
  const next = (i) => http.get({ port, host: '127.0.0.1', path: paths[i % paths.length], agent },
    (res) => res.resume().on('end', () => next(i + 1)));
  for (let i = 0; i < 8 && process.argv[3] === 'own'; i++)
    next(i);
  console.log(`serving ${port}`);
});
