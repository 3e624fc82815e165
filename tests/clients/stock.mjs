// Apollo, urql and Relay as docs/graphql.md says, over one connection. Prints what each of them is given.
// node stock.mjs ws://host:port/graphql CURSOR
import { ApolloClient, gql, InMemoryCache } from "@apollo/client/core/index.js";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions/index.js";
import { Client, subscriptionExchange } from "@urql/core";
import { createClient } from "graphql-ws";
import { Environment, Network, Observable, RecordSource, requestSubscription, Store } from "relay-runtime";
import WebSocket from "ws";

import { patient, resuming } from "./graphql_resuming.mjs";

globalThis.WebSocket ??= WebSocket; // as in a browser
const [url, since] = process.argv.slice(2);
const query = "subscription Changes($since: Cursor) { onChange(since: $since) { cursor version index } }";

const stock = createClient(patient({ url }));
const client = resuming(stock);

stock.on("error", ({ message }) => console.error(`no connection, trying again: ${message}`));
const print = (name, { version, index }) => console.log(JSON.stringify({ name, version, index }));
const fail = (name, reason) => {
  console.error(name, reason);
  process.exit(1);
};

// Apollo

const link = new GraphQLWsLink(client);

new ApolloClient({ link, cache: new InMemoryCache() }).subscribe({ query: gql(query), variables: { since } }).subscribe({
  next: ({ data, error }) => (error ? fail("Apollo", error) : print("Apollo", data.onChange)),
  error: (reason) => fail("Apollo", reason),
});

// urql

const forwardSubscription = (request) => ({
  subscribe: (sink) => ({ unsubscribe: client.subscribe(request, sink) }),
});
const exchange = subscriptionExchange({ forwardSubscription });

new Client({ url, exchanges: [exchange] })
  .subscription(query, { since })
  .subscribe(({ data, error }) => (error ? fail("urql", error) : print("urql", data.onChange)));

// Relay

const subscribe = ({ text, name }, variables) =>
  Observable.create((sink) => client.subscribe({ query: text, operationName: name, variables }, sink));
const fetchQuery = () => Promise.reject(new Error("there are no queries here"));
const network = Network.create(fetchQuery, subscribe);

// What relay-compiler makes of the document.
const scalar = (name) => ({ alias: null, args: null, kind: "ScalarField", name, storageKey: null });
const change = {
  alias: null,
  args: [{ kind: "Variable", name: "since", variableName: "since" }],
  concreteType: "Change",
  kind: "LinkedField",
  name: "onChange",
  plural: false,
  selections: ["cursor", "version", "index"].map(scalar),
  storageKey: null,
};
const argumentDefinitions = [{ defaultValue: null, kind: "LocalArgument", name: "since" }];
const shared = { argumentDefinitions, name: "Changes", selections: [change] };
const subscription = {
  kind: "Request",
  fragment: { ...shared, kind: "Fragment", metadata: null, type: "Subscription", abstractKey: null },
  operation: { ...shared, kind: "Operation" },
  params: { cacheID: "1", id: null, metadata: {}, name: "Changes", operationKind: "subscription", text: query },
};

requestSubscription(new Environment({ network, store: new Store(new RecordSource()) }), {
  subscription,
  variables: { since },
  onNext: ({ onChange }) => print("Relay", onChange),
  onError: (reason) => fail("Relay", reason),
});
