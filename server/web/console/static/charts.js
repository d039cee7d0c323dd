// Plotly, which comes after the page is there, and how its charts look here.

let loading = null;

/** Return the library once it has loaded. */
export function plotly() {
  loading ??= load();
  return loading;
}

async function load() {
  // It holds a library for maps too, which writes its rules into the page as it is loaded. The page's policy forbids
  // that, and there is no map: meanwhile it gets another element for them.
  const make = document.createElement;
  document.createElement = function (name, ...more) {
    return make.call(this, name === "style" ? "template" : name, ...more);
  };
  try {
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "/console/plotly.min.js";
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new Error("The charts' library is not there: install plotly.")));
      document.head.append(script);
    });
  } finally {
    document.createElement = make;
  }
  return window.Plotly;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Return a layout in the page's colours; `more` is merged into it, axes too. */
export function layout(more = {}) {
  const axis = {
    gridcolor: colour("grid"), zerolinecolor: colour("grid"), linecolor: colour("line"), tickcolor: colour("line"),
    tickfont: { size: 11, color: colour("muted") }, title: { font: { size: 11, color: colour("muted") }, standoff: 6 },
    fixedrange: true, automargin: true, nticks: 6,
  };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  const merged = (own) => ({ ...axis, ...own, title: { ...axis.title, ...(own.title ?? {}) } });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 11, color: colour("ink") },
    margin: { l: 44, r: 10, t: 6, b: 28 }, hovermode: "x unified", dragmode: false,
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { size: 11, color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11, color: colour("muted") } },
    xaxis: merged(xaxis), yaxis: merged(yaxis), ...rest,
  };
}

/** Return a logarithmic axis for values, its ticks written out: Plotly's own say 2 for 0.2, 2 and 20. */
export function logarithmic(values) {
  const known = values.filter((value) => value > 0);
  const decades = Math.log10(Math.max(...known) / Math.min(...known));
  const steps = decades >= 3 ? [1] : decades >= 1.5 ? [1, 3] : [1, 2, 5];
  const tickvals = Array.from({ length: 12 }, (_, place) => place - 5).flatMap((power) => steps.map((step) => Number(`${step}e${power}`)));
  return { type: "log", tickvals, ticktext: tickvals.map(String) };
}

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

/** Draw, or draw anew, in an element. `drawn` says in words what can be seen. Nothing is drawn where nobody looks. */
export async function draw(element, traces, wanted, drawn) {
  const library = await plotly();
  if (!element.isConnected) return;
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", drawn);
  await library.react(element, traces, wanted, CONFIG);
}

/** Give a chart's memory back. */
export function forget(element) {
  window.Plotly?.purge(element);
}
