#!/usr/bin/env python3
"""Compares DER with its twin in PyTorch: two steps of CIFAR-100, accuracies and kept parameters.

    bench/der_twin.py --peer PYTHON DATA [--seeds N] [--epochs N] [--threads N] [--reuse]
    bench/der_twin.py --ours RUN ... --twin FILE ...

The first form trains both sides with seeds 1 to N: `der train --method der --preset
cifar100-b0-10-rn32` for the first two steps of ten classes in the paper's first order, and
bench/der_torch.py, which does the same in PyTorch (its text says what). The second form compares runs
that exist: folders of der with a metrics.jsonl, and files of der_torch.py.

The two sides share method, schedule and, seed by seed, every draw: initial values, batches, augmentation.
Rounding alone parts them after some epochs, and what is compared are means over seeds. After every step
    |top-1 of der - top-1 of the twin| <= 1.5 points, and
    kept parameters of all extractors differ by at most 15 % of the twin's.
The standard deviation between seeds is printed beside the means. With few seeds it may by itself be of the
size of the bound: `noise` is the standard error of the difference (the twin's deviation stands for der's
where der has one run, and the other way round), and a difference within the bound says the more the
smaller that is. Exits with 1 when a bound is broken.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
POINTS, SHARE = 1.5, 0.15
STEPS, CLASSES = 2, 10


def read_steps(path):
    """{step: row} of a metrics.jsonl."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    steps = {r["step"]: r for r in rows if r.get("event") == "step"}
    missing = [step for step in range(1, STEPS + 1) if step not in steps]
    if missing:
        raise SystemExit(f"der_twin: {path} has no step {missing[0]}")
    return steps


# ---- running ---------------------------------------------------------------------------------------


def complete(path):
    try:
        read_steps(path)
    except (OSError, SystemExit, ValueError):
        return False
    return True


def train_ours(args, seed):
    out = args.build / "twin" / f"der{seed}"
    if not (args.reuse and complete(out / "metrics.jsonl")):
        print(f"der_twin: der, seed {seed}", file=sys.stderr)
        command = [args.build / "der", "train", "--quiet", "--method", "der",
                   "--preset", "cifar100-b0-10-rn32", "--data", args.data, "--out", out,
                   "--order", 1, "--max-steps", STEPS,
                   "--seed", seed, "--threads", args.threads, "--set", f"epochs={args.epochs}",
                   "--set", f"classifier_epochs={args.classifier_epochs}",
                   "--set", "target_params=0", "--set", "mask_init=normal",
                   "--set", "mask_gain=5", "--set", "mask_inherit=0"]
        subprocess.run([str(word) for word in command], check=True)
    return out


def train_twin(args, seed):
    out = args.build / "twin" / f"torch{seed}.jsonl"
    if not (args.reuse and complete(out)):
        print(f"der_twin: PyTorch, seed {seed}", file=sys.stderr)
        command = [args.peer, ROOT / "bench" / "der_torch.py", args.data, out, "--steps", STEPS,
                   "--classes", CLASSES, "--epochs", args.epochs, "--classifier-epochs",
                   args.classifier_epochs, "--seed", seed, "--threads", args.threads]
        subprocess.run([str(word) for word in command], check=True)
    return out


# ---- comparing -------------------------------------------------------------------------------------


def summary(values):
    """Mean, and deviation where there is one."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def standard_error(ours, twin):
    """Of the difference of the means; None where neither side has a deviation."""
    deviations = [summary(values)[1] for values in (ours, twin)]
    known = [d for d in deviations if d is not None]
    if not known:
        return None
    a, b = (d if d is not None else known[0] for d in deviations)
    return math.sqrt(a * a / len(ours) + b * b / len(twin))


def compare(ours, twin, step):
    """Two rows: accuracy and parameters after a step."""
    rows = []
    for key, unit in (("top1", "top-1, %"), ("params", "parameters")):
        a, b = ([float(run[step][key]) for run in side] for side in (ours, twin))
        difference = statistics.mean(a) - statistics.mean(b)
        allowed = POINTS if key == "top1" else SHARE * statistics.mean(b)
        rows.append({"what": f"step {step}, {unit}", "ours": a, "twin": b, "difference": difference,
                     "allowed": allowed, "noise": standard_error(a, b),
                     "ok": abs(difference) <= allowed})
    return rows


def table(rows):
    def side(values):
        mean, deviation = summary(values)
        text = f"{mean:.2f}" if mean < 1000 else f"{mean:.0f}"
        if deviation is None:
            return text
        return f"{text} ± {deviation:.2f}" if mean < 1000 else f"{text} ± {deviation:.0f}"

    def short(value):
        return "-" if value is None else f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"

    lines = [f"| after | der ({len(rows[0]['ours'])} runs) | PyTorch ({len(rows[0]['twin'])} runs) | "
             "difference | noise | allowed | |", "|---|--:|--:|--:|--:|--:|---|"]
    lines += [f"| {r['what']} | {side(r['ours'])} | {side(r['twin'])} | {short(r['difference'])} | "
              f"{short(r['noise'])} | {short(r['allowed'])} | {'ok' if r['ok'] else 'DIFFERS'} |"
              for r in rows]
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, nargs="?")
    parser.add_argument("--peer", help="python with PyTorch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--classifier-epochs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reuse", action="store_true", help="complete runs of an earlier call")
    parser.add_argument("--ours", type=pathlib.Path, nargs="+", metavar="RUN")
    parser.add_argument("--twin", type=pathlib.Path, nargs="+", metavar="FILE")
    args = parser.parse_args()
    given = bool(args.ours) + bool(args.twin)
    if given == 1 or (given == 0 and not (args.data and args.peer)):
        parser.error("give DATA and --peer, or --ours and --twin")
    return args


def main():
    args = parse()
    if not args.ours:
        (args.build / "twin").mkdir(parents=True, exist_ok=True)
        seeds = range(1, args.seeds + 1)
        args.twin = [train_twin(args, seed) for seed in seeds]
        args.ours = [train_ours(args, seed) for seed in seeds]
    ours = [read_steps(run / "metrics.jsonl" if run.is_dir() else run) for run in args.ours]
    twin = [read_steps(path) for path in args.twin]
    rows = [r for step in range(1, STEPS + 1) for r in compare(ours, twin, step)]
    print(table(rows), end="")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
