import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

import { fault, serve, told } from "./lines.mjs";

const { port, ca, token } = told;
const client = new Redis({ port, ...(ca && { tls: { ca: readFileSync(ca) }, password: token }) });
client.on("error", (reason) => console.error(reason.message));

const filled = (batch, commands) => commands.reduce((all, words) => all.call(...words), batch);
const opened = (results) => results.map(([reason, reply]) => (reason ? fault(reason) : reply));

serve({
  single: async ([words]) => [await client.call(...words)],
  pipeline: async (commands) => opened(await filled(client.pipeline(), commands).exec()),
  multi: async (commands) => opened(await filled(client.multi(), commands).exec()),
});
