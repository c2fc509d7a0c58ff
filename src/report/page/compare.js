// What concerns all runs: accuracy by step, accuracy against parameters, and the tables.

const last = (list) => list[list.length - 1];
const settingOf = (run, key) => {
  const row = D.settings.find((s) => s.key === key);
  return row ? row.values[D.runs.indexOf(run)] : "";
};
const runColour = (run) => colourOf(D.runs.indexOf(run));
const runSign = (run) => sign(runColour(run), D.runs.indexOf(run));
const averageOf = (run) => (run.end ? run.end.avg_top1 : run.steps.length ? last(run.steps).avg_top1 : null);
const paramsOf = (run) => (run.end ? run.end.avg_params : run.steps.length ? last(run.steps).avg_params : null);

function progressOf(run) {
  if (run.done) return "finished";
  const e = run.epochs;
  const n = e.step.length;
  if (!n) return run.steps.length ? `${run.steps.length} of ${run.n_steps} steps` : "just begun";
  if (run.steps.length && last(run.steps).step >= e.step[n - 1]) return `${last(run.steps).step} of ${run.n_steps} steps`;
  return `step ${e.step[n - 1]} of ${run.n_steps}, ${e.stages[e.stage[n - 1]]}, epoch ${e.epoch[n - 1]} of ${e.epochs[n - 1]}`;
}

// Rows of the paper that belong to the runs shown.
function paperRows(runs) {
  const rows = [...new Set(runs.map((r) => r.paper))].filter((i) => i >= 0).map((i) => D.paper[i]);
  const several = new Set(rows.map((p) => p.protocol)).size > 1;
  return rows.map((p) => ({ ...p, name: `paper, ${p.label}${several ? ", " + p.protocol : ""}` }));
}

function accuracyFigure(shown) {
  return figure("accuracy", "Accuracy after every step", "Top-1 over all classes learnt so far.", (host, width) => {
    const runs = shown();
    const names = shortNames(runs, 20);
    const most = Math.max(1, ...D.runs.map((r) => r.n_steps));
    const paper = paperRows(runs).flatMap((p) => {
      const points = p.curve ? p.curve.map((v, t) => [t + 1, v])
        : isNumber(p.average) ? [[1, p.average], [most, p.average]] : [];
      const name = p.curve ? p.name : p.name + ", average";
      return points.length ? [{ id: "paper:" + p.name, label: name, colour: "var(--paper)", class: "paper", bare: true, points, end: "paper: " + p.label }] : [];
    });
    const series = runs.map((run) => ({
      id: "run:" + D.runs.indexOf(run), label: run.label, colour: runColour(run), shape: D.runs.indexOf(run),
      points: run.steps.map((s) => [s.step, s.top1, percent(s.top1)]), size: run.steps.length > 25 ? 2.6 : 4,
      end: runs.length <= 8 ? names.get(run) : null,
    }));
    lineChart(host, width, {
      label: "Accuracy after every step", height: 360,
      x: { label: "step", low: 1, high: Math.max(2, most), ticks: stepTicks(most), format: String },
      y: { label: "%", format: (v, exact) => (exact ? percent(v) : String(v)), high: ceilingOf(series, paper) },
      series: [...paper, ...series], head: (x) => `After step ${x}`,
    });
  });
}
const ceilingOf = (series, paper) => {
  const highest = Math.max(0, ...series.concat(paper).flatMap((s) => s.points.map((p) => p[1])));
  return highest > 90 ? 100 : undefined;
};
const cut = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);
const cutBefore = (text, n) => (text.length > n ? "…" + text.slice(1 - n) : text);

// Names of runs in n characters: their beginnings, or where these are the same their ends.
function shortNames(runs, n) {
  const heads = runs.map((run) => cut(run.label, n));
  const areApart = new Set(heads).size === heads.length;
  return new Map(runs.map((run, i) => [run, areApart ? heads[i] : cutBefore(run.label, n)]));
}

const stepTicks = (n) => {
  const every = [1, 2, 5, 10, 20].find((e) => n / e <= 14) || 20;
  return Array.from({ length: n }, (_, i) => i + 1).filter((t) => t === 1 || t % every === 0);
};

function parametersFigure(shown) {
  return figure("parameters", "Accuracy against parameters", "Mean over the steps of both; thin lines run through the steps.", (host, width) => {
    const runs = shown().filter((r) => r.steps.length);
    const names = shortNames(runs, 16);
    const series = runs.flatMap((run) => {
      const i = D.runs.indexOf(run);
      const trail = run.steps.map((s) => [s.params, s.top1]);
      return [
        { id: "trail:" + i, label: run.label, colour: runColour(run), class: "trail", bare: true, silent: true, points: trail },
        { id: "run:" + i, label: run.label, colour: runColour(run), shape: i, size: 5.5, pointsOnly: true,
          points: [[paramsOf(run), averageOf(run), `${percent(averageOf(run))} at ${short(paramsOf(run))}`, "Mean over the steps"]], end: runs.length <= 5 ? names.get(run) : null },
      ];
    });
    const paper = paperRows(runs).filter((p) => isNumber(p.params) && isNumber(p.average)).map((p) => ({
      id: "paper:" + p.name, label: p.name, colour: "var(--paper)", shape: 3, size: 5, hollow: true, pointsOnly: true,
      points: [[p.params, p.average, `${percent(p.average)} at ${short(p.params)}`, "Published"]],
    }));
    const xs = series.concat(paper).flatMap((s) => s.points.map((p) => p[0])).filter((v) => v > 0);
    const wide = xs.length && Math.max(...xs) / Math.min(...xs) > 8;
    lineChart(host, width, {
      label: "Accuracy against parameters", height: 360, byPoint: true,
      x: { label: "parameters of the extractors", format: (v) => short(v).replace(/\.0+(?=\D|$)|(\.\d*?)0+(?=\D|$)/, "$1"), log: wide, nice: true, low: wide ? undefined : 0 },
      y: { label: "%", format: (v, exact) => (exact ? percent(v) : String(v)) },
      series: [...series, ...paper], head: () => "",
    });
  });
}

// ---- tables ----
function repeatsTable() {
  const label = (row) => {
    const runs = row.runs.map((i) => D.runs[i]);
    return runs.length === 1 ? runs[0].label : `${runs[0].preset}, ${settingOf(runs[0], "method")}: ${runs.map((r) => r.label).join(", ")}`;
  };
  const any = (key) => D.repeats.some((r) => isNumber(r[key].mean));
  const columns = [["avg_top1", "average top-1", percent], ["last_top1", "last top-1", percent], ["avg_top5", "average top-5", percent],
    ["last_top5", "last top-5", percent], ["avg_params", "parameters", short], ["bwt", "BWT", percent], ["fwt", "FWT", percent],
    ["bound", "classifier’s bound", percent]].filter((c) => any(c[0]));
  const paper = D.repeats.some((r) => r.paper >= 0);
  const plain = (format) => (v) => format(v).replace(THIN + "%", "");
  const head = ["Experiment", "runs", ...columns.map((c) => c[1] + (c[2] === percent ? ", %" : "")), ...(paper ? ["paper’s average, %"] : [])];
  const rows = D.repeats.map((r) => [
    label(r), { nodes: `${r.avg_top1.n} of ${r.runs.length}` },
    ...columns.map((c) => meanAndStd(r[c[0]], c[2] === percent ? plain(percent) : c[2])),
    ...(paper ? [{ cls: "paper", nodes: r.paper >= 0 ? meanAndStd({ mean: D.paper[r.paper].average, std: D.paper[r.paper].std }, plain(percent)) : DASH }] : []),
  ]);
  return el("section", { "data-table": "repeats" }, el("h2", {}, D.runs.length > 1 ? "Mean and deviation over class orders" : "Result"),
    D.runs.length > 1 ? el("p", {}, "Runs that differ in class order and seed alone are one experiment; only finished runs count.") : null, dataTable(head, rows));
}

function settingsTable() {
  const named = (rows) => dataTable(["Setting", ...D.runs.map((r) => ({ nodes: r.label }))],
    rows.map((s) => [{ nodes: el("span", { title: s.help }, s.key) }, ...s.values.map((v) => ({ cls: "wrap", nodes: v }))]));
  const differ = D.settings.filter((s) => s.differs);
  const section = el("section", { "data-table": "settings" });
  section.append(el("h2", {}, D.runs.length > 1 ? "Settings that differ" : "Settings"));
  if (D.runs.length > 1) section.append(differ.length ? named(differ) : el("p", { class: "word" }, "All runs have the same settings."));
  section.append(el("details", {}, el("summary", {}, `All ${D.settings.length} settings`), named(D.settings)));
  return section;
}

function costTable() {
  const sum = (run, key) => run.steps.reduce((a, s) => a + (s[key] || 0), 0);
  const latency = D.runs.some((r) => r.steps.length && last(r.steps).latency_ms);
  const rate = (run) => {
    const all = run.epochs.images_per_second.filter(isNumber);
    return all.length ? all.reduce((a, b) => a + b, 0) / all.length : null;
  };
  const head = ["Run", { nodes: "state" }, "time of the steps", "ms per iteration", "images per second", "memory", "parameters", "with classifier",
    ...(latency ? ["ms per image", "unpruned"] : []), "device", "threads"];
  const rows = D.runs.map((run) => {
    const s = last(run.steps) || {};
    const peak = Math.max(...run.steps.map((t) => t.peak_bytes || 0), 0) || null;
    const ms = s.latency_ms || {};
    return [{ nodes: [runSign(run), " ", run.name] }, progressOf(run), duration(sum(run, "seconds") || null), digits(s.ms_per_iter), digits(rate(run)), bytes(peak),
      whole(s.params), whole(s.params_total), ...(latency ? [digits((ms.model || {}).batch_1), digits((ms.unpruned || {}).batch_1)] : []), `${run.device}, ${run.precision}`, String(run.threads)];
  });
  return el("section", { "data-table": "cost" }, el("h2", {}, "Time and memory"),
    el("p", {}, "Memory is the largest resident size of the process; of a run that was resumed, times count from there."), dataTable(head, rows));
}

function stepsTable() {
  const section = el("section", { "data-table": "steps" }, el("h2", {}, "Every step"));
  for (const run of D.runs) {
    if (!run.steps.length) continue;
    const bound = run.steps.some((s) => isNumber(s.classifier_bound));
    section.append(el("details", { open: D.runs.length === 1 && run.steps.length <= 20 }, el("summary", {}, runSign(run), " ", run.name),
      dataTable(["Step", "classes", "top-1, %", "top-5, %", "average, %", "forgetting, %", ...(bound ? ["bound, %"] : []), "parameters", "time"],
        run.steps.map((s) => [String(s.step), String(s.classes), fixed(s.top1, 2), fixed(s.top5, 2), fixed(s.avg_top1, 2), fixed(s.forgetting, 2),
          ...(bound ? [fixed(s.classifier_bound, 2)] : []), whole(s.params), duration(s.seconds)]))));
  }
  return section;
}
