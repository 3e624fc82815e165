// What examples/graphql_resuming.mjs does with a client that only remembers.
import assert from "node:assert/strict";

import { patient, resuming } from "./graphql_resuming.mjs";

const asked = [];
const client = resuming({ subscribe: (payload, sink) => asked.push([payload, sink]), on: () => () => {} });
const query = "subscription ($since: Cursor) { onChange(since: $since) { cursor } }";
const taken = [];
const sink = { next: (result) => taken.push(result), error: (why) => taken.push(why), complete: () => taken.push("end") };

const variables = Object.freeze({ since: "a", log: "shop" });
client.subscribe({ query, variables, operationName: "Changes" }, sink);
const [payload, inner] = asked.pop();
assert.deepEqual(payload, { query, variables, operationName: "Changes" });
inner.next({ data: { renamed: { cursor: "b" } } });
assert.deepEqual(payload.variables, { since: "b", log: "shop" });
inner.next({ data: null, errors: [{}] }); // nothing was handled, so it comes again
assert.equal(payload.variables.since, "b");
assert.throws(() => inner.next({ data: { onChange: { key: "1" } } }), /select the cursor/);
inner.error("why");
inner.complete();
assert.deepEqual(taken.slice(-2), ["why", "end"]);

sink.next = () => assert.fail("not handled");
assert.throws(() => inner.next({ data: { onChange: { cursor: "c" } } }), /not handled/);
assert.equal(payload.variables.since, "b");

for (const wrong of [{ query }, { query, variables: { since: null } }, { query: "subscription { onChange { cursor } }", variables }])
  assert.throws(() => client.subscribe(wrong, sink), /pass a cursor as the variable \$since/);
assert.throws(() => client.iterate({ query, variables }), /use subscribe/);

const history = { query: "query ($since: Cursor) { history(since: $since) { next } }" };
client.subscribe(history, sink);
assert.deepEqual(asked.pop(), [history, sink]);

const told = [];
const options = patient({ url: "ws://x", retryAttempts: 3, on: { connected: (...args) => told.push(args), error: told } });
assert.deepEqual([options.url, options.retryAttempts, options.on.error], ["ws://x", 3, told]); // nothing is taken away
const { shouldRetry, retryWait, retryAttempts, keepAlive, on } = patient({});
const refused = { type: "error", message: "connect ECONNREFUSED" };
for (const lost of [refused, { code: 1012, reason: "the server is stopping" }, { code: 1006, reason: "" }]) assert.ok(shouldRetry(lost));
for (const final of [{ code: 4403, reason: "Forbidden" }, new Error("not handled")]) assert.ok(!shouldRetry(final));
on.connected();
options.on.connected(1, 2);
assert.deepEqual(told, [[1, 2]]);
assert.ok(shouldRetry({ code: 4403, reason: "Forbidden" })); // it has expired
on.connecting();
assert.ok(!shouldRetry({ code: 4403, reason: "Forbidden" })); // the next one was refused
assert.ok(keepAlive > 0);

assert.equal(retryAttempts, Infinity);
const waited = [];
globalThis.setTimeout = (done, ms) => done(waited.push(ms));
for (let tries = 0; tries < 2000; tries += 1) await retryWait(tries);
assert.ok(Math.min(...waited) >= 100 && Math.max(...waited) <= 5000);
