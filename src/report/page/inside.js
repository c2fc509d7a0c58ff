// One run from the inside: its groups of classes, who is taken for whom, its extractors, its training, its images.

// From blue over green to yellow with age.
function groupColour(i, n) {
  const at = n > 1 ? (2 * i) / (n - 1) : 0;
  const [from, to, share] = at <= 1 ? ["old", "mid", at] : ["mid", "new", at - 1];
  return `color-mix(in oklab, var(--${to}) ${Math.round(100 * share)}%, var(--${from}))`;
}
const groupName = (run, i) => {
  const [a, b] = [run.bounds[i], run.bounds[i + 1]];
  return b - a === 1 ? `class ${a + 1}` : `classes ${a + 1}–${b}`;
};
const MANY_GROUPS = 12;
// Sets without names number their classes, which says little beside other numbers.
function className(run, k) {
  const name = run.classes[k];
  return name === undefined || /^\d+$/.test(name) ? `class ${name === undefined ? k + 1 : name}` : name;
}

function groupFigure(run, id, title, about, key) {
  const steps = run.steps.filter((s) => Array.isArray(s[key]));
  const n = Math.max(0, ...steps.map((s) => s[key].length));
  const hidden = new Set();
  // Training on everything at once, at the end, knew one group in older records.
  const isOne = n === 1 && steps.every((s) => s.step > 1);
  const items = Array.from({ length: n }, (_, i) => ({ id: `group:${i}`, label: isOne ? "all classes" : groupName(run, i), sign: sign(groupColour(i, n), 0) }));
  let box = null;
  const asLines = n <= MANY_GROUPS && run.bounds.length - 1 >= n;
  const legend = asLines && n > 1 ? keys(items, hidden, () => box.redraw(), true) : null;
  box = figure(id, title, about, (host, width) => {
    if (asLines) drawGroupLines(host, width, run, steps, items, hidden, key, title);
    else drawGroupMatrix(host, width, run, steps, n, key, title);
  }, legend);
  return box;
}

function drawGroupLines(host, width, run, steps, items, hidden, key, title) {
  const n = items.length;
  const most = Math.max(2, run.n_steps);
  lineChart(host, width, {
    label: title, height: 300,
    x: { label: "step", low: 1, high: most, ticks: stepTicks(most), format: String },
    y: { label: "%", low: 0, high: 100, format: (v, exact) => (exact ? percent(v) : String(v)) },
    head: (x) => `After step ${x}`,
    series: items.map((item, i) => ({
      id: item.id, label: item.label, colour: groupColour(i, n), shape: 0, size: 3.4,
      points: hidden.has(item.id) ? [] : steps.filter((s) => isNumber(s[key][i])).map((s) => [s.step, s[key][i], percent(s[key][i])]),
    })),
  });
}

function drawGroupMatrix(host, width, run, steps, n, key, title) {
  matrixChart(host, width, {
    label: title, rows: steps.length, cols: n, colTitle: "step that brought the classes", rowTitle: "after",
    share: (i, j) => (isNumber(steps[i][key][j]) ? steps[i][key][j] / 100 : null),
    text: (i, j) => fixed(steps[i][key][j], 0),
    rowLabel: (i) => String(steps[i].step), colLabel: (j) => String(j + 1),
    tip: (i, j) => ({ head: `After step ${steps[i].step}`, rows: [{ label: groupName(run, j), value: percent(steps[i][key][j]) }] }),
  });
}

// ---- confusion ----
function groupConfusion(run) {
  const steps = run.steps.filter((s) => s.confusion);
  if (!steps.length) return null;
  let at = steps.length - 1;
  let box = null;
  const words = el("output", {}, `after step ${steps[at].step}`);
  const slide = steps.length > 1 ? el("label", { class: "slide" }, "Step", el("input", {
    type: "range", min: 0, max: steps.length - 1, value: at, "aria-label": "Step of the confusion matrix",
    on: { input(event) { at = Number(event.target.value); words.textContent = `after step ${steps[at].step}`; box.redraw(); } },
  }), words) : null;
  box = figure("confusion-groups", "Who is taken for whom, by group", "Share of the test images of a row’s classes that were taken for a column’s.", (host, width) => {
    const m = steps[at].confusion;
    const totals = m.map((row) => row.reduce((a, b) => a + b, 0));
    const share = (i, j) => (totals[i] ? m[i][j] / totals[i] : 0);
    matrixChart(host, width, {
      label: "Confusion of groups", rows: m.length, cols: m.length, rowTitle: "true", colTitle: "taken for",
      share, text: (i, j) => (share(i, j) >= 0.005 ? fixed(100 * share(i, j), m.length > 8 ? 0 : 1) : ""),
      rowLabel: (i) => String(i + 1), colLabel: (j) => String(j + 1),
      tip: (i, j) => ({ head: `${groupName(run, i)} taken for ${groupName(run, j)}`, rows: [{ label: "images", value: `${whole(m[i][j])} of ${whole(totals[i])}` }, { label: "share", value: percent(100 * share(i, j)) }] }),
    });
  }, slide);
  return box;
}

function classCells(run) {
  const n = run.confusion.classes;
  const cells = new Map();
  const totals = new Array(n).fill(0);
  const flat = run.confusion.cells;
  for (let k = 0; k + 2 < flat.length; k += 3) {
    cells.set(flat[k] * n + flat[k + 1], flat[k + 2]);
    totals[flat[k]] += flat[k + 2];
  }
  return { n, cells, totals };
}

function classConfusion(run, c) {
  const tip = (i, j) => {
    const count = c.cells.get(i * c.n + j) || 0;
    return { head: i === j ? className(run, i) : `${className(run, i)} taken for ${className(run, j)}`, rows: [{ label: "images", value: `${whole(count)} of ${whole(c.totals[i])}` }, { label: "share", value: percent(c.totals[i] ? (100 * count) / c.totals[i] : null) }] };
  };
  return figure("confusion-classes", "Who is taken for whom, by class", `The latest step, ${c.n} classes in the order of learning; rows are true, columns taken for.`, (host, width) => {
    if (c.n <= 40) {
      const share = (i, j) => (c.totals[i] ? (c.cells.get(i * c.n + j) || 0) / c.totals[i] : 0);
      const numbered = run.classes.every((name) => /^\d+$/.test(name));
      const longest = Math.max(...run.classes.slice(0, c.n).map((_, k) => className(run, k).length));
      matrixChart(host, width, {
        label: "Confusion of classes", rows: c.n, cols: c.n, rowTitle: "true", colTitle: "taken for", left: Math.min(138, 36 + 6.6 * Math.min(15, longest)),
        share, text: (i, j) => (share(i, j) >= 0.005 && c.n <= 12 ? fixed(100 * share(i, j), 0) : ""),
        rowLabel: (i) => (numbered ? className(run, i) : `${cut(className(run, i), 15)} ${i + 1}`), colLabel: (j) => (numbered ? run.classes[j] : String(j + 1)), tip,
      });
    } else
      canvasMatrix(host, width, { label: "Confusion of classes", n: c.n, cells: c.cells, rowTotal: (i) => c.totals[i] || 1, tip });
  });
}

function confusedPairs(run, c) {
  const pairs = [...c.cells].filter(([at]) => Math.floor(at / c.n) !== at % c.n).sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 8);
  if (!pairs.length) return null;
  return el("figure", { "data-chart": "pairs" }, el("figcaption", {}, el("h3", {}, "Most frequent mistakes")),
    el("ol", { class: "pairs" }, pairs.map(([at, count]) => el("li", {},
      el("span", {}, el("b", {}, className(run, Math.floor(at / c.n))), " taken for ", el("b", {}, className(run, at % c.n))),
      el("span", { class: "count" }, `${count} of ${c.totals[Math.floor(at / c.n)]}`)))));
}

// ---- extractors ----
function channelsFigure(run) {
  const steps = run.steps.filter((s) => s.widths && s.widths.stream && s.widths.inner);
  const kept = run.expands ? steps : steps.slice(-1);
  const full = run.full;
  if (!kept.length || !full) return null;
  const names = full.stream.map((_, k) => `stage ${k + 1}`);
  full.blocks.forEach((n, k) => { for (let b = 0; b < n; b++) names.push(`${k + 1}.${b + 1}`); });
  const of = (w) => w.stream.concat(w.inner);
  const all = of(full);
  const rows = kept.map((s) => of(s.widths));
  const whole_ = rows.every((r) => r.length === all.length && r.every((v, j) => v === all[j]));
  const about = whole_ ? "Nothing was pruned." : "Left, the residual stream of each stage; then the inside of each block. The stronger the colour, the more is kept.";
  return figure("channels", "Channels kept in every layer of every extractor", about, (host, width) => matrixChart(host, width, {
    label: "Channels kept", rows: rows.length, cols: all.length, rowTitle: "extractor", colTitle: "layer", left: 72,
    cellHeight: rows.length > 24 ? Math.max(7, 420 / rows.length) : 24,
    share: (i, j) => (isNumber(rows[i][j]) ? rows[i][j] / all[j] : null), text: (i, j) => String(rows[i][j]),
    rowLabel: (i) => String(run.expands ? kept[i].step : 1), colLabel: (j) => (j < full.stream.length ? "S" + (j + 1) : names[j]),
    tip: (i, j) => ({ head: `Extractor ${run.expands ? kept[i].step : 1}, ${j < full.stream.length ? "stream of " + names[j] : "inside block " + names[j]}`, rows: [{ label: "channels kept", value: `${rows[i][j]} of ${all[j]}` }, { label: "share", value: percent((100 * rows[i][j]) / all[j]) }] }),
  }));
}

// ---- training ----
// The epochs that the model itself was trained in: what is trained to measure it is left out.
function learning(e) {
  const names = ["representation", "classifier"];
  const kept = e.step.map((_, i) => i).filter((i) => names.includes(e.stages[e.stage[i]]));
  const pick = (column) => kept.map((i) => column[i]);
  const out = { stages: e.stages, loss: {} };
  for (const key of ["step", "stage", "epoch", "epochs", "lr", "sparsity"]) out[key] = pick(e[key]);
  for (const name of Object.keys(e.loss)) out.loss[name] = pick(e.loss[name]);
  return out;
}

function trainingFigures(run) {
  const e = learning(run.epochs);
  const n = e.step.length;
  if (!n) return [];
  const bands = [];
  for (let i = 0; i < n; i++) if (i === 0 || e.step[i] !== e.step[i - 1]) bands.push({ x: i + 1, label: (bands.length ? "" : "step ") + e.step[i] });
  const head = (x) => `Step ${e.step[x - 1]}, ${e.stages[e.stage[x - 1]]}, epoch ${e.epoch[x - 1]} of ${e.epochs[x - 1]}`;
  const series = (id, label, colour, values) => ({ id, label, colour, class: "thin", bare: true, points: values.map((v, i) => [i + 1, v]) });
  const xAxis = { label: "epoch, all stages in a row", low: 1, high: Math.max(2, n), format: String };
  const make = (id, title, about, height, lines, y) => {
    const hidden = new Set();
    let box = null;
    const legend = lines.length > 1 ? keys(lines.map((l) => ({ id: l.id, label: l.label, sign: sign(l.colour, 0) })), hidden, () => box.redraw(), true) : null;
    box = figure(id, title, about, (host, width) => lineChart(host, width, { label: title, height, x: xAxis, y, bands, head, series: lines.filter((l) => !hidden.has(l.id)) }), legend);
    return box;
  };
  const losses = Object.keys(e.loss).map((name, i) => series("loss:" + name, name, colourOf(i), e.loss[name]));
  const figures = [make("losses", "Losses", "Mean over each epoch.", 260, losses, { low: 0, format: digits })];
  figures.push(make("rate", "Learning rate", null, 200, [series("lr", "learning rate", colourOf(0), e.lr)], { low: 0, format: digits }));
  if (e.sparsity.some(isNumber))
    figures.push(make("sparsity", "Sparsity of the masks", "Share of the new extractor’s parameters that its masks would drop.", 200,
      [series("sparsity", "sparsity", colourOf(2), e.sparsity.map((v) => (isNumber(v) ? 100 * v : null)))], { low: 0, high: 100, format: (v, exact) => (exact ? percent(v) : String(v)) }));
  return figures;
}

// ---- images ----
function imageSections(run) {
  const parts = [];
  const { wrong, exemplars, note } = run.images;
  const name = (k) => className(run, k);
  if (wrong.length) {
    const noImage = !wrong.some((w) => w.image);
    parts.push(el("figure", { "data-chart": "wrong", style: { "margin-top": "36px" } }, el("figcaption", {}, el("h3", {}, "Most confidently wrong"), el("p", {}, "Test images that the model is surest about and mistaken.")),
      el("ol", { class: "cards" }, wrong.map((w) => el("li", {}, w.image ? el("img", { src: w.image, alt: `test image ${w.sample}`, loading: "lazy" }) : noImage ? null : el("div", { class: "blank" }),
        el("span", { class: "guess" }, name(w.guess)), ` ${fixed(100 * w.confidence, 1)}${THIN}%`, el("span", { class: "true" }, "is " + name(w.label)))))));
  }
  if (exemplars.length) parts.push(exemplarFigure(run, exemplars, name));
  if (note && parts.length) parts.push(el("p", { class: "word" }, note));
  return parts;
}

function exemplarFigure(run, exemplars, name) {
  const FIRST = 30;
  const total = exemplars.reduce((a, e) => a + e.kept, 0);
  const list = el("ol", { class: "strips" });
  const put = (from, to) => list.append(...exemplars.slice(from, to).map((e) => el("li", {}, name(e.class), el("span", { class: "count" }, ` ${e.kept} kept`),
    e.image ? el("img", { src: e.image, alt: `${e.shown} exemplars of ${name(e.class)}`, loading: "lazy" }) : null)));
  put(0, FIRST);
  const more = exemplars.length > FIRST ? el("button", { type: "button", class: "more", on: { click(event) { put(FIRST, exemplars.length); event.currentTarget.remove(); } } }, `Show all ${exemplars.length} classes`) : null;
  return el("figure", { "data-chart": "exemplars", style: { "margin-top": "36px" } }, el("figcaption", {}, el("h3", {}, "Exemplars"), el("p", {}, `${whole(total)} training images are kept of ${exemplars.length} classes${exemplars.some((e) => e.image) ? "; shown are the first of each, in the order of herding" : ""}.`)), list, more);
}

function insideRun(run) {
  const parts = [];
  const groups = groupFigure(run, "groups", "Accuracy of each group of classes", "Groups are the classes that came with a step.", "groups");
  const measured = run.steps.some((s) => s.representation);
  if (run.steps.length)
    parts.push(el("div", { class: measured ? "row two" : "row" }, groups, measured ? groupFigure(run, "representation", "Accuracy of the representation", "Read by a classifier trained on all data, its choice within the group.", "representation") : null));
  const c = run.confusion && run.confusion.cells.length ? classCells(run) : null;
  const confusion = groupConfusion(run);
  if (confusion || c)
    parts.push(el("div", { class: c ? "row two" : "row", style: { "margin-top": "36px" } }, el("div", { class: "stack" }, confusion, c ? confusedPairs(run, c) : null), c ? classConfusion(run, c) : null));
  const channels = channelsFigure(run);
  if (channels) parts.push(el("div", { class: "row", style: { "margin-top": "36px" } }, channels));
  const training = trainingFigures(run);
  if (training.length) {
    parts.push(el("div", { class: "row", style: { "margin-top": "36px" } }, training[0]));
    parts.push(el("div", { class: training.length > 2 ? "row two" : "row" }, ...training.slice(1)));
  }
  parts.push(...imageSections(run));
  if (!parts.length) parts.push(el("p", { class: "word" }, "This run has just begun; nothing is measured yet."));
  return parts;
}
