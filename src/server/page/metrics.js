// Prometheus text as numbers, and what can be said from two readings of it.

// The families of this page: name -> value, summed over labels, and name/rank -> value where a label
// says of which rank of the model; of histograms also their buckets.
export function parseMetrics(text) {
  const values = new Map();
  const buckets = new Map(); // of a histogram: [{bound, count}], bounds rising
  const nodes = []; // the memory node of each rank; undefined where it is unknown
  for (const line of text.split("\n")) {
    const match = /^([a-z_:][\w:]*)(?:\{(.*)\})? (\S+)/i.exec(line);
    if (!match) continue;
    const [, name, labels = "", number] = match;
    const value = Number(number);
    const bound = /(?:^|,)le="([^"]+)"/.exec(labels);
    if (bound && name.endsWith("_bucket")) {
      const histogram = name.slice(0, -"_bucket".length);
      const list = buckets.get(histogram) ?? [];
      list.push({ bound: bound[1] === "+Inf" ? Infinity : Number(bound[1]), count: value });
      buckets.set(histogram, list);
    } else {
      values.set(name, (values.get(name) ?? 0) + value);
      const rank = /(?:^|,)rank="(\d+)"/.exec(labels);
      if (rank) {
        values.set(`${name}/${rank[1]}`, value);
        nodes[rank[1]] = /(?:^|,)node="(\d+)"/.exec(labels)?.[1];
      }
    }
  }
  return { values, buckets, nodes };
}

// Readings over time; the newest are kept.
export class MetricsHistory {
  #readings = []; // {seconds, metrics}
  #keepSeconds;

  constructor(keepSeconds) {
    this.#keepSeconds = keepSeconds;
  }

  add(seconds, metrics) {
    const last = this.#readings.at(-1);
    // Counters that fall belong to a server that started anew.
    const steps = "tilewright_engine_steps_total";
    if (last && metrics.values.get(steps) < last.metrics.values.get(steps)) this.#readings = [];
    this.#readings.push({ seconds, metrics });
    while (seconds - this.#readings[0].seconds > this.#keepSeconds) this.#readings.shift();
  }

  value(name) {
    return this.#readings.at(-1)?.metrics.values.get(name);
  }

  // The memory node of each rank of the model.
  nodes() {
    return this.#readings.at(-1)?.metrics.nodes ?? [];
  }

  // What a counter rose by for each unit that another rose by, over the last readings; undefined
  // while that one stands still.
  ratio(name, by, count = 3) {
    const last = this.#readings.at(-1);
    const first = this.#readings.at(-1 - Math.min(count, this.#readings.length - 1));
    const rise = (of) => last.metrics.values.get(of) - first.metrics.values.get(of);
    return last && rise(by) > 0 ? rise(name) / rise(by) : undefined;
  }

  // Rise per second of a counter between each two readings.
  rates(name) {
    return this.#readings.slice(1).map(({ seconds, metrics }, i) => {
      const before = this.#readings[i];
      const rise = metrics.values.get(name) - before.metrics.values.get(name);
      return Math.max(0, rise / (seconds - before.seconds));
    });
  }

  // Median of a histogram's observations since the oldest reading, as far as its buckets tell;
  // undefined without any.
  median(name) {
    const newest = this.#readings.at(-1)?.metrics.buckets.get(name);
    const oldest = this.#readings[0]?.metrics.buckets.get(name);
    if (!newest || !oldest) return undefined;
    const counts = newest.map(({ count }, i) => count - (oldest[i]?.count ?? 0));
    const half = counts.at(-1) / 2;
    if (half === 0) return undefined;
    const at = counts.findIndex((count) => count >= half);
    const upper = newest[at].bound;
    const lower = at > 0 ? newest[at - 1].bound : 0;
    if (upper === Infinity) return lower;
    const below = at > 0 ? counts[at - 1] : 0;
    return lower + ((upper - lower) * (half - below)) / (counts[at] - below);
  }
}
