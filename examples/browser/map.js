// Shows the open orders as they are: those that there are first, then every change, over lost connections too.
import { connect } from "./penstock.js";

const server = new URLSearchParams(location.search).get("server");
const orders = connect(server).liveMap("order");
const lines = new Map();

orders.addEventListener("change", ({ detail: { changes } }) => {
  for (const { operation, key, value } of changes) {
    if (operation === "REMOVE") {
      lines.get(key)?.remove();
      lines.delete(key);
    } else {
      if (!lines.has(key)) lines.set(key, document.querySelector("#orders").appendChild(document.createElement("li")));
      lines.get(key).textContent = `order ${key}: ${value.total}`;
    }
  }
  document.querySelector("#count").value = `${orders.size} open`;
});
await orders.ready;
document.body.dataset.ready = "yes";
