// A model's inputs, and an example that fits them.

import { ask } from "./api.js";

/** Numbers up to which an example is written out. */
const MOST_VALUES = 4_096;
/** What stands for a length that may vary. */
const SOME = 3;

/** Ask for the inputs of a version; null: of the one that answers. */
export async function inputsOf(model, version) {
  const path = `/v2/models/${encodeURIComponent(model)}${version === null ? "" : `/versions/${version}`}`;
  return (await ask("GET", path)).inputs.map((input) => ({
    name: input.name, datatype: input.datatype, shape: input.shape.slice(1), isOptional: Boolean(input.parameters?.optional), longest: input.parameters?.max_shape?.slice(1),
  }));
}

/** Return the input that a digit can be drawn for: 64 numbers, or 8 rows of 8; null: there is none. */
export function canvasInput(inputs) {
  const needed = inputs.filter((input) => !input.isOptional);
  const [only] = needed;
  if (needed.length !== 1 || !/^(FP|BF|U?INT)/.test(only.datatype)) return null;
  const text = only.shape.join("×");
  return text === "64" || text === "8×8" ? only : null;
}

/** Return a request of one example in JSON, and a sentence where it is too large to be written out. */
export function exampleRequest(inputs, values = {}) {
  const example = {};
  const left = [];
  for (const input of inputs.filter((one) => !one.isOptional)) {
    const shape = input.shape.map((size, place) => (size < 0 ? Math.min(SOME, input.longest?.[place] ?? SOME) : size));
    const n = shape.reduce((product, size) => product * size, 1);
    if (input.name in values) example[input.name] = values[input.name];
    else if (n > MOST_VALUES) left.push(`${input.name} takes ${n} values of shape ${shape.join(" × ")}: put them in yourself`);
    else example[input.name] = tensor(shape, one(input.datatype));
  }
  return { text: written({ instances: [example] }), left };
}

function one(datatype) {
  return datatype === "BYTES" ? "text" : datatype === "BOOL" ? false : 0;
}

function tensor(shape, value) {
  if (shape.length === 0) return value;
  return Array.from({ length: shape[0] }, () => tensor(shape.slice(1), value));
}

/** Write JSON with arrays of plain values in one line. */
export function written(value, indent = "") {
  const deeper = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.every((item) => item === null || typeof item !== "object")) return `[${value.map((item) => JSON.stringify(item)).join(", ")}]`;
    return `[\n${value.map((item) => deeper + written(item, deeper)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const parts = Object.entries(value).map(([name, item]) => `${deeper}${JSON.stringify(name)}: ${written(item, deeper)}`);
    return parts.length ? `{\n${parts.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}
