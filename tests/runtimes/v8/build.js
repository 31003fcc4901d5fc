// SPDX-License-Identifier: Apache-2.0
// Bundles and minimizes Express with webpack. Arguments: the directory with node_modules, and the
// output directory.
'use strict';
const [, , modules, output] = process.argv;
const webpack = require(modules + '/node_modules/webpack');

webpack({
  mode: 'production',
  target: 'node',
  context: modules,
  entry: 'express',
  output: { path: output },
  cache: false,
}, (error, stats) => {
  // Do not fail for missing modules, which Express requires in try blocks, as optional ones.
  if (error || !stats.compilation.modules.size)
    throw error || new Error('nothing was built');
  console.log(`${stats.compilation.modules.size} modules`);
});
