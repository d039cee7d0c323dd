// Questions that have to be answered before anything goes on.

import { h } from "./dom.js";

function open(title, body, buttons) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), body, h("div", { class: "row end" }, buttons)));
    dialog.addEventListener("close", () => {
      const answer = dialog.returnValue;
      const value = dialog.querySelector("input")?.value ?? "";
      dialog.remove();
      resolve({ answer, value });
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask whether to do what changes something for callers; true if so. */
export async function confirmed(title, sentences, verb) {
  const { answer } = await open(title, sentences.map((text) => h("p", {}, text)), [
    h("button", { value: "cancel", autofocus: true }, "Cancel"),
    h("button", { value: "yes", class: "danger" }, verb),
  ]);
  return answer === "yes";
}

/** Ask for a token; null: nothing is to change, "": forget it. */
export async function askedForToken(sentence, hasToken) {
  const { answer, value } = await open("Token", [
    h("p", {}, sentence),
    h("label", {}, "Token", h("input", { type: "password", autocomplete: "off", spellcheck: "false", autofocus: true })),
    h("p", { class: "note" }, "It is kept for this tab, until it is closed, and sent in a header only."),
  ], [
    hasToken ? h("button", { value: "forget" }, "Forget it") : null,
    h("button", { value: "cancel", type: "button", click: (event) => event.target.closest("dialog").close("cancel") }, "Cancel"),
    h("button", { value: "use", class: "primary" }, "Use it"),
  ]);
  if (answer === "forget") return "";
  return answer === "use" && value.trim() ? value.trim() : null;
}
