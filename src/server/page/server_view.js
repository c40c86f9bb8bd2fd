// Which model is served, by which server.
import { models, serverInfo } from "./api.js";
import { byId, element } from "./dom.js";

const kRows = [
  ["Version", "version"],
  ["Context", "context_length"],
  ["KV tokens", "max_total_num_tokens"],
  ["Batch", "max_running_requests"],
  ["Prefill chunk", "chunked_prefill_size"],
];

// Throws an ApiFailure, with status 401 where a key is wanted.
export async function showServer() {
  const [served] = await models();
  byId("model-name").textContent = served.id;
  document.title = `${served.id} · tilewright`;
  const info = await serverInfo();
  const row = (label, value) =>
    [element("dt", {}, label), element("dd", {}, typeof value === "number" ? value.toLocaleString("en") : String(value))];
  byId("server-values").replaceChildren(...row("Model", served.id),
    ...kRows.filter(([, name]) => info[name] !== undefined).flatMap(([label, name]) => row(label, info[name])));
}
