// The view in which a model is asked something, and says how it came to the answer.

import { modelPath, read, send } from "./api.js";
import { drawing } from "./drawing.js";
import { bar, fill, h } from "./dom.js";
import { milliseconds } from "./format.js";
import { listen, modelNames, versionsOf } from "./live.js";
import { canvasInput, exampleRequest, inputsOf, written } from "./signature.js";

/** An output of so few numbers is shown as bars. */
const MOST_BARS = 32;
const STEPS = { queue: "waited", compute: "ran", rest: "on the way" };

/** Show the view; returns what takes it away. */
export function trial(main, model, version) {
  const names = h("select", { change: () => choose(names.value, "") });
  const versions = h("select", { change: () => choose(names.value, versions.value) });
  const editor = h("textarea", { rows: "12", spellcheck: "false", "aria-label": "Request in JSON", keydown: (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  } });
  const note = h("p", { class: "note" });
  const sheet = h("div");
  const answer = h("div", { class: "answer", "aria-live": "polite" }, h("p", { class: "note" }, "The answer comes here."));
  const button = h("button", { type: "button", class: "primary", "data-act": "predict", click: () => ask() }, "Predict");
  let inputs = [];
  let chosen = 0;
  let drawn = null;

  fill(main, h("div", { class: "row between" }, h("h1", {}, "Try a model"), h("div", { class: "row" }, h("label", {}, "Model", names), h("label", {}, "Version", versions))),
    h("div", { class: "two" },
      h("section", { class: "panel" }, h("h2", {}, "Request"), sheet, editor, note, h("div", { class: "row" }, button, h("small", {}, "Ctrl + Enter"))),
      h("section", { class: "panel" }, h("h2", {}, "Answer"), answer)));

  const offer = () => {
    const before = names.value || model || "";
    fill(names, modelNames().map((name) => h("option", { value: name }, name)));
    if (before && !modelNames().includes(before)) names.append(h("option", { value: before }, before));
    names.value = before || modelNames()[0] || "";
    const held = versions.value;
    fill(versions, h("option", { value: "" }, "the one that answers"), versionsOf(names.value).filter((record) => record.state === "AVAILABLE").map((record) => h("option", { value: String(record.version) }, String(record.version))));
    versions.value = [...versions.options].some((option) => option.value === held) ? held : "";
  };
  const choose = async (name, number) => {
    const mine = (chosen += 1);
    names.value = name;
    offer();
    versions.value = [...versions.options].some((option) => option.value === String(number)) ? String(number) : "";
    if (!name) return;
    try {
      const found = await inputsOf(name, versions.value ? Number(versions.value) : null);
      if (mine !== chosen) return;
      inputs = found;
    } catch (error) {
      if (mine === chosen) { inputs = []; fill(sheet); fill(note, error.message); }
      return;
    }
    const canvas = canvasInput(inputs);
    drawn = canvas ? drawing((values) => { write(); if (values.some((value) => value > 0)) ask(); }) : null;
    fill(sheet, drawn?.place ?? []);
    write();
  };
  const write = () => {
    const canvas = canvasInput(inputs);
    const values = {};
    if (drawn && canvas) {
      const pixels = drawn.values();
      values[canvas.name] = canvas.shape.length === 2 ? Array.from({ length: 8 }, (_, row) => pixels.slice(8 * row, 8 * row + 8)) : pixels;
    }
    const { text, left } = exampleRequest(inputs, values);
    editor.value = text;
    fill(note, inputs.map((input) => h("span", { class: "chip" }, `${input.name}: ${input.datatype.toLowerCase()}[${input.shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]${input.isOptional ? ", may be left out" : ""}`)), left.map((sentence) => h("p", {}, sentence)));
  };
  const ask = async () => {
    try {
      JSON.parse(editor.value);
    } catch (error) {
      fill(answer, h("p", { class: "reason", role: "alert" }, `This is no JSON: ${error.message}`));
      return;
    }
    button.disabled = true;
    const started = performance.now();
    try {
      const path = `${modelPath(names.value, versions.value ? Number(versions.value) : null)}:predict`;
      const reply = await send("POST", path, { body: editor.value, headers: { "X-Rowwise-Explain": "1" } });
      const took = performance.now() - started;
      fill(answer, shown(await read(reply), took, reply.headers.get("server-timing")));
    } catch (error) {
      fill(answer, h("p", { class: "reason", role: "alert", "data-status": error.status ?? "" }, error.message));
    } finally {
      button.disabled = false;
    }
  };
  const begin = () => {
    offer();
    choose(model || names.value, version || "");
  };
  begin();
  const recolour = () => drawn?.redraw();
  document.addEventListener("recolour", recolour);
  const unlisten = listen((what) => {
    if (what !== "models") return;
    if (inputs.length === 0) begin();
    else offer();
  });
  return () => {
    unlisten();
    document.removeEventListener("recolour", recolour);
  };
}

function shown(value, took, timing) {
  const [first] = value.predictions ?? [];
  const named = first !== null && typeof first === "object" && !Array.isArray(first) ? first : { prediction: first };
  const bars = value.predictions?.length === 1 ? Object.entries(named).filter(([, output]) => isBars(output)) : [];
  return [steps(took, timing), bars.map(([name, output]) => barsOf(name, output)),
    h("details", { open: bars.length === 0 }, h("summary", {}, "As JSON"), h("pre", {}, written(value)))];
}

function isBars(output) {
  return Array.isArray(output) && output.length > 1 && output.length <= MOST_BARS && output.every((item) => typeof item === "number" && item >= 0) && Math.max(...output) > 0;
}

/** Return an output as a bar for each number, the largest marked. */
function barsOf(name, output) {
  const most = Math.max(...output);
  return h("figure", { class: "bars" }, h("figcaption", {}, name),
    h("ol", {}, output.map((item, place) => h("li", { class: item === most ? "most" : null, "data-place": place },
      h("span", { class: "place" }, String(place)), bar(item / most, `${name} ${place}: ${item}`), h("span", { class: "figure" }, item >= 0.001 || item === 0 ? item.toPrecision(3) : item.toExponential(1))))));
}

/** Return where the time went: in the queue, in the graph, and all else until the answer was here. */
function steps(took, timing) {
  const found = new Map();
  let batch = "";
  for (const part of (timing ?? "").split(/,\s*(?=\w+;)/)) {
    const [name, rest = ""] = part.split(/;(.*)/s);
    const duration = /dur=([\d.]+)/.exec(rest);
    if (duration) found.set(name.trim(), Number(duration[1]));
    const told = /desc="([^"]*)"/.exec(rest);
    if (told) batch = told[1];
  }
  const known = [...found.values()].reduce((sum, value) => sum + value, 0);
  found.set("rest", Math.max(0, took - known));
  return h("div", { class: "timing" }, h("p", {}, h("strong", {}, milliseconds(took)), " in all"),
    h("ul", { class: "steps" }, [...found].map(([name, value]) => h("li", { "data-step": name }, h("span", { class: `dot ${name}` }), `${STEPS[name] ?? name} ${milliseconds(value)}`))),
    batch ? h("p", { class: "note", "data-batch": "" }, `batch ${batch.replaceAll("=", " ")}`) : null);
}
