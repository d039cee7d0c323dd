// The page: which view is shown, in which colours, and how the connection is.

import { batches } from "./batches.js";
import { plotly } from "./charts.js";
import { fill, say } from "./dom.js";
import { follow, listen, state, stop } from "./live.js";
import { models } from "./model.js";
import { overview } from "./overview.js";
import { identify, may, onSession, session, signIn } from "./session.js";
import { trial } from "./trial.js";

const VIEWS = { "": overview, models, batches, try: trial };
const THEMES = ["", "light", "dark"];
const THEME_WORDS = { "": ["◐", "as the system has them"], light: ["☀", "light"], dark: ["☾", "dark"] };

const main = document.getElementById("main");
let leave = () => {};

function route({ focus }) {
  const [name = "", ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const known = name in VIEWS ? name : "";
  leave();
  leave = VIEWS[known](main, ...parts);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.dataset.view === (known || "overview");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = main.querySelector("h1")?.textContent;
  document.title = title ? `${title} · Rowwise` : "Rowwise";
  if (focus) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function showStream() {
  const words = { waiting: "connecting", live: "live", refused: "no access", lost: "not connected" };
  const place = document.getElementById("stream");
  place.dataset.state = state.stream;
  say(place, words[state.stream]);
  place.title = state.sentence;
  showBanner();
}

function showBanner() {
  const banner = document.getElementById("banner");
  let text = "";
  if (state.stream === "lost") text = state.sentence;
  else if (session.who === null && session.sentence) text = session.sentence;
  else if (session.who !== null && !may("read")) text = `${session.who} may ${session.scopes.join(" and ")}; what the server does is for who may read. A model can be tried.`;
  else if (state.ready === false) text = `Not ready. ${state.reasons.join("; ")}`;
  else if (state.notes.length) text = state.notes.join("; ");
  banner.hidden = text === "";
  say(banner, text);
}

function chosenTheme() {
  return document.documentElement.dataset.theme ?? "";
}

function showTheme() {
  const [sign, word] = THEME_WORDS[chosenTheme()];
  const button = document.getElementById("theme");
  say(button, sign);
  button.setAttribute("aria-label", `Colours: ${word}`);
  button.title = `Colours: ${word}`;
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(chosenTheme()) + 1) % THEMES.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("rowwise.theme", next); } catch { /* storage is turned off */ }
  showTheme();
  document.dispatchEvent(new Event("recolour"));
}

document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("session").addEventListener("click", signIn);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("recolour")));
addEventListener("hashchange", () => route({ focus: true }));
// A browser gives a server six connections in all; tabs that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (session.who !== null && may("read")) follow();
});
onSession(() => {
  stop();
  Object.assign(state, { models: [], history: [], isKnown: false, ready: null, reasons: [], notes: [], stream: "waiting" });
  if (session.who !== null && may("read")) follow();
  else state.stream = "refused";
  route({ focus: false });
  showStream();
});
listen((what) => {
  if (what === "stream") showStream();
  if (what === "models") showBanner();
});

showTheme();
route({ focus: false });
await identify();
// The charts' library is the largest part by far: what can be shown without it is there first.
setTimeout(() => plotly().catch((error) => console.warn(error.message)), 50);
fill(document.getElementById("toast"));
