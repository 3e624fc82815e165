// A client that is watched for long: it reads a log from its beginning, and shows its entities in a component under StrictMode.
// In a page it is imported; in Node it tells what came when it gets a line: node following.mjs URL own|ws SECONDS yes|no
import { createElement, StrictMode } from "react";
import { create } from "react-test-renderer";

import { connect } from "./penstock.js";
import { useLiveMap } from "./use_live_map.js";

/** @returns a function that tells what came: when (milliseconds of the wall clock), what was wrong, what comes next, what is shown. */
export function follow(url, tokenSeconds, shows, options = {}) {
  const told = { next: [1, 0], came: [], rendered: [], faults: [], connections: 0, lost: {} };
  const token = async () => String(Date.now() / 1000 + tokenSeconds); // a server that looks at it refuses it when it has expired
  const client = connect(url, { ...options, token });
  client.addEventListener("status", () => {
    if (client.status === "open") told.connections += 1;
    if (client.status === "closed") told.faults.push(`closed: ${client.error}`);
    if (client.status === "waiting") told.lost[client.error.message] = (told.lost[client.error.message] ?? 0) + 1;
  });

  const read = async () => {
    for await (const { version, index, count } of client.changes({ start: "earliest", window: 64 })) {
      if (version !== told.next[0] || index !== told.next[1]) told.faults.push(`${version}:${index} came instead of ${told.next}`);
      told.next = index + 1 === count ? [version + 1, 0] : [version, index + 1];
      told.came.push(Date.now());
    }
    throw new Error("complete");
  };
  read().catch((error) => told.faults.push(String(error)));

  let orders = new Map();
  const newest = (map) => Math.max(0, ...Array.from(map.values(), ({ n }) => n));
  function Orders() {
    const now = useLiveMap(client, "order");
    if (now === orders) return null;
    if (newest(now) < newest(orders) && orders.size > 0) told.faults.push(`${newest(now)} was shown after ${newest(orders)}`);
    orders = now;
    told.rendered.push(Date.now());
    return createElement("p", null, now.size);
  }
  if (shows) create(createElement(StrictMode, null, createElement(Orders)));
  return () => ({ ...told, shown: Object.fromEntries(orders) });
}

if (globalThis.process?.versions?.node) {
  const [url, kind, seconds, shows] = process.argv.slice(2);
  const { default: WebSocket } = await import("ws");
  const tell = follow(url, Number(seconds), shows === "yes", kind === "ws" ? { WebSocket } : {});
  process.stdin.on("data", () => console.log(JSON.stringify(tell())));
  process.stdin.on("end", () => process.exit());
}
