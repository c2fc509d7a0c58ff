// What all parts of the page share: data, elements, number formats, the memory of what was switched, the tip.
// Text enters the page through text nodes and attributes alone, never as HTML.

const D = JSON.parse(document.getElementById("data").textContent);
const SERIES_COLOURS = 8;
const colourOf = (i) => `var(--series-${i % SERIES_COLOURS})`;

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === "style") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// ---- numbers: one format each, everywhere ----
const isNumber = (v) => typeof v === "number" && isFinite(v);
const DASH = "–";
const THIN = "\u202f"; // narrow space, which does not break
const fixed = (v, digits) => (isNumber(v) ? v.toFixed(digits).replace("-", "−") : DASH);
const percent = (v) => (isNumber(v) ? fixed(v, 2) + THIN + "%" : DASH);
const whole = (v) => (isNumber(v) ? Math.round(v).toString().replace(/\B(?=(\d{3})+$)/g, THIN) : DASH);
function short(v) { // 4.96 M
  if (!isNumber(v)) return DASH;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (Math.abs(v) >= size) return (v / size).toPrecision(3) + THIN + unit;
  return String(Math.round(v));
}
function bytes(v) {
  if (!isNumber(v)) return DASH;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (v >= size) return (v / size).toPrecision(3) + THIN + unit;
  return v + THIN + "B";
}
function duration(v) {
  if (!isNumber(v)) return DASH;
  if (v < 100) return v.toPrecision(3) + THIN + "s";
  const minutes = Math.round(v / 60);
  if (minutes < 100) return minutes + THIN + "min";
  return Math.floor(minutes / 60) + THIN + "h " + (minutes % 60) + THIN + "min";
}
const digits = (v) => (isNumber(v) ? String(Number(v.toPrecision(4))) : DASH);
const meanAndStd = (s, format) =>
  !s || !isNumber(s.mean) ? DASH : isNumber(s.std) ? `${format(s.mean)} ± ${format(s.std)}` : format(s.mean);

// ---- names ----
// What tells runs apart: their names without the words at either end that all of them share. Everybody keeps a word.
function labelsOf(names) {
  if (names.length < 2) return names;
  const words = names.map((name) => name.split(/\.(?!\d)/)); // not within lambda_s=0.5
  const room = Math.min(...words.map((w) => w.length)) - 1;
  const areSame = (i) => words.every((w) => w.at(i) === words[0].at(i));
  let tail = 0;
  while (tail < room && areSame(-1 - tail)) tail++;
  let head = 0;
  while (head + tail < room && areSame(head)) head++;
  return words.map((w) => w.slice(head, w.length - tail).join("."));
}
labelsOf(D.runs.map((run) => run.name)).forEach((label, i) => { D.runs[i].label = label; });

// ---- what was switched stays so when the page is loaded again ----
const KEY = "der-report:" + location.pathname;
const memory = (() => {
  try { return JSON.parse(sessionStorage.getItem(KEY)) || {}; } catch (e) { return {}; }
})();
function remember(key, value) {
  memory[key] = value;
  try { sessionStorage.setItem(KEY, JSON.stringify(memory)); } catch (e) { /* private windows */ }
}

// ---- the tip ----
const tipBox = document.getElementById("tip");
const said = document.getElementById("said");
function showTip(x, y, head, rows, speak) {
  const table = el("table", {}, rows.map((r) => el("tr", {}, el("td", {}, r.sign || ""), el("td", {}, r.label), el("td", {}, r.value))));
  tipBox.replaceChildren(el("div", { class: "head" }, head), table);
  tipBox.hidden = false;
  const box = tipBox.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - box.width - 16 : x + 16;
  tipBox.style.left = Math.max(8, left) + "px";
  tipBox.style.top = Math.max(8, Math.min(innerHeight - box.height - 8, y - box.height / 2)) + "px";
  if (speak) said.textContent = head + ": " + rows.map((r) => `${r.label} ${r.value}`).join(", ");
}
function hideTip() { tipBox.hidden = true; }

// ---- scales and shapes ----
function ticksOf(low, high, count) {
  const span = high - low || 1;
  const rough = span / Math.max(1, count);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) ticks.push(Number(v.toPrecision(12)));
  return ticks;
}
const SHAPES = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r * 0.9},${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  (r) => `M0,${-r * 1.2}L${r * 1.15},${r * 0.85}H${-r * 1.15}z`,
  (r) => `M0,${-r * 1.3}L${r * 1.3},0L0,${r * 1.3}L${-r * 1.3},0z`,
  (r) => `M0,${r * 1.2}L${r * 1.15},${-r * 0.85}H${-r * 1.15}z`,
];
const shape = (i, r) => SHAPES[i % SHAPES.length](r);
const sign = (colour, i, hollow) =>
  svg("svg", { width: 12, height: 12, viewBox: "-6 -6 12 12", "aria-hidden": "true" },
    svg("path", { d: shape(i, 4.2), class: hollow ? "mark hollow" : "", style: hollow ? {} : { fill: colour } }));

// A figure with its caption; `draw(host)` fills the plot, again whenever its width changes.
function figure(id, title, about, draw, extra) {
  const host = el("div", { class: "plot" });
  const box = el("figure", { "data-chart": id },
    el("figcaption", {}, el("h3", {}, title), about ? el("p", {}, about) : null), extra || null, host);
  let width = 0;
  box.redraw = () => { host.replaceChildren(); draw(host, Math.max(260, Math.round(host.clientWidth) || 520)); };
  new ResizeObserver(() => {
    if (Math.abs(host.clientWidth - width) < 2 || matchMedia("print").matches) return;
    width = host.clientWidth;
    requestAnimationFrame(box.redraw);
  }).observe(host);
  return box;
}

function dataTable(head, rows, left) {
  const cell = (tag) => (c, i) =>
    el(tag, { class: [(left || []).includes(i) && "left", c && c.cls].filter(Boolean).join(" ") || null }, c && c.nodes ? c.nodes : c);
  return el("div", { class: "scroll" }, el("table", { class: "data" },
    el("thead", {}, el("tr", {}, head.map(cell("th")))),
    el("tbody", {}, rows.map((r) => el("tr", {}, r.map(cell("td")))))));
}

// Buttons that switch series on and off; `items` [{id, label, sign}], `hidden` a set of ids.
function keys(items, hidden, changed, small) {
  return el("ul", { class: small ? "keys small" : "keys" }, items.map((item) => el("li", {}, el("button", {
    type: "button", "aria-pressed": String(!hidden.has(item.id)), "data-key": item.id, title: item.title || item.label,
    on: { click(event) {
      const button = event.currentTarget;
      if (hidden.has(item.id)) hidden.delete(item.id); else hidden.add(item.id);
      button.setAttribute("aria-pressed", String(!hidden.has(item.id)));
      changed();
    } },
  }, item.sign, el("span", { class: "text" }, item.label)))));
}

function choice(label, options, chosen, pick) {
  const box = el("div", { class: "choice", role: "group", "aria-label": label });
  const set = (i) => [...box.children].forEach((b, k) => b.setAttribute("aria-pressed", String(k === i)));
  options.forEach((text, i) => box.append(el("button", { type: "button", on: { click() { set(i); pick(i); } } }, text)));
  set(chosen);
  return box;
}
