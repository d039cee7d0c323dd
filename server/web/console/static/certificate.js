// How a version was made from its function: which ops run once for all rows, which do not and why, and what was checked.

import { ask, modelPath } from "./api.js";
import { fill, h, table } from "./dom.js";
import { count, number } from "./format.js";

const ORDER = ["refused", "looped", "own_batch", "vectorized", "invariant"];
const WORDS = {
  vectorized: "once for all rows", invariant: "once, as it doesn't depend on the example", looped: "once for each row",
  own_batch: "as the model takes a batch itself", refused: "refused",
};
const MARKS = { vectorized: "good", invariant: "idle", looped: "warn", own_batch: "idle", refused: "bad" };
const PADDING = { none: "nothing is padded", ignored: "padding is ignored", zeros: "right with zeros" };

/** Fill a panel with a version's certificate. */
export async function certificate(place, model, version) {
  let found;
  try {
    found = await ask("GET", `${modelPath(model, version)}/certificate`);
  } catch (error) {
    fill(place, h("h2", {}, "Certificate"), h("p", { class: "note" }, error.message));
    return;
  }
  const ops = [...(found.ops ?? [])].sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || b.count - a.count);
  const looped = ops.filter((op) => op.kind === "looped").reduce((sum, op) => sum + op.count, 0);
  const summary = found.summary ?? {};
  fill(place,
    h("h2", {}, "Certificate", h("small", {}, found.function ? ` of ${found.function}, TensorFlow ${found.tensorflow_version ?? "?"}` : "")),
    h("div", { class: "tiles small" },
      fact("Vectorized ops", number(summary.vectorized ?? 0)), fact("Invariant ops", number(summary.invariant ?? 0)),
      fact("Looped ops", number(looped), looped ? "warn" : "good"),
      fact("Loops", `${found.loops_batched ?? "?"}`, "", `${found.loops_unbatched ?? "?"} in the function of one example`),
      fact("Batch sizes checked", number(summary.buckets_checked ?? 0)),
      fact("Largest difference", number(summary.max_abs ?? null), "", "absolute, over all outputs and batch sizes")),
    h("h3", {}, "Ops"),
    table("Ops and what became of them", [["Op", "name"], ["Runs", ""], ["Number", "n"], ["By", ""], ["Where", "path"], ...(ops.some(isRemarkable) ? [["Why, and what to do", "wide"]] : [])],
      ops.map((op) => [
        op.op, h("span", { class: `mark-${MARKS[op.kind] ?? "idle"}` }, WORDS[op.kind] ?? op.kind), number(op.count), op.converter ?? "",
        (op.where ?? []).slice(0, 4).join(" ") + ((op.where ?? []).length > 4 ? " …" : ""),
        ...(ops.some(isRemarkable) ? [[op.reason ? h("p", { class: "reason" }, op.reason) : null, op.fix ? h("p", { class: "note" }, op.fix) : null, op.can_raise ? h("small", {}, "can fail on some value") : null]] : []),
      ])),
    h("h3", {}, "Parity with the function, by batch size"),
    table("Parity by batch size", [["Batch", "n"], ["Output", "name"], ["Examples", "n"], ["Largest difference", "n"], ["Relative", "n"], ["Units in the last place", "n"], ["Bits", ""], ["Padding", ""]],
      (found.parity ?? []).flatMap((bucket) => bucket.outputs.map((output) => [
        [bucket.rows, ...bucket.lengths].join(" × "), output.name, number(bucket.n_examples), number(output.max_abs), number(output.max_relative), number(output.max_ulp),
        output.bitwise_equal ? h("span", { class: "mark-good" }, "the same") : h("span", { class: "mark-idle", title: output.worst ?? "" }, "rounded otherwise"),
        PADDING[bucket.padding] ?? bucket.padding,
      ]))),
    h("h3", {}, "Bitwise groups"),
    h("p", { class: "note" }, "Batch sizes in one group gave the same bits for every example, in every place and beside every neighbour that was tried."),
    h("div", { class: "row" }, (found.bitwise_groups ?? []).map((group) => h("span", { class: "group" }, group.map((bucket) => h("span", { class: "chip" }, bucket.join(" × ")))))),
    (found.not_for_xla ?? []).length ? h("p", { class: "note" }, `Not compiled by XLA because of ${found.not_for_xla.join(", ")}.`) : null,
    probes(found));
}

function isRemarkable(op) {
  return Boolean(op.reason || op.fix || op.can_raise);
}

function fact(label, value, kind = "", meaning = "") {
  return h("div", { class: "tile", title: meaning || null }, h("span", { class: "label" }, label), h("span", { class: `value ${kind}` }, value));
}

function probes(found) {
  const tried = found.probes;
  if (!tried) return null;
  const kinds = [["yours", "of your own"], ["edge", "constant, empty or longest"], ["random", "random"], ["extreme", "extreme"]];
  const words = kinds.filter(([name]) => tried[name]).map(([name, word]) => `${tried[name]} ${word}`);
  const all = kinds.reduce((sum, [name]) => sum + (tried[name] ?? 0), 0);
  return h("p", { class: "note" }, `Checked with ${count(all, "example")}: ${words.join(", ")}${found.n_probes_refused ? `; the function itself refuses ${count(found.n_probes_refused, "other")}` : ""}.`);
}
