// Apollo's persisted-query link, over HTTP and before a WebSocket. Prints what each of them is given.
// node persisted.mjs http://host:port/graphql
import { createHash } from "node:crypto";

import { ApolloClient, ApolloLink, gql, HttpLink, InMemoryCache } from "@apollo/client/core/index.js";
import { PersistedQueryLink } from "@apollo/client/link/persisted-queries/index.js";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions/index.js";
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const [url] = process.argv.slice(2);
const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const apollo = (link) =>
  new ApolloClient({ link: ApolloLink.from([new PersistedQueryLink({ sha256 }), link]), cache: new InMemoryCache() });
const print = (name, found) => console.log(JSON.stringify({ name, found }));

let sent = 0;
const counting = (...request) => (sent++, fetch(...request));

const asked = async (name, options) => {
  sent = 0;
  const client = apollo(new HttpLink({ uri: url, fetch: counting, ...options }));
  const query = gql("query Logs { logs { name } }");
  for (const fetchPolicy of ["network-only", "network-only"]) {
    await client.query({ query, fetchPolicy });
  }
  print(name, sent);
};

await asked("POST", {});
await asked("GET", { useGETForQueries: true });

const socket = createClient({ url: url.replace("http:", "ws:"), webSocketImpl: WebSocket });
apollo(new GraphQLWsLink(socket))
  .subscribe({ query: gql("subscription { onChange(start: {place: EARLIEST}) { version index } }") })
  .subscribe({
    next: ({ data, error }) => (error ? print("WebSocket", String(error)) : print("WebSocket", data.onChange.version)),
    error: (reason) => print("WebSocket", String(reason)),
  });
