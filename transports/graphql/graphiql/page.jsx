// The page at /graphql: stock GraphiQL, with subscriptions over the stock graphql-ws client.
import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import "graphiql/graphiql.css";
import { createClient } from "graphql-ws";
import React from "react";
import { createRoot } from "react-dom/client";

const url = location.origin + location.pathname.replace(/\/$/, "");
const wsClient = createClient({ url: url.replace(/^http/, "ws") });
const fetcher = createGraphiQLFetcher({ url, wsClient });

const welcome = `# Changes as they are committed. Give \`since\` the cursor of the last change you handled to go on behind it.
subscription {
  onChange {
    cursor
    version
    index
    operation
    entityType
    key
    body
  }
}
`;

createRoot(document.getElementById("graphiql")).render(<GraphiQL fetcher={fetcher} defaultQuery={welcome} />);
