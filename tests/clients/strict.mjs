// examples/browser/use_live_map.js under StrictMode, which mounts everything twice. Prints what is shown when it changes.
// node strict.mjs ws://host:port/ws
import { createElement, StrictMode } from "react";
import { create } from "react-test-renderer";
import WebSocket from "ws";

import { connect } from "./penstock.js";
import { useLiveMap } from "./use_live_map.js";

const client = connect(process.argv[2], { WebSocket });
const opened = [];
const liveMap = client.liveMap.bind(client);
client.liveMap = (type) => opened[opened.push(liveMap(type)) - 1];
let shown = "";

function Orders() {
  const orders = useLiveMap(client, "order");
  const text = JSON.stringify({ orders: Object.fromEntries(orders), opened: opened.length });
  if (text !== shown && orders.size > 0) console.log((shown = text));
  if (orders.has("last")) setTimeout(end);
  return createElement("p", null, orders.size);
}

const root = create(createElement(StrictMode, null, createElement(Orders)));
function end() {
  root.unmount();
  client.close();
}
