// SPDX-License-Identifier: Apache-2.0
// Webpack bundles Express and minimizes that. Arguments: the directory with
// node_modules, and where to.
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
  // What only some systems have is asked for with try, and missing.
  if (error || !stats.compilation.modules.size)
    throw error || new Error('nothing was built');
  console.log(`${stats.compilation.modules.size} modules`);
});
