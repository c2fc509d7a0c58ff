#!/usr/bin/env python3
"""check_page.py PAGE KIND RUN...: opens a page in headless Chromium and compares it with its runs.

KIND is run (one), runs (several), demo (several, of which nothing more was measured), names (classes called like HTML),
labels (RUN is what a run should be called) or follow (a page that is being rewritten; the second RUN is the command that
finishes the run). Prints "pass NAME" or "fail NAME: why", one a line.
"""
import json
import math
import os
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import chromium  # noqa: E402

MAX_BYTES = 10_000_000
MAX_SECONDS = 2.0
MARKS = ".mark, .mark-line, .cell"


def report(name, holds, why=""):
    print(f"pass {name}" if holds else f"fail {name}: {why}", flush=True)


def read_run(folder):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return config, lines


def steps_of(folder):
    return [line for line in read_run(folder)[1] if line["event"] == "step"]


def two_digits(value):
    """As the page rounds: the exact value, halves up."""
    return str(Decimal(value).quantize(Decimal("0.01"), ROUND_HALF_UP))


def format_percent(value):
    return two_digits(value) + "\u202f%"


def same(a, b):
    """Lists of lists of numbers, equal but for the last bit, which the printing of a double may cost."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b, rel_tol=1e-15)


def check_load(browser, page, path, wall):
    size = os.path.getsize(path)
    report("is under 10 MB", size < MAX_BYTES, f"{size} bytes")
    # Processor time: that is how long it takes where nothing else runs.
    page.call("Performance.enable")
    metrics = {m["name"]: m["value"] for m in page.call("Performance.getMetrics")["metrics"]}
    report("loads in less than 2 s", metrics["ProcessTime"] < MAX_SECONDS, f"{metrics['ProcessTime']} s")
    print(f"# {size} bytes, {metrics['ProcessTime']:.2f} s of the processor, {wall:.2f} s by the clock")
    fetched = page.value("performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:'))")
    report("fetches nothing", fetched == [], fetched)


def check_marks(page, wanted):
    charts = page.value(f"""Object.fromEntries([...document.querySelectorAll('figure[data-chart]')].map(f =>
        [f.dataset.chart, f.querySelectorAll('{MARKS}, li').length + Number((f.querySelector('canvas') || {{dataset: {{}}}}).dataset.cells || 0)]))""")
    missing = [name for name in wanted if not charts.get(name)]
    report("every chart is there with its marks", not missing, f"{missing} of {charts}")
    blank = page.value("""[...document.querySelectorAll('canvas')].filter(c => {
        const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
        return d.every(v => v === d[0]); }).length""")
    report("no canvas is blank", blank == 0, blank)


def check_accuracies(page, runs):
    drawn = page.value("""[...document.querySelectorAll('[data-chart=accuracy] g[data-series^="run:"]')].map(g =>
        [...g.querySelectorAll('.mark')].map(m => [Number(m.dataset.x), Number(m.dataset.y)]))""")
    wanted = [[[s["step"], s["top1"]] for s in steps_of(run)] for run in runs]
    report("the marks are the accuracies of metrics.jsonl", same(drawn, wanted), f"{drawn} not {wanted}")


def check_tables(page, runs):
    rows = page.value("""[...document.querySelectorAll('[data-table=steps] details')].map(d =>
        [...d.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent)))""")
    wanted = [[[str(s["step"]), str(s["classes"])] + [two_digits(s[key]) for key in ("top1", "top5", "avg_top1")]
               for s in steps_of(run)] for run in runs]
    shown = [[row[:5] for row in run] for run in rows]
    report("the table of steps has the numbers of metrics.jsonl", shown == wanted, f"{shown} not {wanted}")


def check_groups(page, run):
    last = steps_of(run)[-1]
    lines = page.value("""[...document.querySelectorAll('[data-chart=groups] g[data-series]')].map(g => {
        const m = [...g.querySelectorAll('.mark')].pop(); return Number(m.dataset.y); })""")
    if lines:
        report("groups end where metrics.jsonl says", same(lines, last["groups"]), f"{lines} not {last['groups']}")
    else:
        cells = page.value("document.querySelectorAll('[data-chart=groups] .cell').length")
        n = len(steps_of(run))
        report("every group has a cell a step", cells == n * (n + 1) // 2, cells)
    confusion = page.value("document.querySelectorAll('[data-chart=confusion-groups] .cell').length")
    report("every pair of groups has a cell", confusion == len(last["confusion"]) ** 2, confusion)


def place_of(page, selector, index=0):
    return page.value(f"""(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];
        e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")


def tip(page):
    return page.value("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")


def check_reading(page, run):
    steps = steps_of(run)
    mark = '[data-chart=accuracy] g[data-series="run:0"] .mark'
    page.move(*place_of(page, mark, 1 if len(steps) > 1 else 0))
    step = steps[1 if len(steps) > 1 else 0]
    text = tip(page)
    report("the mouse reads a value", format_percent(step["top1"]) in text and f"step {step['step']}" in text, repr(text))
    page.move(2, 2)
    report("and leaves it", tip(page) == "", tip(page))
    page.value("document.querySelector('[data-chart=accuracy] svg').focus()")
    page.key("Home")
    first = tip(page)
    page.key("ArrowRight")
    second = tip(page)
    page.key("End")
    text = tip(page)
    wanted = format_percent(steps[-1]["top1"])
    report("the keyboard reads values", format_percent(steps[0]["top1"]) in first and wanted in text and second != first,
           repr((first, second, text)))
    said = page.value("document.getElementById('said').textContent")
    report("and they are said", wanted in said, said)
    page.key("Escape")
    report("Escape ends it", tip(page) == "", tip(page))
    page.move(*place_of(page, "[data-chart=confusion-groups] .cell"))
    count = str(steps[-1]["confusion"][0][0])
    report("a cell tells its count", f"{count} of" in tip(page).replace("\u202f", ""), repr(tip(page)))
    page.move(2, 2)
    page.value("(document.querySelector('[data-chart=confusion-classes] canvas') || document.querySelector('[data-chart=confusion-classes] svg')).focus()")
    page.key("ArrowDown")
    report("the matrix of classes is read by keyboard", "images" in tip(page), repr(tip(page)))
    page.key("Escape")


def check_toggles(page, keys, marks):
    n = page.value(f"document.querySelectorAll({json.dumps(marks)}).length")
    count = f"document.querySelectorAll({json.dumps(marks)}).length"
    page.click(*place_of(page, keys))
    page.wait(f"{count} < {n} || 1")
    off = page.value(count)
    pressed = page.value(f"document.querySelector({json.dumps(keys)}).getAttribute('aria-pressed')")
    report("a click takes a series away", off < n and pressed == "false", (n, off, pressed))
    page.value(f"document.querySelector({json.dumps(keys)}).focus()")
    page.key("Enter")
    report("and Enter brings it back", page.value(count) == n, page.value(count))


def check_memory(page):
    page.click(*place_of(page, ".bar .keys button"))
    page.value("document.documentElement.removeAttribute('data-ready')")
    page.call("Page.reload")
    page.wait("document.documentElement && document.documentElement.hasAttribute('data-ready')")
    pressed = page.value("document.querySelector('.bar .keys button').getAttribute('aria-pressed')")
    report("what was switched off stays so over a reload", pressed == "false", pressed)
    page.click(*place_of(page, ".bar .keys button"))


def check_looks(page, folder):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.value(ground)
    page.media("screen", True)
    dark = page.value(ground)
    page.media("print", True)
    printed = page.value(ground)
    page.media("screen", False)
    report("dark and light differ, and print is light", light == printed != dark, (light, dark, printed))
    page.pdf(os.path.join(folder, "page.pdf"))
    with open(os.path.join(folder, "page.pdf"), "rb") as file:
        data = file.read()
    report("it prints", data.startswith(b"%PDF") and len(data) > 20000, len(data))
    page.resize(400, 800)
    over = page.value("""new Promise(done => { let n = 100; const look = () => {
        const over = document.documentElement.scrollWidth - innerWidth;
        if (over <= 0 || --n === 0) done(over); else setTimeout(look, 50); }; look(); })""")
    report("it fits a narrow window", over <= 0, over)
    page.resize(1240, 900)


def check_choice(page, runs):
    page.click(*place_of(page, ".choice button", 1))
    page.wait("document.querySelectorAll('#inside figure').length > 0")
    page.value("new Promise(done => setTimeout(done, 200))")
    groups = steps_of(runs[1])[-1]["groups"]
    lines = page.value("""[...document.querySelectorAll('[data-chart=groups] g[data-series]')].map(g =>
        Number([...g.querySelectorAll('.mark')].pop().dataset.y))""")
    report("another run can be looked into", same(lines, groups), f"{lines} not {groups}")


def check_names(page, run):
    names = read_run(run)[0]["class_names"]
    hacked = page.value("typeof window.hacked")
    report("no name is run as a script", hacked == "undefined", hacked)
    scripts = page.value("document.scripts.length")
    report("no name adds a script", scripts == 2, scripts)
    images = page.value("document.querySelectorAll('img[src=x], b b, iframe').length")
    report("no name adds an element", images == 0, images)
    shown = page.value("[...document.querySelectorAll('[data-chart=exemplars] li')].map(l => l.firstChild.data)")
    report("every name is shown as it is", shown == names, f"{shown} not {names}")
    title = page.value("document.querySelector('h1').firstChild.data")
    report("so is the title", title == page.value("document.title") == '<script>hacked=1</script> & "more"', title)


def check_labels(page, wanted):
    keys = page.value("[...document.querySelectorAll('.bar .keys button')].map(b => b.textContent.trim())")
    report("runs are called by what tells them apart", keys == wanted, f"{keys} not {wanted}")
    ends = page.value("[...document.querySelectorAll('[data-chart=accuracy] text')].map(t => t.textContent)")
    report("so are their lines", set(wanted) <= set(ends), f"{wanted} not among {ends}")
    names = page.value("[...document.querySelectorAll('[data-table=steps] summary')].map(s => s.textContent.trim())")
    report("tables have their whole names", all(w in n and w != n for w, n in zip(wanted, names)), names)


def check_ends(page):
    """Lines of runs that end at different steps: names lie apart, tell the runs apart, and stay where nothing is near."""
    ends = page.value("""[...document.querySelectorAll('[data-chart=accuracy] text.end')].map(t => {
        const r = t.getBoundingClientRect(); return [t.textContent, r.left, r.right, r.top, r.bottom]; })""")
    names = [end[0] for end in ends]
    report("lines of runs whose names begin alike have names of their own", len(set(names)) == len(names) == 3, names)
    met = [(a[0], b[0]) for i, a in enumerate(ends) for b in ends[:i]
           if a[1] < b[2] and b[1] < a[2] and a[3] < b[4] - 1 and b[3] < a[4] - 1]
    report("no name lies on another", not met, met)
    marks = page.value("""[...document.querySelectorAll('[data-chart=accuracy] g[data-series^="run:"]')].map(g => {
        const r = [...g.querySelectorAll('.mark')].pop().getBoundingClientRect(); return [r.right, (r.top + r.bottom) / 2]; })""")
    off = []
    for left in {round(end[1]) for end in ends}:
        highest = min((end for end in ends if round(end[1]) == left), key=lambda end: end[3])
        beside = min(y for x, y in marks if 0 < left - x < 20)
        off.append(abs((highest[3] + highest[4]) / 2 - beside))
    report("names with nothing above them are beside their lines", len(off) == 2 and max(off) < 4, off)


def check_follow(page, run, command):
    count = "document.querySelectorAll('[data-chart=accuracy] .mark').length"
    before = page.value(count)
    report("a run that goes on is shown as far as it is", before == len(steps_of(run)), before)
    report("and said to be unfinished", "of 5" in page.value("document.querySelector('.state').textContent"))
    subprocess.run(command, shell=True, check=True)
    page.wait(f"document.documentElement && document.documentElement.hasAttribute('data-ready') && {count} === 5")
    report("an open page shows the next steps by itself", True)
    page.wait("!document.querySelector('.state')")
    report("and that the run is finished", True)


ONE = ["accuracy", "parameters", "groups", "confusion-groups", "confusion-classes", "channels", "losses", "rate", "wrong",
       "exemplars", "pairs", "sparsity"]


def main():
    path, kind, *runs = sys.argv[1:]
    url = "file://" + os.path.abspath(path)
    with chromium.Browser() as browser:
        page = browser.open(url)
        wall = page.seconds
        if kind == "follow":
            check_follow(page, runs[0], runs[1])
        elif kind == "labels":
            check_labels(page, runs)
        elif kind == "ends":
            check_ends(page)
        else:
            check_load(browser, page, path, wall)
            check_marks(page, ONE + (["representation"] if kind != "demo" else []))
            check_accuracies(page, runs)
            check_tables(page, runs)
            check_groups(page, runs[0])
            check_reading(page, runs[0])
        if kind in ("runs", "demo"):
            check_toggles(page, ".bar .keys button", "[data-chart=accuracy] .mark")
            check_memory(page)
            check_choice(page, runs)
        elif kind in ("run", "names"):
            check_toggles(page, "[data-chart=losses] .keys button", "[data-chart=losses] .mark-line")
        if kind == "names":
            check_names(page, runs[0])
        if kind not in ("follow", "labels", "ends"):
            check_looks(page, os.path.dirname(os.path.abspath(path)))
        report("the console stays empty", page.complaints == [], page.complaints)


main()
