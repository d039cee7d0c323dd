// What the server tells once a second. By fetch and not by EventSource, which can send no token.

import { Refusal, read, send } from "./api.js";

/** Seconds of history that are kept and drawn. */
export const SPAN_S = 120;
const LONGEST_PAUSE_MS = 10_000;
/** After so long without a word the connection is taken for dead: there is a snapshot every second. */
const SILENCE_MS = 8_000;

export const state = {
  /** What there is: every version of every model that may be seen. */
  models: [], ready: null, reasons: [], notes: [], isKnown: false,
  /** Snapshots, oldest first. */
  history: [],
  /** "waiting", "live", "refused" or "lost", and the server's sentence. */
  stream: "waiting", sentence: "",
};

const listeners = new Set();

/** Call back with "models", "snapshot" or "stream" after each change; returns what ends that. */
export function listen(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

function tell(what) {
  for (const callback of [...listeners]) callback(what);
}

function become(stream, sentence = "") {
  if (state.stream === stream && state.sentence === sentence) return;
  state.stream = stream;
  state.sentence = sentence;
  tell("stream");
}

let abort = null;
let run = 0;

/** Begin to follow, or begin anew: with another token, or after a rest. */
export function follow() {
  stop();
  run += 1;
  keepFollowing(run);
}

/** Follow no more: a page that nobody sees costs the server nothing. */
export function stop() {
  run += 1;
  abort?.abort();
}

async function keepFollowing(mine) {
  let pause = 500;
  while (mine === run) {
    abort = new AbortController();
    const silence = { timer: 0 };
    try {
      const answer = await send("GET", "/v1/console/live", { signal: abort.signal });
      if (!answer.ok) await read(answer);
      pause = 500;
      await events(answer.body, silence, (event, value) => {
        if (mine !== run) return;
        become("live");
        take(event, value);
      });
      if (mine === run) become("waiting", "The stream ended; it begins again.");
    } catch (error) {
      if (mine !== run) return;
      if (error instanceof Refusal && (error.status === 401 || error.status === 403)) {
        become("refused", error.message);
        return;
      }
      become("lost", error instanceof Refusal ? error.message : "The server can't be reached; trying again.");
    } finally {
      clearTimeout(silence.timer);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

async function events(body, silence, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    clearTimeout(silence.timer);
    silence.timer = setTimeout(() => abort?.abort(), SILENCE_MS);
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [event, data] = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      take(event.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
    }
  }
}

function take(event, value) {
  if (event === "models") {
    Object.assign(state, value, { isKnown: true });
    tell("models");
  } else if (event === "snapshot") {
    const last = state.history.at(-1);
    // Another clock: the server was started again.
    if (last && value.at_s < last.at_s - SPAN_S) state.history = [];
    if (last && value.at_s <= last.at_s && state.history.length) return;
    state.history.push(value);
    while (state.history[0].at_s < value.at_s - SPAN_S) state.history.shift();
    tell("snapshot");
  }
}

/** Return the names of all models, in order. */
export function modelNames() {
  return [...new Set(state.models.map((record) => record.model))];
}

/** Return the versions of a model, newest first. */
export function versionsOf(model) {
  return state.models.filter((record) => record.model === model).sort((a, b) => b.version - a.version);
}

/** Return the version that answers for a model, or its newest. */
export function representative(model) {
  const versions = versionsOf(model);
  return versions.find((record) => record.active) ?? versions[0];
}

/** Return the last snapshot's numbers of one version's predictions; null: nothing happened there. */
export function latestOf(model, version) {
  return state.history.at(-1)?.entries.find((entry) => entry.model === model && entry.version === version && entry.entry === "predict") ?? null;
}
