// penstock.js and servers that do what servers should not: over real sockets, with the WebSocket of Node or that of npm ws.
// Prints what becomes of a client after each close code, and its schedule, as JSON.
// node [--experimental-websocket] sockets.mjs own|ws CLOSE_CODE...
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";

import WebSocket, { WebSocketServer } from "ws";

import { connect } from "./penstock.js";

const [kind, ...codes] = process.argv.slice(2);
const own = globalThis.WebSocket;
if (kind === "ws") Object.defineProperty(globalThis, "WebSocket", { value: undefined }); // the option is enough
else assert.equal(typeof own, "function");
const quick = { backoff: { first: 1, limit: 5 }, ...(kind === "ws" ? { WebSocket } : {}) };
const report = {};
let started = [];

/** A server that tells what is told to it; `answer(socket, number, message)` is called with each message of connection number 0, 1, ... */
async function server(answer, port = 0) {
  const made = new WebSocketServer({ port, host: "127.0.0.1" });
  started.push(made);
  let number = 0;
  made.on("connection", (socket) => {
    const mine = number++;
    socket.on("message", (data) => answer(socket, mine, JSON.parse(data)));
  });
  await once(made, "listening");
  return { url: `ws://127.0.0.1:${made.address().port}/ws`, connections: () => number, port: made.address().port };
}

const say = (socket, message) => socket.send(JSON.stringify(message));
const acknowledge = (socket, keepAliveMs = 12_000) => say(socket, { type: "connection_ack", payload: { keepAliveMs, limits: {} } });
const acknowledged = (socket, number, { type }) => type === "connection_init" && acknowledge(socket);
const until = async (client, condition) => {
  while (!condition()) await once(client, "status");
};
const opened = (client) => until(client, () => client.status === "open");

/** The port of a server that was there. */
async function freePort() {
  const held = createServer().listen(0, "127.0.0.1");
  await once(held, "listening");
  const { port } = held.address();
  held.close();
  await once(held, "close");
  return port;
}

const scenarios = {
  async refused() {
    const port = await freePort();
    const client = connect(`http://127.0.0.1:${port}/ws`, quick);
    for (let times = 0; times < 3; times += 1) {
      await until(client, () => client.status === "waiting");
      assert.equal(client.error.code, "1006");
      await until(client, () => client.status === "connecting");
    }
    await server(acknowledged, port);
    await opened(client);
    assert.equal(client.error, null);
    client.close();
  },

  async silent() {
    const { url, connections } = await server((socket, number, message) => number > 1 && acknowledged(socket, number, message));
    const client = connect(url, { ...quick, openTimeout: 100 });
    await until(client, () => client.status === "waiting");
    assert.match(client.error.message, /did not answer within 100 ms/);
    await opened(client);
    assert.ok(connections() >= 3);
    client.close();
  },

  async mute() {
    const port = await freePort();
    const held = createServer(() => {}).listen(port, "127.0.0.1"); // accepts, and never answers the upgrade
    await once(held, "listening");
    const client = connect(`ws://127.0.0.1:${port}/ws`, { ...quick, openTimeout: 100 });
    await until(client, () => client.status === "waiting");
    held.close();
    await server(acknowledged, port).catch(() => {}); // the port may still be held; then the client goes on waiting
    client.close();
  },

  async closed_while_it_connects() {
    const { url, connections } = await server(acknowledged);
    connect(url, quick).close(); // as StrictMode does
    const client = connect(url, quick);
    await opened(client);
    assert.equal(connections(), 1); // the first one has not even called
    client.close();
    const late = connect(url, quick);
    await new Promise((done) => setTimeout(done)); // its socket is there, and not open
    late.close();
    for (const status of ["connecting", "waiting"]) {
      const other = connect(`ws://127.0.0.1:${await freePort()}/ws`, quick);
      other.addEventListener("status", () => other.status === status && other.close());
      await until(other, () => other.status === "closed");
      const states = [];
      other.addEventListener("status", () => states.push(other.status));
      await new Promise((done) => setTimeout(done, 30)); // six times as long as it would have waited
      assert.deepEqual(states, []);
    }
  },

  async codes() {
    const found = {};
    for (const code of codes.map(Number)) {
      const { url, connections } = await server((socket, number, { type }) => {
        if (type !== "connection_init") return;
        acknowledge(socket);
        if (number === 0) code === 1006 ? socket.terminate() : socket.close(code, "why");
      });
      const client = connect(url, quick);
      await until(client, () => client.status === "closed" || (client.status === "open" && connections() === 2));
      if (client.status === "closed") {
        assert.equal(client.error.message, `${code}: why`);
        await assert.rejects(client.schema("order"), { code: "CLOSED" });
      }
      found[code] = client.status;
      client.close();
    }
    report.codes = found;
  },

  async schedule() {
    // A clock that goes on when a timer runs, and sockets without a network: each timer is seen.
    let clock = 0;
    const timers = new Map();
    performance.now = () => clock;
    Math.random = () => 1;
    globalThis.setTimeout = (done, ms) => timers.set(timers.size ? Math.max(...timers.keys()) + 1 : 1, { done, ms }) && Math.max(...timers.keys());
    globalThis.clearTimeout = (id) => timers.delete(id) || clear(id);
    const pass = async () => {
      await new Promise(setImmediate);
      assert.equal(timers.size, 1);
      const [[id, { done, ms }]] = timers;
      timers.delete(id);
      clock += ms;
      done();
      await new Promise(setImmediate);
      return ms;
    };
    let socket;
    class Fake {
      readyState = 1;
      constructor() {
        socket = this;
      }
      send(text) {
        const { type, id, payload } = JSON.parse(text);
        if (type === "ping") this.pinged = payload;
        else this.said = { type, id };
      }
      close() {}
      hear(message) {
        this.onmessage({ data: JSON.stringify(message) });
      }
    }
    const acknowledge = () => socket.hear({ type: "connection_ack", payload: { keepAliveMs: 12_000 } });
    const client = connect("ws://127.0.0.1/", { WebSocket: Fake });
    const opens = await pass(); // nothing answers,
    const delays = [];
    for (let times = 0; times < 6; times += 1) {
      delays.push(await pass());
      socket.onclose({ code: 1006, reason: "" }); // or it is refused
    }
    await pass();
    const silence = async () => {
      acknowledge();
      const found = [await pass(), await pass()];
      assert.equal(client.status, "waiting");
      return found;
    };
    const [asks, waits] = await silence();
    report.schedule = { delays, opens, asks, waits, again: await pass() };
    assert.deepEqual(await silence(), [asks, 2 * waits]); // the first message may be so large
    await pass();
    acknowledge();
    clock += asks / 2 + 1; // this connection is not stuck: something is heard of it for a while
    socket.hear({ type: "next" });
    await pass(); // a timer that was early
    assert.equal(await pass(), waits);
    assert.equal(client.status, "waiting");
    await pass();
    acknowledge();
    await pass();
    clock += waits - 1;
    socket.hear({ type: "pong", payload: socket.pinged }); // an answer in time does not make it wait longer
    await pass();
    clock += 60_000; // the machine sleeps while the answer is on its way,
    socket.hear({ type: "pong", payload: socket.pinged });
    await pass();
    assert.equal(await pass(), waits); // which is not taken for one that took so long
    await pass();
    acknowledge();
    const changes = client.changes();
    report.refused = [];
    const refuse = (type) => {
      const { id } = socket.said;
      if (type !== undefined) socket.hear({ type, id, events: [], cursor: "c" });
      socket.hear({ type: "error", id, payload: { code: "CURSOR_AHEAD", message: "", retryable: true } });
      const [newest, { done, ms }] = [...timers].at(-1);
      timers.delete(newest);
      done();
      report.refused.push(ms);
    };
    for (const type of [undefined, undefined, undefined, "next", undefined]) refuse(type);
    socket.onclose({ code: 1006, reason: "" });
    report.refused.push(await pass()); // the connection was none of those that were refused
    changes.return();
    client.close();
  },

  async clock() {
    Date.now = () => 0; // set back, and standing
    let left = 300;
    const { url } = await server((socket, number, message) => {
      if (message.type === "connection_init") acknowledge(socket, 600);
      if (message.type === "ping" && (number > 0 || left > 0)) say(socket, { ...message, type: "pong" });
      const events = Array.from({ length: Math.min(left, message.n ?? message.payload?.credits ?? 0) }, () => ({ cursor: `${left--}` }));
      if (events.length) say(socket, { type: "next", id: message.id, events, cursor: events.at(-1).cursor });
    });
    const client = connect(url, quick);
    let seen = 0;
    for await (const _ of client.changes({ window: 8 })) if ((seen += 1) === 300) break;
    await until(client, () => client.status === "waiting"); // the silence was noticed all the same
    assert.match(client.error.message, /nothing was heard/);
    await opened(client);
    client.close();
  },

  async late_timers() {
    // Timers run when the test says so, a minute later each, as in a hidden page; messages arrive as ever.
    const timers = new Map();
    let minutes = 0;
    const real = performance.now.bind(performance);
    performance.now = () => real() + minutes * 60_000;
    globalThis.setTimeout = (done) => timers.set(timers.size + 1e6 + Math.random(), done) && [...timers.keys()].at(-1);
    globalThis.clearTimeout = (id) => timers.delete(id) || clear(id);
    const minute = () => {
      minutes += 1;
      const due = [...timers.values()];
      timers.clear();
      for (const done of due) done();
    };
    let pings = 0;
    const { url, connections } = await server((socket, number, message) => {
      if (message.type === "connection_init") acknowledge(socket);
      if (message.type === "ping" && (pings += 1) <= 5) say(socket, { ...message, type: "pong" });
    });
    const client = connect(url, quick);
    await opened(client);
    for (let times = 1; times <= 5; times += 1) {
      minute(); // it asks,
      const [asking] = timers.keys();
      while (timers.has(asking)) await new Promise(setImmediate); // and hears
      assert.equal(pings, times);
    }
    minute();
    minute(); // the answer may have come and not been read, so it asks once more
    assert.equal(client.status, "open");
    minute();
    assert.equal(client.status, "waiting");
    assert.deepEqual([connections(), client.error.message], [1, "1006: nothing was heard of the server"]);
    client.close();
    performance.now = real;
  },

  async large() {
    // Each answer takes longer than a client waits for it, until the client waits longer.
    const answers = [0];
    const { url, connections } = await server((socket, number, { type, payload }) => {
      if (type === "connection_init") acknowledge(socket, 30);
      const answer = () => socket.readyState === 1 && (say(socket, { type: "pong", payload }), (answers[number] = (answers[number] ?? 0) + 1));
      if (type === "ping") setTimeout(answer, 60);
    });
    const client = connect(url, quick);
    while (!(answers.at(-1) > 5)) await new Promise(setImmediate);
    assert.ok(connections() < 10); // 10 ms, 20 ms and 40 ms were too short, if the machine was quick
    client.close();
  },

  async woken() {
    const told = new EventTarget();
    const page = Object.assign(new EventTarget(), { visibilityState: "hidden" });
    globalThis.addEventListener = told.addEventListener.bind(told);
    globalThis.document = page;
    const dead = new Set();
    const { url, connections } = await server((socket, number, message) => {
      if (message.type === "connection_init") acknowledge(socket, number < 3 ? 300 : 3_600_000);
      if (message.type === "ping" && !dead.has(number)) say(socket, { ...message, type: "pong" });
    });
    const sent = [];
    class Heard extends (own ?? WebSocket) {
      send(text) {
        sent.push(JSON.parse(text).type);
        super.send(text);
      }
    }
    const client = connect(url, { WebSocket: Heard, backoff: { first: 3_600_000, limit: 3_600_000 } });
    await opened(client);
    const wakes = [
      () => told.dispatchEvent(new Event("online")),
      () => told.dispatchEvent(new Event("pageshow")),
      () => {
        page.visibilityState = "visible";
        page.dispatchEvent(new Event("visibilitychange"));
      },
    ];
    sent.length = 0;
    page.dispatchEvent(new Event("visibilitychange")); // hidden: nothing to do
    assert.deepEqual(sent, []);
    for (const [number, wake] of wakes.entries()) {
      dead.add(number);
      sent.length = 0;
      wake();
      wake();
      assert.deepEqual(sent, ["ping"]); // at once, and once
      await until(client, () => client.status === "waiting");
      wake(); // and not in an hour
      await opened(client);
      assert.equal(connections(), number + 2);
    }
    client.close();
    wakes[0]();
    assert.equal(client.status, "closed");
  },

  async tokens() {
    const asked = [];
    const { url } = await server((socket, number, { type, payload }) => {
      if (type !== "connection_init") return;
      asked.push(payload.token);
      if (/[36]$/.test(payload.token ?? "6")) return socket.close(4403, "Forbidden"); // refused at once
      acknowledge(socket);
      if (/[1245]$/.test(payload.token)) socket.close(4403, "Forbidden"); // expired
    });
    const ended = async (token) => {
      asked.length = 0;
      const client = connect(url, { ...quick, token });
      await until(client, () => client.status === "closed");
      assert.equal(client.error.code, "4403");
      return asked;
    };
    let last = 0;
    assert.deepEqual(await ended(() => `${(last += 1)}`), ["1", "2", "3"]);
    assert.deepEqual(await ended(async () => `${(last += 1)}`), ["4", "5", "6"]);
    assert.deepEqual(await ended("1"), ["1"]);
    assert.deepEqual(await ended(() => null), [undefined]);
    for (const wrong of [
      () => {
        throw new Error("the issuer is away");
      },
      () => Promise.reject(new Error("the issuer is away")),
      () => 7,
      () => new Promise(() => {}),
    ]) {
      const tokens = [wrong, wrong, () => "9"];
      const client = connect(url, { ...quick, openTimeout: 100, token: () => (tokens.shift() ?? (() => "9"))() });
      await until(client, () => client.status === "waiting");
      assert.match(client.error.message, /TOKEN_FAILED: there is no token: (the issuer is away|token is number)|did not answer within 100 ms/);
      await opened(client);
      assert.equal(tokens.length, 0);
      client.close();
    }
  },

  async wrong() {
    for (const url of ["ftp://example.org/", "no URL", "ws://["]) assert.throws(() => connect(url, quick), TypeError);
    if (kind === "ws") assert.throws(() => connect("ws://example.org/"), /pass one, such as that of npm ws/);
    class Insecure {
      constructor() {
        throw new Error("not from a page of https:");
      }
    }
    const client = connect("ws://example.org/", { WebSocket: Insecure });
    const changes = client.changes();
    await assert.rejects(changes.next(), { code: "CONNECTION_REFUSED", message: /not from a page of https:/ });
    assert.equal(client.status, "closed");
  },
};

const { setTimeout: timeout, clearTimeout: clear, addEventListener: listen, document: page } = globalThis;
const { now } = Date;
const { random } = Math;
const { now: passed } = performance;
for (const [name, run] of Object.entries(scenarios)) {
  console.error(name);
  await run();
  Object.assign(globalThis, { setTimeout: timeout, clearTimeout: clear, addEventListener: listen, document: page });
  Date.now = now;
  Math.random = random;
  performance.now = passed;
  for (const made of started) {
    for (const socket of made.clients) socket.terminate();
    made.close();
  }
  started = [];
}
console.log(JSON.stringify(report));
