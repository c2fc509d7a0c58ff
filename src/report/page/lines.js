// Line charts and scatter plots, with values on hover and under the arrow keys.

const CHARACTER = 6.6; // width of one, on average
const LINE = 15; // from one name to the next below it

// spec: {label, height, x: {label, ticks?, format, log?}, y: {label, format, low?, high?}, series: [{id, label, colour,
// shape, points: [[x, y, tip?]], class?, bare?, hollow?, end?, dash?}], bands: [{x, label}], head(x)}
function lineChart(host, width, spec) {
  const height = spec.height || 300;
  const series = spec.series.filter((s) => s.points.length > 0);
  const ends = series.filter((s) => s.end);
  const endWidth = ends.length ? Math.min(170, 14 + CHARACTER * Math.max(...ends.map((s) => s.end.length))) : 10;
  const box = { left: 46, right: width - endWidth, top: spec.bands ? 24 : 12, bottom: height - 40 };
  const all = series.flatMap((s) => s.points);
  const scale = {
    x: axisScale(all.map((p) => p[0]), spec.x, box.left, box.right),
    y: axisScale(all.map((p) => p[1]), spec.y, box.bottom, box.top, true),
  };
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
    "aria-label": `${spec.label}. ${series.length} series: ${series.map((s) => s.label).join(", ")}. Arrow keys read values.`,
  });
  drawAxes(root, box, scale, spec);
  for (const s of series) drawSeries(root, s, scale, spec);
  drawEnds(root, ends, scale, box);
  addReading(root, series, scale, box, spec, height, width);
  host.append(root);
}

function axisScale(values, axis, from, to, padded) {
  let low = isNumber(axis.low) ? axis.low : Math.min(...values);
  let high = isNumber(axis.high) ? axis.high : Math.max(...values);
  if (values.length === 0) [low, high] = [0, 1];
  const f = axis.log ? Math.log10 : (v) => v;
  let ticks;
  if (axis.log) {
    low /= 1.25; high *= 1.25;
    ticks = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++)
      for (const d of [1, 2, 5]) if (d * 10 ** p >= low && d * 10 ** p <= high) ticks.push(d * 10 ** p);
    if (ticks.length < 3) ticks = ticksOf(low, high, 4);
  } else {
    ticks = axis.ticks || ticksOf(low, high, Math.abs(to - from) / (padded ? 46 : 72));
    if ((padded || axis.nice) && !axis.ticks && ticks.length > 1) {
      const step = ticks[1] - ticks[0];
      if (!isNumber(axis.low)) low = Math.floor(low / step + 1e-9) * step;
      if (!isNumber(axis.high)) high = Math.ceil(high / step - 1e-9) * step;
      ticks = ticksOf(low, high, (high - low) / step);
    }
    if (low === high) { low -= 0.5; high += 0.5; }
  }
  const at = (v) => from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from);
  return { at, ticks, low, high };
}

function drawAxes(root, box, scale, spec) {
  for (const t of scale.y.ticks) {
    const y = scale.y.at(t);
    root.append(svg("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: box.left - 8, y: y + 4, "text-anchor": "end", class: "axis" }, spec.y.format(t)));
  }
  let last = -Infinity;
  for (const band of spec.bands || []) {
    const x = scale.x.at(band.x);
    root.append(svg("line", { x1: x, x2: x, y1: box.top - 6, y2: box.bottom, class: "base" }));
    if (x < last) continue;
    last = x + 10 + CHARACTER * band.label.length;
    root.append(svg("text", { x: x + 4, y: box.top - 8, class: "axis title" }, band.label));
  }
  root.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "base" }));
  const widest = 8 + 6.5 * Math.max(...scale.x.ticks.map((t) => spec.x.format(t).length));
  let free = -Infinity;
  for (const t of scale.x.ticks) {
    const x = scale.x.at(t);
    if (x < free || x < box.left - 1 || x > box.right + 1) continue;
    free = x + widest;
    root.append(svg("text", { x, y: box.bottom + 18, "text-anchor": "middle", class: "axis" }, spec.x.format(t)));
  }
  root.append(svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle", class: "axis title" }, spec.x.label));
}

function drawSeries(root, s, scale, spec) {
  const group = svg("g", { "data-series": s.id });
  const at = s.points.map((p) => (isNumber(p[0]) && isNumber(p[1]) ? [scale.x.at(p[0]), scale.y.at(p[1])] : null));
  let path = "";
  let pen = false;
  for (const p of at) {
    if (p) path += `${pen ? "L" : "M"}${p[0].toFixed(1)},${p[1].toFixed(1)}`;
    pen = p !== null;
  }
  if (!s.pointsOnly)
    group.append(svg("path", { d: path, class: "line " + (s.class || ""), style: s.class === "paper" ? {} : { stroke: s.colour, "stroke-dasharray": s.dash || "none" } }));
  if (!s.bare)
    at.forEach((p, i) => {
      if (!p || (s.lastMark && i < at.length - 1)) return;
      group.append(svg("path", {
        d: shape(s.shape || 0, s.size || 4), transform: `translate(${p[0].toFixed(1)},${p[1].toFixed(1)})`,
        class: s.hollow ? "mark hollow" : "mark", style: s.hollow ? {} : { fill: s.colour },
        "data-x": s.points[i][0], "data-y": s.points[i][1],
      }));
    });
  else group.lastChild.classList.add("mark-line");
  root.append(group);
}

// Names at the ends of the lines, pushed apart where they would meet: down, and up again where the box ends. Lines may end
// at different steps; names that have nothing above or below them stay where their lines are.
function drawEnds(root, ends, scale, box) {
  const labels = ends.map((s) => {
    const last = s.points[s.points.length - 1];
    return { s, x: scale.x.at(last[0]) + 10, y: scale.y.at(last[1]), width: CHARACTER * s.end.length };
  }).sort((a, b) => a.y - b.y);
  const meet = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width;
  labels.forEach((label, i) => {
    for (const above of labels.slice(0, i))
      if (meet(above, label)) label.y = Math.max(label.y, above.y + LINE);
  });
  for (let i = labels.length - 1; i >= 0; i--) {
    labels[i].y = Math.min(labels[i].y, box.bottom);
    for (const below of labels.slice(i + 1))
      if (meet(below, labels[i])) labels[i].y = Math.min(labels[i].y, below.y - LINE);
  }
  for (const l of labels)
    root.append(svg("text", { x: l.x, y: l.y + 4, class: "end", style: { fill: l.s.class === "paper" ? "var(--soft)" : l.s.colour } }, l.s.end));
}

function addReading(root, series, scale, box, spec, height, width) {
  const groups = spec.byPoint ? pointsAlone(series) : pointsByX(series);
  const cross = svg("line", { y1: box.top, y2: box.bottom, class: "cross", visibility: "hidden" });
  const dots = svg("g", { "pointer-events": "none" });
  root.append(cross, dots, svg("rect", { x: 0, y: 0, width, height, fill: "transparent" }));
  let current = -1;
  const show = (i, event) => {
    current = Math.max(0, Math.min(groups.length - 1, i));
    const group = groups[current];
    if (!group) return;
    const x = scale.x.at(group.x);
    if (!spec.byPoint) for (const a of ["x1", "x2"]) cross.setAttribute(a, x);
    cross.setAttribute("visibility", spec.byPoint ? "hidden" : "visible");
    dots.replaceChildren(...group.points.map((p) =>
      svg("path", { d: shape(p.s.shape || 0, 5.5), transform: `translate(${scale.x.at(p.x)},${scale.y.at(p.y)})`, style: { fill: p.s.class === "paper" ? "var(--paper)" : p.s.colour, stroke: "var(--ground)", "stroke-width": "1.5" } })));
    const frame = root.getBoundingClientRect();
    const zoom = frame.width / width;
    const y = event ? event.clientY : frame.top + zoom * Math.min(...group.points.map((p) => scale.y.at(p.y)));
    showTip(frame.left + x * zoom, y, group.head || spec.head(group.x),
      group.points.map((p) => ({ sign: sign(p.s.class === "paper" ? "var(--paper)" : p.s.colour, p.s.shape || 0), label: p.s.label, value: p.tip || spec.y.format(p.y, true) })), !event);
  };
  const hide = () => { cross.setAttribute("visibility", "hidden"); dots.replaceChildren(); hideTip(); };
  root.addEventListener("pointermove", (event) => {
    const frame = root.getBoundingClientRect();
    const zoom = width / frame.width;
    const x = (event.clientX - frame.left) * zoom;
    const y = (event.clientY - frame.top) * zoom;
    let best = -1;
    let least = Infinity;
    groups.forEach((g, i) => {
      const dx = scale.x.at(g.x) - x;
      const dy = spec.byPoint ? scale.y.at(g.points[0].y) - y : 0;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
    });
    if (best >= 0) show(best, event);
  });
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    if (event.key === "Escape") return hide();
    if (event.key === "Home") show(0);
    else if (event.key === "End") show(groups.length - 1);
    else if (moves[event.key]) show(current < 0 ? 0 : current + moves[event.key]);
    else return;
    event.preventDefault();
  });
}

function pointsByX(series) {
  const groups = new Map();
  for (const s of series)
    for (const p of s.points) {
      if (!isNumber(p[0]) || !isNumber(p[1])) continue;
      if (!groups.has(p[0])) groups.set(p[0], { x: p[0], points: [] });
      groups.get(p[0]).points.push({ s, x: p[0], y: p[1], tip: p[2] });
    }
  for (const g of groups.values()) g.points.sort((a, b) => b.y - a.y);
  return [...groups.values()].sort((a, b) => a.x - b.x);
}
const pointsAlone = (series) => series.filter((s) => !s.silent).flatMap((s) =>
  s.points.map((p) => ({ x: p[0], head: p[3], points: [{ s, x: p[0], y: p[1], tip: p[2] }] }))).sort((a, b) => a.x - b.x);
