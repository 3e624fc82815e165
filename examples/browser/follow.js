// Takes orders three at a time: what is not asked for stays in the log, and is not sent.
import { connect } from "./penstock.js";

const server = new URLSearchParams(location.search).get("server");
const orders = connect(server).changes({
  criteria: [{ entity_types: ["order"], operations: ["UPSERT"] }],
  content: "BODY",
  start: "earliest",
  window: 3,
});
const events = orders[Symbol.asyncIterator]();

document.querySelector("#more").addEventListener("click", async () => {
  for (let taken = 0; taken < 3; taken += 1) {
    const { value: order } = await events.next();
    const line = document.createElement("li");
    line.textContent = `order ${order.key}: ${order.body.total}`;
    document.querySelector("#orders").append(line);
    document.querySelector("#place").value = `resume with ${order.cursor}`;
  }
});
