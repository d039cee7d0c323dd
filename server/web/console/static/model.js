// The view of one version: what is done with its model, what its batches cost, how it was made from the function.

import { certificate } from "./certificate.js";
import { costs } from "./costs.js";
import { fill, h, refill, say } from "./dom.js";
import { milliseconds, number, rate, share } from "./format.js";
import { latestOf, listen, modelNames, representative, state, versionsOf } from "./live.js";
import { may, onSession } from "./session.js";
import { modelActions, stateMark, versionTable } from "./versions.js";

/** Show the list of models, or one version; returns what takes the view away. */
export function models(main, model, version) {
  return model ? one(main, model, Number(version) || null) : list(main);
}

function list(main) {
  const place = h("div", { class: "cards" });
  fill(main, h("h1", {}, "Models"), place);
  const show = (what) => {
    if (what === "snapshot") return;
    const names = modelNames();
    refill(place, names.length === 0 ? h("p", { class: "note" }, state.isKnown ? "There is no model that you may see." : "…") : names.map((name) => {
      const record = representative(name);
      return h("section", { class: "panel" },
        h("h2", {}, h("a", { href: `#/models/${name}/${record.version}` }, name), h("small", {}, ` version ${record.version}`)),
        h("p", {}, stateMark(record), versionsOf(name).length > 1 ? h("small", {}, ` ${versionsOf(name).length} versions`) : null),
        record.reason ? h("p", { class: "reason" }, record.reason) : null);
    }));
  };
  show("models");
  return listen(show);
}

function one(main, model, wanted) {
  const version = wanted ?? representative(model)?.version ?? null;
  const head = h("div");
  const table = h("div");
  const actions = h("div");
  const now = h("p", { class: "now" });
  const planned = h("section", { class: "panel" }, h("h2", {}, "Costs and plan"));
  const checked = h("section", { class: "panel", id: "certificate" }, h("h2", {}, "Certificate"));
  fill(main, head, h("section", { class: "panel" }, h("div", { class: "row between" }, h("h2", {}, "Versions"), actions), table), planned, checked);
  let loaded = null;
  let ends = [];
  const load = () => {
    const record = versionsOf(model).find((found) => found.version === version);
    // What was built is there; it is planned with while it is loaded.
    const key = record ? `${record.state}` : null;
    if (key === loaded || !may("read") || !record) return;
    loaded = key;
    for (const end of ends) end();
    ends = [];
    if (["BUILDING", "FAILED"].includes(record.state)) {
      const text = record.state === "FAILED" ? "It was not built, so there is none." : "It is being built.";
      for (const [place, title] of [[planned, "Costs and plan"], [checked, "Certificate"]]) fill(place, h("h2", {}, title), h("p", { class: "note" }, text));
      return;
    }
    ends.push(costs(planned, model, version, record.state === "AVAILABLE"));
    certificate(checked, model, version);
  };
  const show = (what) => {
    if (what === "snapshot") {
      const last = latestOf(model, version);
      say(now, last ? `${rate(last.answered_per_s)} answered/s · ${rate(last.rows_per_s)} rows/s · median ${milliseconds(last.p50_ms)} · 99th ${milliseconds(last.p99_ms)} · ${number(last.rows_per_batch)} rows a batch · ${share(last.padding_share)} padding · ${number(last.waiting_rows)} waiting` : "Nothing came in the last second.");
      return;
    }
    const record = versionsOf(model).find((found) => found.version === version);
    refill(head, h("h1", {}, h("a", { href: "#/models", class: "up" }, "Models"), " / ", model, version ? h("small", {}, ` version ${version}`) : null),
      record ? h("p", { class: "row" }, stateMark(record), record.active ? h("strong", { class: "active" }, "answers") : null,
        h("a", { class: "button", href: `#/try/${model}/${version}` }, "Try it")) : h("p", { class: "note" }, state.isKnown ? "There is no such version, or none that you may see." : "…"), now);
    refill(table, versionTable(model, version));
    refill(actions, modelActions(model));
    load();
  };
  show("models");
  if (state.history.length) show("snapshot");
  const unlisten = listen(show);
  const isHere = () => head.isConnected && show("models");
  onSession(isHere);
  return () => {
    unlisten();
    for (const end of ends) end();
  };
}
