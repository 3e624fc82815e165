// Does with penstock.js what lines of JSON say, and answers each by a line.
// {"n": 1, "on": "client", "call": "group", "args": [...], "keep": "g1"}: calls a method, and keeps the result under a name in place of telling it.
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";

const [module, url] = process.argv.slice(2);
const { connect } = await import(pathToFileURL(module));
const kept = new Map([["client", connect(url, { backoff: { first: 1, limit: 20 } })]]);
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

async function act({ n, on, call, get, args = [], keep, drop }) {
  try {
    const target = kept.get(on);
    const result = get ? target[get] : await target[call](...args);
    if (drop) kept.delete(on);
    if (keep) kept.set(keep, result);
    say({ n, value: keep ? null : (result ?? null) });
  } catch (error) {
    say({ n, error: { code: error.code ?? error.name, message: error.message, data: error.data ?? {} } });
  }
}

for await (const line of createInterface({ input: process.stdin })) act(JSON.parse(line));
process.exit(0);
