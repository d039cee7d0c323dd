// Numbers as people read them: three figures, and the unit that fits.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.01) return value.toExponential(1);
  if (Math.abs(value) >= 100) return WHOLE.format(value);
  return String(Number(value.toPrecision(3)));
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 10 ? WHOLE.format(value) : String(Number(value.toFixed(1)));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${number(value / 1000)} s`;
  if (value < 1) return `${number(value * 1000)} µs`;
  return `${number(value)} ms`;
}

export function share(value) {
  if (value === null || value === undefined) return "–";
  return `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
  return `${number(value)} ${units[place]}`;
}

export function when(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function count(n, one, many = `${one}s`) {
  return `${WHOLE.format(n)} ${n === 1 ? one : many}`;
}
