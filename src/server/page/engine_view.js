// The engine, live: read from /metrics every second while the panel is open and the page visible.
import { metricsText } from "./api.js";
import { byId, element } from "./dom.js";
import { MetricsHistory, parseMetrics } from "./metrics.js";

const kPeriodMs = 1000;
const kKeepSeconds = 120;
const kChart = { width: 120, height: 36 };

const whole = (value) => Math.round(value).toLocaleString("en");
const milliseconds = (value) =>
  value === undefined ? "none yet" : value < 1 ? `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(2)} s`;
const percent = (share) => `${(share * 100).toFixed(0)}%`;
// The mean of the last seconds is easier to read than the last second.
const recent = (rates) => {
  const last = rates.slice(-3);
  return last.length ? last.reduce((sum, rate) => sum + rate, 0) / last.length : 0;
};

// What is shown: label, and how to say it; `share` also draws a bar.
const kRows = [
  { id: "output", label: "Output", text: (h) => `${recent(h.rates("tilewright_generation_tokens_total")).toFixed(1)} tokens/s` },
  { id: "input", label: "Input", text: (h) => `${recent(h.rates("tilewright_prompt_tokens_total")).toFixed(1)} tokens/s` },
  { id: "ttft", label: "First token", text: (h) => milliseconds(h.median("tilewright_time_to_first_token_seconds")) },
  { id: "itl", label: "Between tokens", text: (h) => milliseconds(h.median("tilewright_inter_token_latency_seconds")) },
  { id: "running", label: "Running", text: (h) => whole(h.value("tilewright_num_requests_running")) },
  { id: "waiting", label: "Waiting", text: (h) => whole(h.value("tilewright_num_requests_queued")) },
  {
    id: "kv",
    label: "KV cache",
    share: (h) => h.value("tilewright_kv_tokens_used") / Math.max(1, h.value("tilewright_kv_tokens_capacity")),
    text: (h) => `${whole(h.value("tilewright_kv_tokens_used"))} of ${whole(h.value("tilewright_kv_tokens_capacity"))}`,
  },
  {
    id: "hits",
    label: "Prefix hits",
    share: (h) => h.value("tilewright_cache_hit_rate"),
    text: (h) => percent(h.value("tilewright_cache_hit_rate")),
  },
];

// How near the model comes to what its rank's threads can do at most, while it computes: the two
// sides of a roofline. Of one rank alone nothing is said of ranks.
const rooflineRows = (nodes) =>
  nodes.flatMap((node, rank) => {
    const place = nodes.length === 1 ? "" : node === undefined ? `, rank ${rank}` : `, node ${node}`;
    const row = (id, label, counter, limit, unit) => {
      const rate = (h) => h.ratio(`${counter}/${rank}`, "tilewright_forward_seconds_total");
      const most = (h) => h.value(`${limit}/${rank}`);
      const giga = (value) => (value / 1e9).toFixed(1);
      return {
        id: `${id}-${rank}`,
        label: label + place,
        share: (h) => (most(h) ? Math.min(1, (rate(h) ?? 0) / most(h)) : 0),
        text: (h) =>
          rate(h) === undefined ? "idle"
          : most(h) ? `${giga(rate(h))} of ${giga(most(h))} ${unit}`
          : `${giga(rate(h))} ${unit}`,
      };
    };
    return [
      row("memory", "Memory", "tilewright_memory_bytes_total", "tilewright_memory_bandwidth_limit_bytes", "GB/s"),
      row("arithmetic", "Arithmetic", "tilewright_operations_total", "tilewright_operations_limit", "GOP/s"),
    ];
  });

export class EngineView {
  #rows = [];
  #history = new MetricsHistory(kKeepSeconds);
  #cells = new Map();
  #timer = null;
  #isOpen = false;

  constructor() {
    this.#addRows(kRows);
    document.addEventListener("visibilitychange", () => this.#schedule());
  }

  setOpen(isOpen) {
    this.#isOpen = isOpen;
    this.#schedule();
  }

  #addRows(rows) {
    for (const row of rows) byId("engine-values").append(...this.#rowElements(row));
    this.#rows = [...this.#rows, ...rows];
  }

  #rowElements({ id, label, share }) {
    const value = element("dd", { id: `engine-${id}` }, "–");
    const meter = share && element("meter", { min: "0", max: "1", "aria-label": label });
    this.#cells.set(id, { value, meter });
    return [element("dt", {}, label), value, ...(meter ? [meter] : [])];
  }

  #schedule() {
    const wanted = this.#isOpen && !document.hidden;
    if (wanted && this.#timer === null) {
      this.#timer = setInterval(() => this.#read(), kPeriodMs);
      this.#read();
    } else if (!wanted && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }

  async #read() {
    const problem = byId("engine-problem");
    try {
      const metrics = parseMetrics(await metricsText());
      this.#history.add(performance.now() / 1e3, metrics);
      problem.hidden = true;
      this.#show();
    } catch (failure) {
      problem.textContent = failure.message;
      problem.hidden = false;
    }
  }

  #show() {
    if (this.#rows.length === kRows.length) this.#addRows(rooflineRows(this.#history.nodes()));
    for (const { id, text, share } of this.#rows) {
      const { value, meter } = this.#cells.get(id);
      value.textContent = text(this.#history);
      if (meter) meter.value = share(this.#history);
    }
    this.#drawSpeed(this.#history.rates("tilewright_generation_tokens_total"));
  }

  #drawSpeed(rates) {
    const { width, height } = kChart;
    const top = Math.max(1, ...rates);
    const step = width / kKeepSeconds;
    const points = rates.map((rate, i) => {
      const x = width - (rates.length - 1 - i) * step;
      return `${x.toFixed(2)},${(height - (rate / top) * (height - 2)).toFixed(2)}`;
    });
    const left = width - (rates.length - 1) * step;
    byId("speed-line").setAttribute("points", points.join(" "));
    byId("speed-area").setAttribute("points",
      points.length ? `${left},${height} ${points.join(" ")} ${width},${height}` : "");
  }
}
