// Follows a change log with the stock graphql-ws client, over restarts of the server.
//
//   npm install graphql-ws graphql ws
//   node graphql_client.mjs ws://127.0.0.1:8090/graphql [CURSOR]
//
// Prints each change as one line of JSON. The cursor in the last line is where to go on next time.

import { createClient } from "graphql-ws";
import WebSocket from "ws";

const [url, since] = process.argv.slice(2);

const client = createClient({ url, webSocketImpl: WebSocket });

const request = {
  query: `subscription ($since: Cursor) {
    onChange(since: $since) { cursor version index operation entityType key body }
  }`,
  variables: { since },
};

client.subscribe(request, {
  next({ data, errors }) {
    if (errors) throw new Error(JSON.stringify(errors));
    console.log(JSON.stringify(data.onChange));
    // After a lost connection the client sends the same request again: from behind what was handled.
    request.variables.since = data.onChange.cursor;
  },
  error(reason) {
    console.error(JSON.stringify(reason));
    process.exit(1);
  },
  complete() {
    process.exit(0);
  },
});
