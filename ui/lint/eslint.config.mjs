// SPDX-License-Identifier: Apache-2.0
/* Rules beyond what tsc checks. Types are tsc's work: no rule here needs them, which keeps this quick. */
import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

export default [
  { ignores: ["**/node_modules/", "ui/model/vocab.gen.ts"] },
  js.configs.recommended,
  ...ts.configs.strict.map((c) => ({ ...c, files: ["**/*.ts", "**/*.tsx"] })),
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "default-case-last": "error",
      eqeqeq: "error",
      "no-constructor-return": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-self-compare": "error",
      "no-unreachable-loop": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      // Names of functions are hostile: expressions that look for control characters mean to.
      "no-control-regex": "off",
    },
  },
  {
    files: ["**/*.ts", "**/*.tsx"],
    plugins: { "react-hooks": hooks },
    rules: {
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/explicit-function-return-type": ["error", { allowExpressions: true }],
      // Indices into typed arrays, which noUncheckedIndexedAccess would ask about, too.
      "@typescript-eslint/no-non-null-assertion": "off",
      "react-hooks/rules-of-hooks": "error",
    },
  },
  {
    files: ["**/*.mjs"],
    // Node's and, inside page.evaluate(), the browser's: tests of pages use both.
    rules: { "no-undef": "off" },
  },
];
