// Questions come as lines of JSON, {"run": "pipeline", "commands": [["PING"], ...]}; each is answered by a line: {"replies": [...]}, or {"error": "..."}.
import { createInterface } from "node:readline";

export const told = JSON.parse(process.argv[2]); // port, and with TLS: ca, token; for blocking reads above the client's own limit: timeout
export const fault = (reason) => ({ error: reason.message || String(reason) });

export const serve = async (ways) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const { run, commands } = JSON.parse(line);
    let answer;
    try {
      answer = { replies: await ways[run](commands) };
    } catch (reason) {
      answer = fault(reason);
    }
    console.log(JSON.stringify(answer));
  }
  process.exit();
};
