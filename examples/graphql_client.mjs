// Follows a change log with the stock graphql-ws client: each change once, over restarts of the server.
//
//   npm install graphql-ws graphql ws
//   node graphql_client.mjs ws://127.0.0.1:8090/graphql [CURSOR]
//
// Prints each change as one line of JSON. The cursor in the last line is where to go on next time; without one it
// begins now.

import { createClient } from "graphql-ws";
import WebSocket from "ws";

import { patient, resuming } from "./graphql_resuming.mjs";

const [url, cursor] = process.argv.slice(2);

const words = (why) => [why].flat().map(({ message, code, reason }) => message ?? `${code} ${reason}`).join("; ");
const error = (lost) => console.error(`no connection, trying again: ${words(lost)}`);
const client = createClient(patient({ url, webSocketImpl: WebSocket, on: { error } }));

async function now() {
  const { value } = await client.iterate({ query: "{ logs { head } }" }).next();
  return value.data.logs[0].head;
}

const query = `subscription ($since: Cursor) {
  onChange(since: $since) { cursor version index operation entityType key body }
}`;
const variables = { since: cursor ?? (await now()) };

resuming(client).subscribe({ query, variables }, {
  next({ data, errors }) {
    if (errors) throw new Error(JSON.stringify(errors));
    console.log(JSON.stringify(data.onChange));
  },
  error(reason) {
    console.error(words(reason));
    process.exit(1);
  },
  complete() {
    process.exit(0);
  },
});
