// Matrices as fields of colour: SVG where cells can be told apart, a canvas where there are very many.

// spec: {label, rows, cols, share(i, j) in 0..1 or null, text(i, j)?, tip(i, j) -> {head, rows}, rowLabel(i), colLabel(j),
// rowTitle, colTitle, cellHeight?, left?}
function matrixChart(host, width, spec) {
  const left = spec.left || 58;
  const top = 34;
  const cell = { w: (width - left - 2) / spec.cols };
  cell.h = spec.cellHeight || Math.max(5, Math.min(cell.w, spec.rows > 24 ? 560 / spec.rows : 34));
  const height = top + cell.h * spec.rows + 4;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${spec.label}. Arrow keys read values.` });
  root.append(svg("text", { x: left, y: 11, class: "axis title" }, spec.colTitle));
  labelEvery(spec.cols, cell.w, spec.colLabel, 18, (text, j) => root.append(
    svg("text", { x: left + (j + 0.5) * cell.w, y: top - 7, "text-anchor": "middle", class: "axis" }, text)));
  labelEvery(spec.rows, cell.h, spec.rowLabel, 0, (text, i) => root.append(
    svg("text", { x: left - 8, y: top + (i + 0.5) * cell.h + 4, "text-anchor": "end", class: "axis" }, text)));
  root.append(svg("text", { x: left - 8, y: 11, "text-anchor": "end", class: "axis title" }, spec.rowTitle));
  const field = svg("g", {});
  const tight = cell.w < 9 || cell.h < 9;
  for (let i = 0; i < spec.rows; i++)
    for (let j = 0; j < spec.cols; j++) {
      const v = spec.share(i, j);
      if (v === null) continue;
      const x = left + j * cell.w;
      const y = top + i * cell.h;
      field.append(svg("rect", { x, y, width: cell.w, height: cell.h, class: tight ? "cell tight" : "cell", "data-at": `${i},${j}`, style: { "--v": (100 * Math.max(0, Math.min(1, v))).toFixed(1) + "%" } }));
      const text = spec.text && cell.h >= 15 ? spec.text(i, j) : "";
      if (text && cell.w >= 6.4 * text.length + 3)
        field.append(svg("text", { x: x + cell.w / 2, y: y + cell.h / 2 + 4, class: v > 0.5 ? "num on" : "num" }, text));
    }
  const ring = svg("rect", { width: cell.w, height: cell.h, class: "ring", visibility: "hidden" });
  root.append(field, ring);
  readCells(root, spec, width, (event, frame) => {
    const zoom = width / frame.width;
    return [Math.floor(((event.clientY - frame.top) * zoom - top) / cell.h), Math.floor(((event.clientX - frame.left) * zoom - left) / cell.w)];
  }, (i, j) => {
    ring.setAttribute("visibility", i < 0 ? "hidden" : "visible");
    ring.setAttribute("x", left + j * cell.w);
    ring.setAttribute("y", top + i * cell.h);
    return [left + (j + 1) * cell.w, top + (i + 0.5) * cell.h];
  });
  host.append(root);
}

function labelEvery(n, size, label, least, put) {
  const chars = Math.max(...Array.from({ length: n }, (_, i) => label(i).length), 1);
  const need = Math.max(least, least ? 7 * chars : 13);
  const every = Math.max(1, Math.ceil(need / size));
  const step = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500].find((s) => s >= every) || every;
  for (let i = 0; i < n; i++) if (i === 0 || ((i + 1) % step === 0 && i * size >= need)) put(label(i), i);
}

function readCells(root, spec, width, cellAt, mark) {
  let at = null;
  const has = (i, j) => i >= 0 && j >= 0 && i < spec.rows && j < spec.cols && spec.share(i, j) !== null;
  const hide = () => { mark(-1, 0); hideTip(); };
  const show = (i, j, event) => {
    if (!has(i, j)) return event ? hide() : undefined;
    at = [i, j];
    const place = mark(i, j);
    const frame = root.getBoundingClientRect();
    const zoom = frame.width / width;
    const tip = spec.tip(i, j);
    showTip(frame.left + place[0] * zoom, event ? event.clientY : frame.top + place[1] * zoom, tip.head, tip.rows, !event);
  };
  root.addEventListener("pointermove", (event) => show(...cellAt(event, root.getBoundingClientRect()), event));
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") return hide();
    if (!moves[event.key]) return;
    if (!at || !has(...at)) show(0, 0);
    else show(at[0] + moves[event.key][0], at[1] + moves[event.key][1]);
    event.preventDefault();
  });
}

// ---- very many cells ----
const canvases = new Set();
function rampColours() {
  const style = getComputedStyle(document.documentElement);
  const parse = (name) => {
    const hex = style.getPropertyValue(name).trim().replace("#", "");
    const long = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
    return [0, 2, 4].map((k) => parseInt(long.slice(k, k + 2), 16));
  };
  return [parse("--ramp-0"), parse("--ramp-1")];
}

// spec: {label, n, cells: Map(row * n + col -> count), rowTotal(i), tip(i, j), bounds}
function canvasMatrix(host, width, spec) {
  const zoom = Math.max(1, Math.floor(Math.min(width, 900) / spec.n));
  const side = spec.n * zoom;
  const canvas = el("canvas", { width: side, height: side, tabindex: "0", role: "img", "aria-label": `${spec.label}. Arrow keys read values.`, "data-cells": spec.cells.size });
  const ring = el("div", { style: { position: "absolute", border: "2px solid var(--text)", "pointer-events": "none", "min-width": "6px", "min-height": "6px", visibility: "hidden" } });
  const paint = () => {
    const pen = canvas.getContext("2d");
    const [low, high] = rampColours();
    pen.fillStyle = `rgb(${low})`;
    pen.fillRect(0, 0, side, side);
    for (const [at, count] of spec.cells) {
      const i = Math.floor(at / spec.n);
      const v = Math.min(1, Math.sqrt(count / spec.rowTotal(i)));
      pen.fillStyle = `rgb(${low.map((c, k) => Math.round(c + (high[k] - c) * v))})`;
      pen.fillRect((at % spec.n) * zoom, i * zoom, zoom, zoom);
    }
  };
  paint();
  canvas.repaint = paint;
  canvases.clear();
  canvases.add(canvas);
  host.append(canvas, ring);
  const scale = () => canvas.getBoundingClientRect().width / spec.n;
  readCells(canvas, { ...spec, rows: spec.n, cols: spec.n, share: () => 0 }, 1, (event, frame) =>
    [Math.floor((event.clientY - frame.top) / scale()), Math.floor((event.clientX - frame.left) / scale())],
  (i, j) => {
    const s = scale();
    ring.style.visibility = i < 0 ? "hidden" : "visible";
    for (const [key, value] of Object.entries({ left: j * s - 1, top: i * s - 1, width: s + 4, height: s + 4 })) ring.style[key] = value + "px";
    return [(j + 1) / spec.n, (i + 0.5) / spec.n];
  });
}
const repaint = () => canvases.forEach((c) => c.repaint());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
addEventListener("beforeprint", repaint);
addEventListener("afterprint", repaint);
