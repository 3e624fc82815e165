// React for a page without a bundler: its modules are those of npm, for Node.
const files = {
  react: "react/cjs/react.development.js",
  scheduler: "scheduler/cjs/scheduler.development.js",
  "scheduler/unstable_mock": "scheduler/cjs/scheduler-unstable_mock.development.js",
  "react-test-renderer": "react-test-renderer/cjs/react-test-renderer.development.js",
};
const texts = {};
for (const [name, file] of Object.entries(files)) texts[name] = await (await fetch(`/node_modules/${file}`)).text();
const made = {};

function require(name) {
  if (made[name] === undefined) {
    made[name] = {};
    new Function("require", "exports", "process", "global", texts[name])(require, made[name], { env: { NODE_ENV: "development" } }, globalThis);
  }
  return made[name];
}

export const { createElement, StrictMode, useMemo, useSyncExternalStore } = require("react");
export const { create } = require("react-test-renderer");
