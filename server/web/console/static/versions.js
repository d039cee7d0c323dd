// Versions of a model, what has become of them, and what may be done with them.

import { ask, modelPath } from "./api.js";
import { confirmed } from "./dialogs.js";
import { h, table, toast } from "./dom.js";
import { when } from "./format.js";
import { versionsOf } from "./live.js";
import { may } from "./session.js";

const MARKS = {
  AVAILABLE: "good", BUILDING: "busy", LOADING: "busy", UNLOADING: "busy", FAILED: "bad", BUILT: "idle", UNLOADED: "idle",
};

/** Return a version's state as a word with its colour, and how far its build is. */
export function stateMark(record) {
  const mark = h("span", { class: `mark-${MARKS[record.state] ?? "idle"}` }, record.state.toLowerCase());
  const progress = record.progress;
  if (record.state !== "BUILDING" || !progress) return mark;
  const known = progress.total > 0;
  return h("span", { class: "building" }, mark,
    h("progress", known ? { value: String(progress.done), max: String(progress.total), "aria-label": "build" } : { "aria-label": "build" }),
    h("small", {}, known ? `${progress.stage} ${progress.done}/${progress.total}` : `${progress.stage}`));
}

/** Return a table of a model's versions. `shown`: the one that the view is about. */
export function versionTable(model, shown) {
  const versions = versionsOf(model);
  const canManage = may("manage");
  const rows = versions.map((record) => [
    h("a", { href: `#/models/${model}/${record.version}`, "aria-current": record.version === shown ? "true" : null }, `${record.version}`),
    [stateMark(record), record.reason ? h("p", { class: "reason" }, record.reason) : null],
    record.active ? h("strong", { class: "active" }, "answers") : record.shadow ? "shadow" : "",
    [Object.keys(record.labels).map((label) => h("span", { class: "chip" }, label))],
    h("time", { datetime: record.created_at }, when(record.created_at)),
    canManage && !record.active && ["AVAILABLE", "BUILT", "UNLOADED"].includes(record.state)
      ? h("button", { type: "button", "data-act": "activate", "aria-label": `Activate version ${record.version} of ${model}`, click: () => activate(model, record.version) }, "Activate") : "",
  ]);
  return table(`Versions of ${model}`, [["Version", "n"], ["State", "wide"], ["", ""], ["Labels", ""], ["Registered", ""], ["", "end"]], rows,
    { rowClass: (index) => (versions[index].version === shown ? "shown" : null) });
}

/** Return the buttons for what is done with a whole model; without the right, a sentence. */
export function modelActions(model) {
  if (!may("manage")) return h("p", { class: "note", "data-no-right": "manage" }, "You may look; to activate, roll back or unload takes the right to manage.");
  const active = versionsOf(model).find((record) => record.active);
  return h("div", { class: "row" },
    h("button", { type: "button", "data-act": "rollback", click: () => rollback(model), disabled: !active }, "Roll back"),
    h("button", { type: "button", "data-act": "unload", click: () => unload(model), disabled: !active }, "Unload"));
}

async function doing(method, path, said) {
  try {
    await ask(method, path);
    toast(said);
  } catch (error) {
    toast(error.message, "bad");
  }
}

async function activate(model, version) {
  const active = versionsOf(model).find((record) => record.active);
  const now = active ? `Version ${active.version} answers now; what runs in it ends as it began.` : "No version answers now.";
  if (await confirmed(`Activate version ${version} of ${model}?`, [`Requests that name no version are answered by version ${version} from then on.`, now], "Activate")) {
    await doing("POST", `${modelPath(model, version)}:activate`, `Version ${version} of ${model} answers.`);
  }
}

async function rollback(model) {
  let history;
  try {
    ({ history } = await ask("GET", `${modelPath(model)}/history`));
  } catch (error) {
    toast(error.message, "bad");
    return;
  }
  const lines = history.slice(-4).reverse().map((one) => `${when(one.at)}: version ${one.version}${one.by ? `, by ${one.by}` : ""}`);
  if (await confirmed(`Roll ${model} back?`, ["The version that answered before answers again.", `Activated last: ${lines.join("; ") || "nothing yet"}.`], "Roll back")) {
    await doing("POST", `${modelPath(model)}:rollback`, `${model} is rolled back.`);
  }
}

async function unload(model) {
  if (await confirmed(`Unload ${model}?`, ["No version of it answers any more, also after a restart, until one is activated.", "Requests that run are answered first."], "Unload")) {
    await doing("POST", `/v2/repository/models/${encodeURIComponent(model)}/unload`, `${model} is unloaded.`);
  }
}
