// The view of everything at once: numbers of the last second, two minutes in pictures, every model in a line.

import { ask } from "./api.js";
import { colour, draw, forget, layout, logarithmic } from "./charts.js";
import { fill, h, refill, say, table } from "./dom.js";
import { bytes, count, milliseconds, number, rate, share, when } from "./format.js";
import { SPAN_S, latestOf, listen, modelNames, representative, state, versionsOf } from "./live.js";
import { may } from "./session.js";
import { stateMark } from "./versions.js";

/** Seconds that are shown at least. */
const SHORTEST_S = 30;

const TILES = [
  ["answered", "Answered", "requests a second with an answer", (t) => [rate(t.answered_per_s), "/s"]],
  ["rows", "Rows", "examples executed a second", (t) => [rate(t.rows_per_s), "/s"]],
  ["p50", "Latency, median", "from admission to outputs, in the engine", (t) => [milliseconds(t.p50_ms), ""]],
  ["p99", "Latency, 99th", "99 of 100 requests took at most this long", (t) => [milliseconds(t.p99_ms), ""]],
  ["batch", "Rows a batch", "of callers, on average", (t) => [number(t.rows_per_batch), ""]],
  ["padding", "Padding", "rows that only filled a bucket, of all that ran", (t) => [share(t.padding_share), ""]],
  ["waiting", "Waiting", "rows in the queues now", (t) => [number(t.waiting_rows), ""]],
  ["busy", "Engine busy", "of the time, summed over engines", (t) => [share(t.busy_engines), ""]],
  ["unanswered", "Not answered", "refused (4xx) and failed (5xx) a second", (t) => [rate(t.refused_per_s + t.failed_per_s), "/s"]],
];

const CHARTS = [
  { title: "Throughput", unit: "a second", lines: [["rows", "rows_per_s", "blue"], ["requests answered", "answered_per_s", "green"]] },
  { title: "Latency", unit: "ms", log: true, lines: [["99th", "p99_ms", "red"], ["90th", "p90_ms", "amber"], ["median", "p50_ms", "blue"]] },
  { title: "Batches", unit: "rows", lines: [["rows a batch", "rows_per_batch", "blue"]], second: ["padding", "padding_share", "amber"] },
  { title: "Queue", unit: "rows", lines: [["waiting", "waiting_rows", "blue"]], second: ["engine busy", "busy_engines", "green"] },
];

/** What a model's row says of the last second; `now` is null where nothing happened. */
const COLUMNS = [
  ["Answered/s", "n", (now) => rate(now?.answered_per_s ?? 0)], ["Rows/s", "n", (now) => rate(now?.rows_per_s ?? 0)],
  ["Median", "n", (now) => milliseconds(now?.p50_ms)], ["99th", "n", (now) => milliseconds(now?.p99_ms)],
  ["Rows a batch", "n", (now) => number(now?.rows_per_batch)], ["Padding", "n", (now) => share(now?.padding_share)],
  ["Waiting", "n", (now) => number(now?.waiting_rows ?? 0)], ["Busy", "n", (now) => share(now?.busy_engines ?? 0)],
];

/** Show the view; returns what takes it away. */
export function overview(main) {
  const values = new Map();
  const tiles = h("section", { class: "tiles", "aria-label": "The last second" }, TILES.map(([name, label, meaning]) => {
    const value = h("span", { class: "value", "data-tile": name }, "–");
    values.set(name, value);
    return h("div", { class: "tile", title: meaning }, h("span", { class: "label" }, label), value);
  }));
  const charts = CHARTS.map((chart) => ({ ...chart, place: h("div", { class: "plot" }) }));
  const models = h("div");
  const server = h("div");
  fill(main, h("h1", { class: "unseen" }, "Overview"), tiles,
    h("section", { class: "charts", "aria-label": "The last two minutes" }, charts.map((chart) =>
      h("figure", { class: "panel" }, h("figcaption", {}, chart.title, h("small", {}, chart.unit)), chart.place))),
    h("section", { class: "panel" }, h("h2", {}, "Models"), models),
    h("section", { class: "panel" }, h("h2", {}, "Server"), server));

  const drawAll = () => {
    if (state.history.length === 0) return;
    for (const chart of charts) drawHistory(chart).catch((error) => say(chart.place, error.message));
  };
  const show = (what) => {
    if (what === "models") refill(models, modelTable());
    if (what !== "snapshot") return;
    const last = state.history.at(-1).total;
    for (const [name, , , format] of TILES) say(values.get(name), format(last).join(""));
    values.get("unanswered").classList.toggle("bad", last.failed_per_s > 0);
    for (const row of models.querySelectorAll("[data-row]")) sayNow(row);
    drawAll();
  };
  if (state.isKnown) show("models");
  if (state.history.length) show("snapshot");
  showServer(server);
  const unlisten = listen(show);
  document.addEventListener("recolour", drawAll);
  return () => {
    unlisten();
    document.removeEventListener("recolour", drawAll);
    for (const chart of charts) forget(chart.place);
  };
}

async function drawHistory(chart) {
  const now = state.history.at(-1).at_s;
  const x = state.history.map((snapshot) => snapshot.at_s - now);
  const line = ([name, key, hue], more = {}) => ({
    x, y: state.history.map((snapshot) => snapshot.total[key]), name, type: "scatter", mode: "lines",
    line: { color: colour(hue), width: 1.5, shape: "linear" }, connectgaps: false, hovertemplate: "%{y:.3~g}", ...more,
  });
  const traces = chart.lines.map((one) => line(one));
  const more = { xaxis: { range: [Math.max(-SPAN_S, Math.min(-SHORTEST_S, x[0])), 0], ticksuffix: " s", hoverformat: ".0f" }, yaxis: { rangemode: "tozero" } };
  if (chart.log) more.yaxis = logarithmic(traces.flatMap((trace) => trace.y));
  if (chart.second) {
    traces.push(line(chart.second, { yaxis: "y2", hovertemplate: "%{y:.0%}", line: { color: colour(chart.second[2]), width: 1.2, dash: "dot" } }));
    more.yaxis2 = { overlaying: "y", side: "right", range: [0, 1.02], tickformat: ".0%", showgrid: false, fixedrange: true, nticks: 3, tickfont: { size: 11, color: colour("muted") } };
    more.margin = { l: 44, r: 44, t: 6, b: 28 };
  }
  const last = state.history.at(-1).total;
  const words = [...chart.lines, ...(chart.second ? [chart.second] : [])].map(([name, key]) => `${name} ${number(last[key])}`);
  await draw(chart.place, traces, layout(more), `${chart.title} over the last two minutes; now: ${words.join(", ")}`);
}

function modelTable() {
  const names = modelNames();
  if (names.length === 0) {
    return h("p", { class: "note" }, state.isKnown ? "No model is registered yet, or none that you may see: rowwise register NAME MODULE:FUNCTION" : "…");
  }
  const rows = names.map((name) => {
    const record = representative(name);
    return [
      h("a", { href: `#/models/${name}/${record.version}` }, name),
      [`${record.version}`, h("small", {}, ` of ${versionsOf(name).length}`)],
      stateMark(record),
      ...COLUMNS.map(([,, format]) => format(latestOf(name, record.version))),
    ];
  });
  const keys = names.map((name) => `${representative(name).version} ${name}`);
  return table("Models and their last second", [
    ["Model", "name"], ["Version", "n"], ["State", ""], ...COLUMNS,
  ], rows, { rowKey: (index) => keys[index] });
}

/** Put the last second's numbers into a row that is there. */
function sayNow(row) {
  const [version, model] = row.dataset.row.split(" ");
  const now = latestOf(model, Number(version));
  const cells = [...row.cells].slice(-COLUMNS.length);
  COLUMNS.forEach(([,, format], place) => say(cells[place], format(now)));
}

async function showServer(place) {
  if (!may("read")) {
    fill(place, h("p", { class: "note" }, "This is for who has the right to read."));
    return;
  }
  let found;
  try {
    found = await ask("GET", "/v1/status");
  } catch (error) {
    fill(place, h("p", { class: "note" }, error.message));
    return;
  }
  const { jail, store, processes } = found;
  const missing = Object.keys(jail?.missing ?? {});
  const release = [`Rowwise ${found.version ?? "?"}`, found.tensorflow ? `TensorFlow ${found.tensorflow}` : null, found.python ? `Python ${found.python}` : null];
  fill(place, h("dl", { class: "facts" },
    h("dt", {}, "Release"), h("dd", {}, release.filter(Boolean).join(", ")),
    found.uptime_s ? [h("dt", {}, "Runs since"), h("dd", {}, when(new Date(Date.now() - 1000 * found.uptime_s).toISOString()))] : null,
    processes ? [h("dt", {}, "Processes"), h("dd", {}, Object.entries(processes).map(([name, one]) => `${name}${one.restarts ? ` (started again ${count(one.restarts, "time")})` : ""}`).join(", "))] : null,
    jail ? [h("dt", {}, "Builds are shut in"), h("dd", { class: missing.length ? "warn" : "" }, jail.mode === "off" ? "not at all (jail off)" : missing.length ? `in part, by ${jail.means}; missing: ${missing.join(", ")}` : `whole, by ${jail.means}`)] : null,
    store ? [h("dt", {}, "Store"), h("dd", {}, `${count(store.models ?? 0, "model")}, ${bytes(store.bytes ?? 0)}${store.is_read_only ? ", can't be written to" : ""}`, h("small", { class: "path" }, ` ${store.directory ?? ""}`))] : null,
    state.notes.map((note) => [h("dt", { class: "warn" }, "Note"), h("dd", {}, note)])));
}
