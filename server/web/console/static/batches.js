// The last batches, and why each ran when it did and in that size.

import { ask } from "./api.js";
import { bar, fill, h, refill, table } from "./dom.js";
import { milliseconds, number } from "./format.js";
import { listen, modelNames } from "./live.js";

const EVERY_MS = 2_000;
const SHOWN = 40;
const WORDS = { oldest: "its turn", deadline: "deadline near", rescue: "to meet a deadline", shed: "late rows given up" };

/** Show the view; returns what takes it away. */
export function batches(main) {
  const place = h("div");
  const chosen = h("select", { change: () => look() });
  const pause = h("button", { type: "button", "aria-pressed": "false", click: () => { isPaused = !isPaused; pause.setAttribute("aria-pressed", String(isPaused)); pause.textContent = isPaused ? "Go on" : "Hold still"; } }, "Hold still");
  let isPaused = false;
  let timer = 0;
  let asked = 0;
  let hasEnded = false;
  fill(main, h("div", { class: "row between" }, h("h1", {}, "Recent batches"), h("div", { class: "row" }, h("label", {}, "Model", chosen), pause)),
    h("section", { class: "panel" }, place));

  const offer = () => {
    const before = chosen.value;
    fill(chosen, h("option", { value: "" }, "all"), modelNames().map((name) => h("option", { value: name }, name)));
    chosen.value = before;
  };
  const look = async () => {
    const mine = (asked += 1);
    try {
      const model = chosen.value ? `&model=${encodeURIComponent(chosen.value)}` : "";
      const found = await ask("GET", `/v1/debug/batches?limit=${SHOWN}${model}`);
      if (mine === asked && !hasEnded) refill(place, shown(found.batches));
    } catch (error) {
      if (!hasEnded) fill(place, h("p", { class: "note" }, error.message));
    }
  };
  const turn = async () => {
    if (!isPaused && !document.hidden) await look();
    if (!hasEnded) timer = setTimeout(turn, EVERY_MS);
  };
  offer();
  turn();
  const unlisten = listen((what) => what === "models" && offer());
  return () => {
    hasEnded = true;
    clearTimeout(timer);
    unlisten();
  };
}

function shown(found) {
  if (found.length === 0) return h("p", { class: "note" }, "No batch has run yet.");
  return table("Recent batches, newest first", [
    ["Started", ""], ["Model", "name"], ["Rows in bucket", ""], ["Requests", "n"], ["Waited", "n"], ["Predicted", "n"], ["Took", "n"], ["Why then", ""], ["Why this size", "wide"],
  ], found.map((batch) => [
    h("time", {}, clock(batch.started_at_s)),
    [`${batch.model} `, h("small", {}, `v${batch.version}${batch.entry === "predict" ? "" : ` ${batch.entry}`}${batch.lengths.length ? ` ${batch.lengths.join("×")}` : ""}`)],
    filled(batch), number(batch.requests),
    batch.longest_wait_ms === batch.shortest_wait_ms ? milliseconds(batch.longest_wait_ms) : `${milliseconds(batch.shortest_wait_ms)} – ${milliseconds(batch.longest_wait_ms)}`,
    milliseconds(batch.predicted_ms), milliseconds(batch.took_ms),
    h("span", { title: batch.why_then }, batch.error ? h("span", { class: "mark-bad" }, batch.error) : WORDS[batch.reason] ?? batch.reason),
    h("small", {}, batch.why_this_size),
  ]));
}

/** Return how far a bucket was filled, as a bar and in figures. */
function filled(batch) {
  return h("span", { class: "filled" }, bar(batch.rows / batch.bucket, `${batch.rows} rows in a bucket of ${batch.bucket}`), `${batch.rows}/${batch.bucket}`);
}

function clock(seconds) {
  const date = new Date(seconds * 1000);
  return `${date.toLocaleTimeString([], { hour12: false })}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
