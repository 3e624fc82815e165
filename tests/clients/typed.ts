// What a program in TypeScript writes, and the mistakes that its compiler finds.
import { type ChangeEvent, type Client, connect, type MapChange, PenstockError } from "./penstock.js";

const client: Client = connect("wss://example.org/ws", { token: async () => "fresh", backoff: { first: 100 }, openTimeout: 5000 });
export async function follow(): Promise<string[]> {
  const keys: string[] = [];
  for await (const event of client.changes({ criteria: [{ entity_types: ["order"] }], content: "BODY", start: { version: 7 } })) {
    const change: ChangeEvent = event;
    if (change.key !== undefined) keys.push(change.key);
  }
  return keys;
}
const orders = client.liveMap("order");
export const leave: () => void = orders.subscribe((entities) => entities.get("42"));
export const shown: ReadonlyMap<string, unknown> = orders.snapshot();
orders.addEventListener("change", (event) => {
  const { version, changes }: MapChange = (event as CustomEvent<MapChange>).detail;
  console.log(version, changes.length);
});
export const version: Promise<number> = client.commit([{ entity_type: "order", key: "1", body: {} }]).then((one) => one.version);
if (client.error instanceof PenstockError) console.log(client.error.code, client.status === "waiting");

// @ts-expect-error there is no such content
client.changes({ content: "ALL" });
// @ts-expect-error a criterion has lists
client.changes({ criteria: [{ entity_types: "order" }] });
// @ts-expect-error a change has an entity type
client.commit([{ key: "1" }]);
// @ts-expect-error a token is text
connect("wss://example.org/ws", { token: () => 7 });
