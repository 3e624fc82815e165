// Runs the audits of graphql-http against a server; prints one line of JSON for each.
import { serverAudits } from "graphql-http";

for (const audit of serverAudits({ url: process.argv[2] })) {
  const { id, name, status, reason } = await audit.fn();
  console.log(JSON.stringify({ id, name, status, reason }));
}
