// A digit that is drawn, as 8 x 8 numbers from 0 to 1, made as the scans of the digits set were.
//
// Those are bitmaps of 32 x 32, fitted to the frame, whose black points are counted in blocks of 4 x 4. So the strokes
// are kept as lines, fitted, and drawn again at that size; a keyboard inks cells one by one.

import { h } from "./dom.js";
import { colour } from "./charts.js";

const CELLS = 8;
const POINTS = 32;
const BLOCK = POINTS / CELLS;
/** Half of a stroke's width: on the sheet as a share of it, and fitted in points. */
const SHEET_RADIUS = 0.045;
const FITTED_RADIUS = 2.0;
/** Widest that a fitted digit gets, points: the scans leave a column free on both sides. */
const WIDEST = 25;
const SHEET_PX = 256;

/** Make the sheet; `onChange` gets the 64 numbers. */
export function drawing(onChange) {
  const sheet = h("canvas", {
    width: SHEET_PX, height: SHEET_PX, tabindex: "0", role: "img", class: "sheet",
    "aria-label": "Draw a digit. By keyboard: arrows move over 8 by 8 cells, space inks a cell, delete clears all.",
  });
  const small = h("canvas", { width: CELLS, height: CELLS, class: "scan", role: "img", "aria-label": "What is sent: 8 by 8 shades" });
  /** Strokes of points from 0 to 1, and cells inked by keyboard. */
  let strokes = [];
  let inked = new Set();
  let cursor = null;
  let isDown = false;

  const values = () => (strokes.length ? scanned(strokes) : Array.from({ length: CELLS * CELLS }, (_, cell) => (inked.has(cell) ? 1 : 0)));
  const show = () => {
    paint(sheet, strokes, inked, document.activeElement === sheet ? cursor : null);
    const scan = values();
    shade(small, scan);
    return scan;
  };
  const change = () => onChange(show());
  const at = (event) => {
    const box = sheet.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  sheet.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    sheet.focus({ preventScroll: true });
    sheet.setPointerCapture(event.pointerId);
    cursor = null;
    inked = new Set();
    isDown = true;
    strokes.push([at(event)]);
    show();
  });
  sheet.addEventListener("pointermove", (event) => {
    if (!isDown) return;
    const events = event.getCoalescedEvents?.() ?? [];
    strokes.at(-1).push(...(events.length ? events : [event]).map(at));
    show();
  });
  for (const name of ["pointerup", "pointercancel"]) {
    sheet.addEventListener(name, () => {
      if (!isDown) return;
      isDown = false;
      change();
    });
  }
  sheet.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const [x, y] = cursor ?? [3, 3];
    if (event.key in steps) {
      const [dx, dy] = steps[event.key];
      cursor = [Math.min(CELLS - 1, Math.max(0, x + dx)), Math.min(CELLS - 1, Math.max(0, y + dy))];
      show();
    } else if (event.key === " ") {
      strokes = [];
      cursor = [x, y];
      const cell = y * CELLS + x;
      if (!inked.delete(cell)) inked.add(cell);
      change();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      clear();
    } else return;
    event.preventDefault();
  });
  for (const name of ["focus", "blur"]) sheet.addEventListener(name, show);
  const clear = () => {
    strokes = [];
    inked = new Set();
    change();
  };
  queueMicrotask(show);
  return {
    place: h("div", { class: "drawing" }, sheet, h("div", { class: "beside" }, small, h("small", {}, "as it is sent"), h("button", { type: "button", click: clear }, "Clear"))),
    values, redraw: show,
  };
}

/** Return the 64 shares of ink of strokes that are fitted to the frame. */
export function scanned(strokes) {
  const points = strokes.flat();
  const [left, right] = [Math.min(...points.map(([x]) => x)), Math.max(...points.map(([x]) => x))];
  const [top, bottom] = [Math.min(...points.map(([, y]) => y)), Math.max(...points.map(([, y]) => y))];
  const room = POINTS - 2 * FITTED_RADIUS;
  const scale = Math.min(room / Math.max(bottom - top, 0.05), (WIDEST - 2 * FITTED_RADIUS) / Math.max(right - left, 0.05));
  const fit = ([x, y]) => [POINTS / 2 + (x - (left + right) / 2) * scale, POINTS / 2 + (y - (top + bottom) / 2) * scale];
  const lines = strokes.map((stroke) => stroke.map(fit));
  const ink = new Array(CELLS * CELLS).fill(0);
  for (let y = 0; y < POINTS; y += 1) {
    for (let x = 0; x < POINTS; x += 1) {
      if (lines.some((line) => isNear(line, x + 0.5, y + 0.5))) ink[Math.floor(y / BLOCK) * CELLS + Math.floor(x / BLOCK)] += 1;
    }
  }
  return ink.map((n) => n / (BLOCK * BLOCK));
}

function isNear(line, x, y) {
  const near = FITTED_RADIUS ** 2;
  for (let place = 0; place < line.length; place += 1) {
    const [x0, y0] = line[Math.max(0, place - 1)];
    const [x1, y1] = line[place];
    const [dx, dy] = [x1 - x0, y1 - y0];
    const length = dx * dx + dy * dy;
    const along = length ? Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / length)) : 0;
    if ((x0 + along * dx - x) ** 2 + (y0 + along * dy - y) ** 2 <= near) return true;
  }
  return false;
}

function paint(sheet, strokes, inked, cursor) {
  const pen = sheet.getContext("2d");
  const cell = SHEET_PX / CELLS;
  pen.fillStyle = colour("panel");
  pen.fillRect(0, 0, SHEET_PX, SHEET_PX);
  pen.strokeStyle = colour("grid");
  pen.lineWidth = 1;
  for (let place = 1; place < CELLS; place += 1) {
    pen.beginPath();
    pen.moveTo(place * cell, 0);
    pen.lineTo(place * cell, SHEET_PX);
    pen.moveTo(0, place * cell);
    pen.lineTo(SHEET_PX, place * cell);
    pen.stroke();
  }
  pen.fillStyle = pen.strokeStyle = colour("ink");
  for (const place of inked) pen.fillRect((place % CELLS) * cell, Math.floor(place / CELLS) * cell, cell, cell);
  pen.lineWidth = 2 * SHEET_RADIUS * SHEET_PX;
  pen.lineCap = pen.lineJoin = "round";
  for (const stroke of strokes) {
    pen.beginPath();
    stroke.forEach(([x, y], place) => (place ? pen.lineTo(x * SHEET_PX, y * SHEET_PX) : pen.moveTo(x * SHEET_PX, y * SHEET_PX)));
    if (stroke.length === 1) pen.lineTo(stroke[0][0] * SHEET_PX + 0.1, stroke[0][1] * SHEET_PX);
    pen.stroke();
  }
  if (cursor) {
    pen.strokeStyle = colour("accent");
    pen.lineWidth = 3;
    pen.strokeRect(cursor[0] * cell + 1.5, cursor[1] * cell + 1.5, cell - 3, cell - 3);
  }
}

function shade(canvas, scan) {
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour("panel");
  pen.fillRect(0, 0, CELLS, CELLS);
  pen.fillStyle = colour("ink");
  scan.forEach((value, place) => {
    pen.globalAlpha = value;
    pen.fillRect(place % CELLS, Math.floor(place / CELLS), 1, 1);
  });
  pen.globalAlpha = 1;
}
