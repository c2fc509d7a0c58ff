// The page from top to bottom.

function about() {
  if (D.runs.length > 1) {
    const kinds = [...new Set(D.runs.map((r) => r.preset))];
    return `${D.runs.length} runs, ${kinds.length > 3 ? kinds.length + " presets" : kinds.join(", ")}`;
  }
  const run = D.runs[0];
  return `${run.preset}, ${settingOf(run, "method")}, ${run.classes.length} classes in ${run.n_steps} ${run.n_steps === 1 ? "step" : "steps"}, ${settingOf(run, "network")}; data: ${run.data}`;
}

// The numbers that one run is judged by.
function facts(run) {
  if (!run.steps.length) return null;
  const s = last(run.steps);
  const paper = run.paper >= 0 ? D.paper[run.paper] : null;
  const fact = (name, value, beside) => {
    const parts = value.split(THIN);
    const [number, unit] = parts.length === 2 ? parts : [value, ""];
    return el("div", {}, el("span", { class: "name" }, name), el("span", { class: "value" }, number, unit ? el("span", { class: "unit" }, THIN + unit) : null), beside ? el("span", { class: "beside" }, beside) : null);
  };
  return el("div", { class: "facts" },
    fact("Average accuracy", percent(s.avg_top1), paper && isNumber(paper.average) ? `paper ${percent(paper.average)}` : `over ${run.steps.length} ${run.steps.length === 1 ? "step" : "steps"}`),
    fact("Last accuracy", percent(s.top1), `${s.classes} classes`),
    fact("Forgetting", percent(s.forgetting), "since a group was best"),
    fact("Parameters", short(s.params), paper && isNumber(paper.params) ? `mean ${short(s.avg_params)}, paper ${short(paper.params)}` : `mean ${short(s.avg_params)}`),
    fact("Time", duration(run.steps.reduce((a, t) => a + (t.seconds || 0), 0)), `${run.device}, ${run.precision}`));
}

function build() {
  const hidden = new Set((memory.hidden || []).filter((id) => D.runs.some((_, i) => `run:${i}` === id)));
  const shown = () => D.runs.filter((_, i) => !hidden.has(`run:${i}`));
  const charts = [accuracyFigure(shown), parametersFigure(shown)];
  const page = document.getElementById("page");
  const one = D.runs.length === 1 ? D.runs[0] : null;
  page.append(el("header", {}, el("p", { class: "over" }, "der report"),
    el("h1", {}, D.title, one && !one.done ? el("span", { class: "state" }, progressOf(one)) : null), el("p", { class: "about" }, about())));
  if (one) page.append(facts(one) || "");
  else
    page.append(el("div", { class: "bar" }, keys(D.runs.map((run, i) => ({ id: `run:${i}`, label: run.label + (run.done ? "" : " · " + progressOf(run).split(",")[0]), title: `${run.path}: ${progressOf(run)}`, sign: runSign(run) })), hidden, () => {
      remember("hidden", [...hidden]);
      charts.forEach((c) => c.redraw());
    })));
  page.append(el("div", { class: "row wide" }, charts));

  const inside = el("div", { id: "inside" });
  let chosen = Math.min(memory.run || 0, D.runs.length - 1);
  const fillInside = () => inside.replaceChildren(...insideRun(D.runs[chosen]));
  const section = el("section", {}, el("h2", {}, one ? "Inside the run" : "Inside one run"));
  if (!one) section.append(choice("Run to look into", D.runs.map((r) => r.label), chosen, (i) => { chosen = i; remember("run", i); fillInside(); }));
  section.append(inside);
  page.append(section);
  fillInside();

  page.append(repeatsTable(), settingsTable(), costTable(), stepsTable());
  page.append(el("footer", {}, `Written by der ${D.version} from ${D.runs.map((r) => r.path).join(", ")}.`));
  if (D.refresh > 0) setTimeout(() => location.reload(), 1000 * D.refresh);
  document.documentElement.setAttribute("data-ready", "");
}
build();
