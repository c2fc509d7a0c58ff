#!/usr/bin/env python3
"""Tables of docs/RESULTS.md and README.md from run folders.

    tools/results.py RUNS       adds the runs in RUNS, as `der reproduce T1 --out RUNS` leaves them, to those in
                                docs/results/runs, reads all of these into docs/results/*.csv, and writes the tables
    tools/results.py --check    fails where the tables are not those of docs/results/*.csv

The numbers are the program's own: steps.csv is what `der report --csv` says of the runs, table.csv what `der reproduce`
says of the rows of Table 1 beside the paper's. Of a run its settings and what was measured after every step are kept. Tables stand between <!-- results:NAME --> and <!-- /results:NAME -->.
"""
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "results"
RUNS = DATA / "runs"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "RESULTS.md")
DER = os.environ.get("DER", str(ROOT / "build" / "der"))
TABLE = "T1"


# ---- reading runs -----------------------------------------------------------------------------------


def is_finished(run):
    return '"event":"end"' in (run / "metrics.jsonl").read_text()


def keep(runs):
    """Adds records of the runs to those that there are; where one was continued or run anew, its new one."""
    folders = [folder for folder in runs.iterdir() if (folder / "metrics.jsonl").exists()]
    if not any(map(is_finished, folders)):
        sys.exit(f"results: no run in {runs} is finished")
    for folder in folders:
        record = RUNS / folder.name
        record.mkdir(parents=True, exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        config["data"] = "CIFAR"  # wherever it lay
        (record / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        (record / "metrics.jsonl").write_text("".join(line for line in lines if '"event":"epoch"' not in line))


def collect():
    """Has the program read the runs, and keeps what it says."""
    folders = sorted(RUNS.iterdir())
    done = [folder for folder in folders if is_finished(folder)]
    with tempfile.TemporaryDirectory() as work:
        for folder in folders:  # the program writes its table beside them
            shutil.copytree(folder, pathlib.Path(work) / folder.name)
        subprocess.run([DER, "report", *[folder.name for folder in folders], "--csv", "steps.csv", "--quiet"],
                       cwd=work, check=True)
        row, orders = finished_row(done)
        config = json.loads((done[0] / "config.json").read_text())
        subprocess.run([DER, "reproduce", TABLE, "--out", ".", "--row", row, "--orders", ",".join(sorted(orders)),
                        "--device", config["device"], "--precision", config["precision"], "--quiet"],
                       cwd=work, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(pathlib.Path(work) / "steps.csv", DATA / "steps.csv")
        shutil.copy(pathlib.Path(work) / f"{TABLE}.csv", DATA / "table.csv")


def finished_row(done):
    """The row to ask for: all of its orders are there, so nothing is run, and others are shown as far as they are."""
    rows = {}
    for folder in done:
        rows.setdefault(row_of(folder.name), set()).add(order_of(folder.name))
    row = max(rows, key=lambda name: len(rows[name]))
    for other, orders in rows.items():
        if not orders <= rows[row]:
            sys.exit(f"results: '{other}' has orders that '{row}' has not; finish those first")
    return row, rows[row]


def order_of(run):
    return re.search(r"\.order(\d)$", run)[1]


def row_of(run):
    """The label that `der reproduce` has for a run folder of CIFAR-100 in equal steps."""
    preset, rest = run.split(".", 1)
    kind = "DER without pruning" if "prune=false" in rest else "joint" if rest.startswith("joint") else "DER"
    return f"{kind}, {preset.rsplit('-', 1)[1]} steps"


# ---- tables -----------------------------------------------------------------------------------------


def read_csv(name):
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_run():
    runs = {}
    for step in read_csv("steps.csv"):
        runs.setdefault(step["run"], []).append(step)
    return runs


def number(text, digits):
    return f"{float(text):.{digits}f}" if text else "-"


def spread(row, key):
    deviation = row.get(key + "_std")
    return number(row[key], 2) + (f" ± {float(deviation):.2f}" if deviation else "")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" if i == 0 else "--:" for i in range(len(head))) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def rows_table():
    rows = [[row["row"], row["runs"], spread(row, "avg_top1"), spread(row, "last_top1"), number(row["params_m"], 2),
             spread(row, "paper_avg_top1"), number(row["paper_params_m"], 2), f"{float(row['difference']):+.2f}"]
            for row in read_csv("table.csv") if int(row["runs"]) > 0]
    return table(["", "class orders", "average %", "last %", "parameters, M", "paper, average %", "paper, parameters, M",
                  "difference"], rows)


def label(run):
    return f"{row_of(run).split(',')[0]}, order {order_of(run)}"


def steps_needed(run):
    return int(run.split(".", 1)[0].rsplit("-", 1)[1])


def curves_table():
    runs = by_run()
    most = max(map(steps_needed, runs))
    rows = [[label(run)] + [number(step["top1"], 2) for step in steps] + ["-"] * (most - len(steps)) +
            [number(steps[-1]["avg_top1"], 2) if len(steps) == steps_needed(run) else "-"] for run, steps in runs.items()]
    return table(["top-1 % after step"] + [str(i + 1) for i in range(most)] + ["average"], rows)


def sizes_table():
    rows = []
    for run, steps in by_run().items():
        last, needed = steps[-1], steps_needed(run)
        state = "finished" if len(steps) == needed else f"ended by hand after step {len(steps)} of {needed}"
        rows.append([label(run), state, number(last["forgetting"], 2), f"{int(float(last['avg_params'])):,}",
                     f"{int(last['params']):,}", f"{sum(float(step['seconds']) for step in steps) / 60:.1f}",
                     f"{last['device']}, {last['precision']}"])
    return table(["run", "state", "forgetting %", "parameters, mean over the steps", "after the last", "minutes",
                  "computed by"], rows)


TABLES = {"short": rows_table, "rows": rows_table, "curves": curves_table, "runs": sizes_table}


def filled(text):
    def fill(match):
        return f"{match[1]}{TABLES[match[2]]()}{match[3]}"

    return re.sub(r"(<!-- results:(\w+) -->\n).*?(<!-- /results:\2 -->)", fill, text, flags=re.S)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tools/results.py RUNS | --check")
    check = sys.argv[1] == "--check"
    if not check:
        keep(pathlib.Path(sys.argv[1]))
        collect()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if check and filled(text) != text:
            sys.exit(f"results: the tables of {path.relative_to(ROOT)} are not those of docs/results; "
                     "tools/results.py RUNS writes them")
        path.write_text(filled(text), encoding="utf-8")


main()
