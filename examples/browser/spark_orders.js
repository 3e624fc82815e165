// A line for each order: those that there are, and then every change, over lost connections too.
import { connect } from "./board/penstock.js";

const server = new URL("ws", location.href);
server.protocol = server.protocol.replace("http", "ws");
const orders = connect(server.href).liveMap("order");
const lines = new Map();

orders.addEventListener("change", ({ detail: { changes } }) => {
  for (const { key, value } of changes) {
    const line = lines.get(key) ?? document.createElement("tr");
    lines.set(key, line);
    const cells = [key, `${value.name}, ${value.city}`, value.total, value.method ?? value.state];
    line.replaceChildren(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    document.querySelector("#orders").prepend(line);
  }
  const unpaid = [...orders.values()].filter((order) => order.state === "unpaid").length;
  document.querySelector("#count").value = `${orders.size - unpaid} paid, ${unpaid} unpaid`;
});
await orders.ready;
document.body.dataset.ready = "yes";
