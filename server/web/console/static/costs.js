// What each batch size costs, and on it what the planner would run, and what it ran last.

import { ask, modelPath } from "./api.js";
import { colour, draw, forget, layout, logarithmic } from "./charts.js";
import { fill, h, say, table } from "./dom.js";
import { milliseconds, number } from "./format.js";

const EVERY_MS = 3_000;
const NOBODY = 0;

/** Fill a panel with costs and plan, which only what is loaded has; returns what ends its looking. */
export function costs(place, model, version, isLoaded) {
  const view = { plan: null, measured: [], batches: [], group: 0, load: 0.5 };
  const plot = h("div", { class: "plot tall" });
  const chooser = h("div", { class: "row" });
  const below = h("div");
  const says = h("p", { class: "note" });
  fill(place, h("div", { class: "row between" }, h("h2", {}, "Costs and plan"), chooser), plot, says, below);
  let timer = 0;
  let hasEnded = false;

  const show = () => {
    const group = view.plan?.groups[view.group];
    drawCosts(plot, view, group).catch((error) => say(plot, error.message));
    say(says, group ? sentence(group, view.load) : "It is not loaded, so nothing is planned with it; these are its measured costs.");
  };
  const watch = async () => {
    try {
      const found = await ask("GET", `/v1/debug/batches?limit=200&model=${encodeURIComponent(model)}`);
      view.batches = found.batches.filter((batch) => batch.version === version && batch.entry === "predict" && batch.error === null);
      if (!hasEnded && !document.hidden) show();
    } catch { /* what was seen last stays */ }
    if (!hasEnded) timer = setTimeout(watch, EVERY_MS);
  };
  const begin = async () => {
    const [plan, measured] = await Promise.allSettled([isLoaded ? ask("GET", `${modelPath(model, version)}/plan`) : Promise.reject(), ask("GET", `${modelPath(model, version)}/costs`)]);
    if (hasEnded) return;
    view.plan = plan.status === "fulfilled" && plan.value.groups.length ? plan.value : null;
    view.measured = measured.status === "fulfilled" ? measured.value.entries?.predict ?? [] : [];
    fill(chooser, choosers(view, show));
    fill(below, modes(view.measured));
    show();
    watch();
  };
  begin();
  document.addEventListener("recolour", show);
  return () => {
    hasEnded = true;
    clearTimeout(timer);
    document.removeEventListener("recolour", show);
    forget(plot);
  };
}

function choosers(view, show) {
  if (!view.plan) return [];
  const groups = view.plan.groups;
  const loads = groups[0].choices.map((choice) => choice.load);
  return [
    groups.length > 1 ? h("label", {}, "Padded length", h("select", { change: (event) => { view.group = Number(event.target.value); show(); } },
      groups.map((group, index) => h("option", { value: index }, group.lengths.join(" × "))))) : null,
    h("label", {}, "Planned at", h("select", { change: (event) => { view.load = Number(event.target.value); show(); } },
      loads.map((load) => h("option", { value: load, selected: load === view.load }, load === NOBODY ? "no load" : `${Math.round(load * 100)} % load`)))),
  ];
}

/** Return the planner's rule at a load, in words. */
function sentence(group, load) {
  const { runs } = group.choices.find((choice) => choice.load === load);
  const parts = runs.slice(0, 8).map(([first, bucket], index) => {
    const last = index + 1 < runs.length ? runs[index + 1][0] - 1 : null;
    const rows = last === null ? `${first} or more` : last === first ? `${first}` : `${first} to ${last}`;
    return `${rows} → ${bucket}`;
  });
  const when = load === NOBODY ? "While nobody else comes" : `At ${Math.round(load * 100)} % load`;
  return `${when}, with so many rows waiting the batch size is: ${parts.join("; ")}${runs.length > 8 ? "; …" : ""}.`;
}

async function drawCosts(plot, view, group) {
  const traces = [];
  const lengths = JSON.stringify(group?.lengths ?? view.measured[0]?.lengths ?? []);
  const others = view.measured.filter((mode) => JSON.stringify(mode.lengths) === lengths && mode.cost_s);
  const rejected = others.filter((mode) => !mode.chosen);
  if (rejected.length) {
    traces.push({
      x: rejected.map((mode) => mode.rows), y: rejected.map((mode) => mode.cost_s * 1e3), name: "other modes, measured", mode: "markers", type: "scatter",
      marker: { color: colour("muted"), size: 5, symbol: "x-thin-open" }, hovertemplate: "%{y:.3~g} ms",
    });
  }
  const curve = group ? group.costs : others.filter((mode) => mode.chosen).sort((a, b) => a.rows - b.rows).map((mode) => ({ rows: mode.rows, ms: mode.cost_s * 1e3 }));
  if (group) {
    const { runs } = group.choices.find((choice) => choice.load === view.load);
    const cost = new Map(group.costs.map((one) => [one.rows, one.ms]));
    const ends = runs.map((_, index) => (index + 1 < runs.length ? runs[index + 1][0] : group.most_rows));
    traces.push({
      x: runs.flatMap(([first], index) => [first, ends[index]]), y: runs.flatMap(([, bucket]) => [cost.get(bucket), cost.get(bucket)]),
      text: runs.flatMap(([, bucket]) => [bucket, bucket]), name: "planned for so many waiting rows", mode: "lines", type: "scatter",
      line: { color: colour("amber"), width: 2, shape: "hv" }, hovertemplate: "batch of %{text}",
    });
  }
  traces.push({
    x: curve.map((one) => one.rows), y: curve.map((one) => one.ms), name: group ? "cost of a full batch, as planned with" : "cost, measured", mode: "lines+markers", type: "scatter",
    line: { color: colour("blue"), width: 1.5 }, marker: { color: colour("blue"), size: 7 }, hovertemplate: "%{y:.3~g} ms",
  });
  if (view.batches.length) {
    traces.push({
      x: view.batches.map((batch) => batch.rows), y: view.batches.map((batch) => batch.took_ms), name: "ran lately", mode: "markers", type: "scatter",
      marker: { color: colour("green"), size: 5, opacity: 0.45 }, hovertemplate: "took %{y:.3~g} ms",
    });
  }
  const sizes = curve.map((one) => one.rows);
  await draw(plot, traces, layout({
    xaxis: { type: "log", title: { text: "rows" }, tickvals: sizes, ticktext: sizes.map(String) },
    yaxis: { ...logarithmic(traces.flatMap((trace) => trace.y)), title: { text: "ms a batch" } }, hovermode: "closest",
  }), `Cost of a batch by its size: ${curve.map((one) => `${one.rows} rows ${milliseconds(one.ms)}`).join(", ")}`);
}

function modes(measured) {
  if (!measured.length) return null;
  return h("details", {}, h("summary", {}, `Every mode that was measured (${measured.length})`),
    table("Measured modes", [["Batch", "n"], ["Compiler", ""], ["Executor", ""], ["Threads", "n"], ["Control flow", ""], ["Cost", "n"], ["A row", "n"], ["", ""]],
      measured.map((mode) => [
        [mode.rows, ...mode.lengths].join(" × "), mode.compiler, mode.executor, number(mode.intra_op_threads), mode.control_flow,
        mode.cost_s ? milliseconds(mode.cost_s * 1e3) : "–", mode.cost_s ? milliseconds((mode.cost_s * 1e3) / mode.rows) : "–",
        mode.chosen ? h("span", { class: "mark-good" }, "served") : mode.error ? h("small", { class: "reason" }, mode.error) : "",
      ])));
}
