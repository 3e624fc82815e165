import { readFileSync } from "node:fs";
import { createClient } from "redis";

import { fault, serve, told } from "./lines.mjs";

const { port, ca, token } = told;
const client = createClient({ socket: { port, ...(ca && { tls: true, ca: readFileSync(ca) }) }, ...(ca && { password: token }) });
client.on("error", (reason) => console.error(reason.message));
await client.connect();

const text = (words) => words.map(String);
const settled = (results) => results.map(({ value, reason }) => (reason ? fault(reason) : value));

serve({
  single: async ([words]) => [await client.sendCommand(text(words))],
  pipeline: async (commands) => settled(await Promise.allSettled(commands.map((words) => client.sendCommand(text(words))))),
  multi: async (commands) => {
    const batch = commands.reduce((all, words) => all.addCommand(text(words)), client.multi());
    return (await batch.exec()).map((reply) => (reply instanceof Error ? fault(reply) : reply));
  },
});
