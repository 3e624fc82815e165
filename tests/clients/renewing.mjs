// npm graphql-ws with the recipe, against a server whose tokens expire; prints each change, and the number of the token that was refused.
// node renewing.mjs ws://host:port/graphql CURSOR
import assert from "node:assert/strict";

import { createClient } from "graphql-ws";
import WebSocket from "ws";

import { patient, resuming } from "./graphql_resuming.mjs";

const [url, since] = process.argv.slice(2);
let asked = 0;
const connectionParams = async () => ({ token: `${(asked += 1)}` });
const stock = createClient(patient({ url, webSocketImpl: WebSocket, connectionParams }));
const query = "subscription ($since: Cursor) { onChange(since: $since) { cursor version index } }";

resuming(stock).subscribe({ query, variables: { since } }, {
  next({ data: { onChange } }) {
    console.log(JSON.stringify(onChange));
  },
  error(reason) {
    assert.equal(reason.code, 4403);
    console.log(JSON.stringify({ refused: asked }));
  },
  complete() {},
});
