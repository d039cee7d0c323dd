// Requests to the server that sent this page. The token is kept for this tab alone, and travels in a header alone.

const KEY = "rowwise.token";

export function token() {
  return sessionStorage.getItem(KEY) || "";
}

export function keepToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** An answer that is no success: its status, and the server's sentence. */
export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Send a request as it is and return the answer, whatever its status. */
export function send(method, path, { body, headers = {}, signal } = {}) {
  const sent = { "X-Rowwise-Console": "1", ...headers };
  if (token()) sent.Authorization = `Bearer ${token()}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  return fetch(path, { method, headers: sent, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

/** Ask for JSON. Throws Refusal. */
export async function ask(method, path, options) {
  let answer;
  try {
    answer = await send(method, path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server can't be reached.");
  }
  return read(answer);
}

/** Return an answer's JSON; null where there is none. Throws Refusal. */
export async function read(answer) {
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* not ours: the status says enough */ }
  if (!answer.ok) throw new Refusal(answer.status, value?.error ?? `The server answered ${answer.status}.`);
  return value;
}

/** Return the path of a model, or of one of its versions. */
export function modelPath(model, version = null) {
  const path = `/v1/models/${encodeURIComponent(model)}`;
  return version === null ? path : `${path}/versions/${version}`;
}
