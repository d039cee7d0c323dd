// Who looks, and what he may do. The server decides; this only keeps buttons from promising what it would refuse.

import { ask, keepToken, token } from "./api.js";
import { askedForToken } from "./dialogs.js";
import { say } from "./dom.js";

export const session = { who: null, scopes: [], sentence: "", version: "" };

const listeners = new Set();

export function onSession(callback) {
  listeners.add(callback);
}

export const may = (scope) => session.scopes.includes(scope);

/** Ask the server who this is. */
export async function identify() {
  try {
    const found = await ask("GET", "/v1/console/session");
    Object.assign(session, { who: found.who, scopes: found.scopes, sentence: "", version: found.server_version });
  } catch (error) {
    Object.assign(session, { who: null, scopes: [], sentence: error.message });
  }
  const button = document.getElementById("session");
  const text = session.who === null ? "Sign in" : session.who === "local" ? "this machine" : session.who;
  say(button, text);
  button.setAttribute("aria-label", session.who === null ? "Sign in with a token" : `Signed in as ${text}: change the token`);
  button.title = session.who === null ? session.sentence : `may ${session.scopes.join(", ")}`;
  for (const callback of listeners) callback();
}

/** Let a token be entered, changed or forgotten. */
export async function signIn() {
  const told = session.who === null
    ? session.sentence || "A token is needed to see what this server does."
    : `You are ${session.who === "local" ? "on this machine, where no token is needed" : session.who}, who may ${session.scopes.join(", ")}.`;
  const given = await askedForToken(told, token() !== "");
  if (given === null) return;
  keepToken(given);
  await identify();
}
