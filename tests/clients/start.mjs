// npm graphql-ws, unmodified: begins where the second argument says, and prints what comes of each event.
// node start.mjs ws://host:port/graphql '{"version": 1}' COUNT
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const [url, start, count] = process.argv.slice(2);
const client = createClient({ url, webSocketImpl: WebSocket, retryAttempts: 0 });
const query = `subscription ($start: Start) {
  onChange(start: $start, onGap: JUMP, whole: true) { version index schemaVersion }
}`;
let left = Number(count);
const end = client.subscribe(
  { query, variables: { start: JSON.parse(start) } },
  {
    next(result) {
      console.log(JSON.stringify({ ...result.data.onChange, ...result.extensions }));
      left -= 1;
      if (left === 0) {
        end();
        client.dispose();
      }
    },
    error(reason) {
      console.error(JSON.stringify(reason));
      process.exitCode = 1;
      client.dispose();
    },
    complete() {},
  },
);
