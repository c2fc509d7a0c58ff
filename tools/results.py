#!/usr/bin/env python3
"""Tables of docs/RESULTS.md and README.md from run folders.

    tools/results.py RUNS       adds the runs in RUNS, as `der reproduce TABLE --out RUNS` leaves them, to those in
                                docs/results/runs, reads all of these into docs/results/*.csv, and writes the tables
    tools/results.py --again    the same with nothing to add, where the program has another list of rows, say
    tools/results.py --check    fails where the tables are not those of docs/results/*.csv

The numbers are the program's own: steps.csv is what `der report --csv` says of the runs, T1.csv and its like what `der
reproduce` says of the paper's rows. Of a run its settings and what was measured after every step are kept. Tables stand between <!-- results:NAME --> and <!-- /results:NAME -->.
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
DER = os.path.abspath(os.environ.get("DER", ROOT / "build" / "der"))
MOST_STEPS = 11  # of a table as wide
PAPER_TABLES = {  # of CIFAR-100
    "T1": "Table 1: CIFAR100-B0",
    "T2": "Table 2: CIFAR100-B50",
    "T4": "Table 4: what the parts contribute",
    "T5": "Table 5: transfer",
    "T7": "Table 7: CIFAR100-B0, 32-layer network",
    "T8": "Table 8: CIFAR100-B50, 32-layer network",
    "fig1": "Figure 1: the sparsity loss",
    "bound": "Upper bound of the classifier",
}


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
    config = json.loads((folders[0] / "config.json").read_text())
    with tempfile.TemporaryDirectory() as work:
        for folder in folders:  # the program writes its tables beside them
            shutil.copytree(folder, pathlib.Path(work) / folder.name)
        subprocess.run([DER, "report", *[folder.name for folder in folders], "--csv", "steps.csv", "--quiet"],
                       cwd=work, check=True)
        shutil.copy(pathlib.Path(work) / "steps.csv", DATA / "steps.csv")
        for name in PAPER_TABLES:
            subprocess.run([DER, "reproduce", name, "--out", ".", "--table-only", "--device", config["device"],
                            "--precision", config["precision"]], cwd=work, check=True, stdout=subprocess.DEVNULL)
            shutil.copy(pathlib.Path(work) / f"{name}.csv", DATA / f"{name}.csv")


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


def done_rows(name):
    return [row for row in read_csv(f"{name}.csv") if int(row["runs"]) > 0]


def rows_table(name="T1"):
    rows = [[row["row"], row["runs"], spread(row, "avg_top1"), spread(row, "last_top1"), number(row["params_m"], 2),
             spread(row, "paper_avg_top1"), number(row["paper_params_m"], 2),
             f"{float(row['difference']):+.2f}" if row["difference"] else "-"] for row in done_rows(name)]
    return table(["", "class orders", "average %", "last %", "parameters, M", "paper, average %", "paper, parameters, M",
                  "difference"], rows)


def transfer_table():
    rows = [[row["row"], row["runs"], spread(row, "bwt"), spread(row, "fwt"), number(row["paper_bwt"], 2),
             number(row["paper_fwt"], 2)] for row in done_rows("T5")]
    return table(["", "class orders", "backward", "forward", "paper, backward", "paper, forward"], rows)


def bound_table():
    rows = [[row["row"], row["runs"], spread(row, "avg_top1"), spread(row, "classifier_bound"),
             spread(row, "paper_avg_top1"), number(row["paper_classifier_bound"], 2)] for row in done_rows("bound")]
    return table(["", "class orders", "average %", "upper bound %", "paper, average %", "paper, upper bound %"], rows)


def other_tables():
    """Those besides the first of which something has been run."""
    names = [name for name in PAPER_TABLES if name != "T1" and done_rows(name)]
    own = {"T5": transfer_table, "bound": bound_table}
    return "\n".join(f"**{PAPER_TABLES[name]}**\n\n{own[name]() if name in own else rows_table(name)}"
                     for name in names)


def preset_of(run):
    return run.split(".", 1)[0]


def label(run):
    """What a run folder of `der reproduce` holds, in words."""
    rest, order = re.fullmatch(r"[^.]*\.(.*)\.order(\d)", run).groups()
    method, _, changes = rest.partition(".")
    changes = "." + changes if changes else ""
    name = {"der": "DER", "finetune": "fine-tuning", "icarl": "iCaRL", "wa": "WA", "bic": "BiC"}.get(method, method)
    if ".prune=false" in changes:
        name += " without pruning"
        changes = changes.replace(".prune=false", "")
    if changes:
        name += f" ({changes[1:]})"
    return f"{name}, order {order}"


def steps_needed(run):
    settings = json.loads((RUNS / run / "config.json").read_text())["settings"]
    return 1 + (settings["classes"] - settings["base_classes"]) // settings["step_classes"]


def curves_of(preset, runs):
    """Steps side by side, or one below the other where they would be too many to read."""
    runs = {run: steps for run, steps in runs.items() if preset_of(run) == preset}
    most = max(map(steps_needed, runs))
    rows = [[f"{preset}, top-1 % after step"] + [str(i + 1) for i in range(most)] + ["average"]]
    rows += [[label(run)] + [number(step["top1"], 2) for step in steps] + ["-"] * (most - len(steps)) +
             [number(steps[-1]["avg_top1"], 2) if len(steps) == steps_needed(run) else "-"] for run, steps in runs.items()]
    if most > MOST_STEPS:
        rows = [list(column) for column in zip(*rows)]
    return table(rows[0], rows[1:])


def curves_table():
    runs = by_run()
    return "\n".join(curves_of(preset, runs) for preset in dict.fromkeys(map(preset_of, runs)))


def sizes_table():
    rows = []
    for run, steps in by_run().items():
        last, needed = steps[-1], steps_needed(run)
        state = "finished" if len(steps) == needed else f"ended by hand after step {len(steps)} of {needed}"
        rows.append([f"{preset_of(run)}: {label(run)}", state, number(last["avg_top1"], 2), number(last["forgetting"], 2),
                     f"{int(float(last['avg_params'])):,}", f"{int(last['params']):,}",
                     f"{sum(float(step['seconds']) for step in steps) / 60:.1f}", f"{last['device']}, {last['precision']}"])
    return table(["run", "state", "average %", "forgetting %", "parameters, mean over the steps", "after the last",
                  "minutes", "computed by"], rows)


TABLES = {"short": rows_table, "rows": rows_table, "others": other_tables, "curves": curves_table, "runs": sizes_table}


def filled(text):
    def fill(match):
        return f"{match[1]}{TABLES[match[2]]()}{match[3]}"

    return re.sub(r"(<!-- results:(\w+) -->\n).*?(<!-- /results:\2 -->)", fill, text, flags=re.S)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tools/results.py RUNS | --again | --check")
    check = sys.argv[1] == "--check"
    if not check:
        if sys.argv[1] != "--again":
            keep(pathlib.Path(sys.argv[1]))
        collect()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if check and filled(text) != text:
            sys.exit(f"results: the tables of {path.relative_to(ROOT)} are not those of docs/results; "
                     "tools/results.py RUNS writes them")
        path.write_text(filled(text), encoding="utf-8")


main()
