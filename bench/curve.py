#!/usr/bin/env python3
"""Compares the loss curve of der with PyTorch's: same network, data, order and augmentation.

    bench/curve.py --peer PYTHON DATA [--epochs N] [--threads N] [--runs N] ...

Both start from the parameters that der_curve has drawn, and see the same batches of ten classes of
CIFAR-100 (the first of the paper's first order), 40 an epoch with a tail of 8 images. Two rules:

1. In the first 50 iterations every loss agrees to three digits: |ours - peer| / peer < 5e-4.

   Rounding errors grow, however: a 32-layer network fresh from its initialisation is so steep that at
   rate 0.01 two float32 programs, or one and itself in float64, agree to three digits for three or
   four iterations only, at 1e-4 for some thirty. So the first two epochs run at 3e-5, where it takes
   more than 50. Losses of neighbouring batches differ by several per cent, so a wrong order shows at
   once; weight decay is too weak at that rate to show here at all (the golden values of SGD have it).

2. After that the rate is 0.01, the curves part, and their epoch means agree within noise. Noise is
   what PyTorch differs from itself by: it runs again from parameters moved by half a unit in the last
   place. The batches are the same in all runs, so the spread of the batch losses says nothing about
   it: it is shared. With s the standard deviation of an epoch's mean between runs of PyTorch, pooled
   over the epochs behind the warm-up, and m the mean of its n runs,
       |ours - m| < 3 s sqrt(1 + 1 / n)      for every such epoch.
   The same goes for the accuracy on the 1000 test images, whose noise is that of counting,
   sqrt(p (1 - p) / 1000), and that of the runs. It depends on the running statistics as well.

Writes BUILD/curve.json and BUILD/curve.md; exits with 1 when a rule is broken.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST, TOLERANCE = 50, 5e-4
SIGMAS = 3
TEST_IMAGES = 1000


def run(name, command, folder):
    """The lines of one side: (epoch, images, loss) for every iteration, and the test accuracy."""
    print(f"curve: {name}", file=sys.stderr)
    path = folder / f"{name}.txt"
    with path.open("w") as stream:  # line by line: a long run can be watched
        subprocess.run([str(word) for word in command], check=True, stdout=stream)
    *lines, last = path.read_text().splitlines()
    fields = [line.split() for line in lines]
    return {"curve": [(int(f[0]), int(f[2]), float(f[4])) for f in fields],
            "rates": [float(f[3]) for f in fields],
            "accuracy": float(last.split()[1])}


def epoch_mean(curve, epoch):
    """Mean over the images of the epoch."""
    rows = [(n, loss) for e, n, loss in curve if e == epoch]
    return sum(n * loss for n, loss in rows) / sum(n for n, _ in rows)


def compare_first(ours, peer):
    """Rule 1: one row with the worst iteration."""
    differences = [abs(a[2] - b[2]) / abs(b[2])
                   for a, b in zip(ours["curve"][:FIRST], peer["curve"][:FIRST])]
    worst = max(range(len(differences)), key=differences.__getitem__)
    return {"what": f"iterations 1-{FIRST}, worst: {worst + 1}", "ours": ours["curve"][worst][2],
            "peer": peer["curve"][worst][2], "difference": differences[worst],
            "allowed": TOLERANCE, "ok": differences[worst] < TOLERANCE}


def compare_rest(ours, peers, warmup, epochs):
    """Rule 2: one row per epoch behind the warm-up, and one for the accuracy."""
    means = {e: [epoch_mean(p["curve"], e) for p in peers] for e in range(warmup, epochs)}
    spread = math.sqrt(statistics.mean(statistics.variance(m) for m in means.values()))
    widen = math.sqrt(1 + 1 / len(peers))
    rows = []
    for epoch, values in means.items():
        a, b = epoch_mean(ours["curve"], epoch), statistics.mean(values)
        rows.append({"what": f"mean of epoch {epoch + 1}", "ours": a, "peer": b,
                     "difference": abs(a - b), "allowed": SIGMAS * spread * widen})
    accuracies = [p["accuracy"] for p in peers]
    share = statistics.mean(accuracies) / 100
    noise = math.hypot(100 * math.sqrt(share * (1 - share) / TEST_IMAGES),
                       statistics.stdev(accuracies))
    rows.append({"what": "test accuracy, %", "ours": ours["accuracy"], "peer": 100 * share,
                 "difference": abs(ours["accuracy"] - 100 * share),
                 "allowed": SIGMAS * noise * widen})
    return [{**row, "ok": row["difference"] <= row["allowed"]} for row in rows]


def table(rows):
    lines = ["| what | der | PyTorch | difference | allowed | |", "|---|--:|--:|--:|--:|---|"]
    lines += [f"| {r['what']} | {r['ours']:.6g} | {r['peer']:.6g} | {r['difference']:.2g} | "
              f"{r['allowed']:.2g} | {'ok' if r['ok'] else 'DIFFERS'} |" for r in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--peer", required=True, help="python with PyTorch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3, help="of PyTorch, at least 2")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="epochs")
    parser.add_argument("--warmup-lr", type=float, default=3e-5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.runs < 2 or args.epochs <= args.warmup:
        parser.error("two runs or more, and more epochs than the warm-up has")
    folder = args.build / "curve"
    folder.mkdir(parents=True, exist_ok=True)
    common = [args.data, folder]
    for option in ("epochs", "warmup", "warmup_lr", "lr", "seed", "threads"):
        common += ["--" + option.replace("_", "-"), getattr(args, option)]

    ours = run("der", [args.build / "bench" / "der_curve"] + common, folder)
    peers = [run(f"torch{i}", [args.peer, ROOT / "bench" / "curve_torch.py"] + common +
                 ["--jitter", i], folder) for i in range(args.runs)]
    for peer in peers:
        same = [(a[0], a[1]) for a in ours["curve"]] == [(b[0], b[1]) for b in peer["curve"]]
        if not same or not all(map(math.isclose, ours["rates"], peer["rates"])):
            raise SystemExit("curve: the two sides differ in epochs, batches or learning rates")

    rows = [compare_first(ours, peers[0])]
    rows += compare_rest(ours, peers, args.warmup, args.epochs)
    losses = [[loss for _, _, loss in side["curve"]] for side in [ours] + peers]
    (args.build / "curve.json").write_text(json.dumps(
        {"rows": rows, "der": losses[0], "torch": losses[1:]}, indent=1) + "\n")
    (args.build / "curve.md").write_text(table(rows))
    print(table(rows), end="")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
