#!/usr/bin/env python3
"""Compares the loss curve of der with PyTorch's: same network, data, order and augmentation.

    bench/curve.py --peer PYTHON DATA [--runs N] [--epochs N] [--threads N] [--jobs N] [--reuse] ...

Both start from the parameters that der_curve has drawn, and see the same batches of ten classes of
CIFAR-100 (the first of the paper's first order), 40 an epoch with a tail of 8 images. That is done
--runs times, each time from parameters moved by half a unit in the last place. Four rules:

1. In the first 50 iterations of every run every loss agrees to three digits:
   |ours - peer| / peer < 5e-4.

   Rounding errors grow, however: a 32-layer network fresh from its initialisation is so steep that at
   rate 0.01 two float32 programs, or one and itself in float64, agree to three digits for three or
   four iterations only, at 1e-4 for some thirty. So the first two epochs run at 3e-5, where it takes
   more than 50. Losses of neighbouring batches differ by several per cent, so a wrong order shows at
   once.

2. At rate 0.01, after 1 and after 5 iterations, what has been learnt is as near to PyTorch in float64 as
   PyTorch in float32 is. That is asked twice: from the very start, and from where the first run of der
   ended, a network that has learnt something and is less steep. For convolutions, gamma and beta, classifier, running
   means and running variances each: with d the distance from the float64 result over the way gone since
   the start,
       d(ours) < 3 d(peer).
   Both are single draws of rounding errors of the same size, hence not 1. A wrong term is far off: tried
   on purpose from the start, d(ours) was 300 times d(peer) without weight decay, 60 times with 4e-4 for 5e-4 (both in the
   classifier), 380 times with the biased variance in the running one, 22 times with momentum 0.85.

3. After the warm-up the rate is 0.01, the curves part, and the means of each epoch agree within noise:
   that of the runs, which differ in rounding alone. With n runs a side, means a, b and standard
   deviations s, r between the runs of der and PyTorch,
       |a - b| < 3 sqrt((s^2 + r^2) / n),
   three standard errors of the difference. A noisy comparison must not pass for being noisy: where that
   bound is more than 10 % of b, the rule is broken too, and more runs are needed. The batches are the same
   in all runs, so the spread of the batch losses says nothing and is not used. The same bound, without
   the 10 %, goes for the accuracy on the 1000 test images, which at such a rate hangs on running
   statistics that are still on the move.

4. The network that der ends with has the accuracy that der says, computed by PyTorch: up to 3 images
   of 1000 may lie so near the border between two classes that rounding decides.

--reuse takes runs that are already complete in BUILD/curve. Writes BUILD/curve.json and BUILD/curve.md;
exits with 1 when a rule is broken.
"""
import argparse
import array
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST, TOLERANCE = 50, 5e-4
SHORT, NEARNESS = (1, 5), 3.0
ERRORS, RESOLUTION = 3.0, 0.1
BORDER_CASES = 0.3  # per cent of the test images


# ---- running -------------------------------------------------------------------------------------


class Runner:
    def __init__(self, args):
        self.args, self.folder = args, args.build / "curve"

    def command(self, side, folder, extra):
        """Of "der", "torch" or "torch64"."""
        words = [self.args.build / "bench" / "der_curve"]
        if side != "der":
            words = [self.args.peer, ROOT / "bench" / "curve_torch.py"]
        words += [self.args.data, folder]
        options = {name: getattr(self.args, name)
                   for name in ("epochs", "warmup", "warmup_lr", "lr", "seed", "threads")}
        for name, value in {**options, **extra}.items():
            words += ["--" + name.replace("_", "-"), value]
        if side == "torch64":
            words.append("--double")
        return [str(word) for word in words]

    def run(self, side, name, extra):
        """The lines of one side: (epoch, images, loss) for every iteration, and accuracies."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{side}.txt"
        last = "test " if side == "der" else "test_der "
        complete = path.exists() and path.read_text().splitlines()[-1:]
        if not (self.args.reuse and complete and complete[0].startswith(last)):
            print(f"curve: {side}, {name}", file=sys.stderr)
            with path.open("w") as stream:  # line by line: a long run can be watched
                subprocess.run(self.command(side, folder, extra), check=True, stdout=stream)
        fields = [line.split() for line in path.read_text().splitlines()]
        rows = [f for f in fields if not f[0].startswith("test")]
        return {"curve": [(int(f[0]), int(f[2]), float(f[4])) for f in rows],
                "rates": [float(f[3]) for f in rows],
                **{f[0]: float(f[1]) for f in fields if f[0].startswith("test")}}

    def pair(self, number):
        """Both sides from start `number`."""
        name = f"start{number}"
        ours = self.run("der", name, {"jitter": number})
        peer = self.run("torch", name, {})
        same = [row[:2] for row in ours["curve"]] == [row[:2] for row in peer["curve"]]
        if not same or not all(map(math.isclose, ours["rates"], peer["rates"])):
            raise SystemExit("curve: the two sides differ in epochs, batches or learning rates")
        return ours, peer

    def short(self, iterations, start=None):
        """Rule 2: what was there before and after a few iterations, by side. `start` is a file of
        parameters; None: those that der draws."""
        states, prefix = {}, f"{'trained' if start else 'fresh'}{iterations}"
        for side in ("der", "torch", "torch64"):
            name = f"{prefix}-{side}"
            extra = {"warmup": 0, "epochs": 1, "iterations": iterations}
            if side != "der":  # they read what der has started from
                shutil.copytree(self.folder / f"{prefix}-der", self.folder / name, dirs_exist_ok=True)
            elif start:
                extra["start"] = start
            self.run(side, name, extra)
            final = "final" if side == "der" else "torch-final"
            states[side] = read_state(self.folder / name, final)
        states["start"] = read_state(self.folder / f"{prefix}-der", "init")
        return states


def read_state(folder, name):
    """Values by parameter."""
    values = array.array("f", (folder / f"{name}.bin").read_bytes())
    if sys.byteorder != "little":
        values.byteswap()
    state, at = {}, 0
    for line in (folder / "init.txt").read_text().splitlines()[1:]:
        key, *shape = line.split()
        n = math.prod(map(int, shape))
        state[key] = values[at:at + n]
        at += n
    return state


# ---- the rules -----------------------------------------------------------------------------------


def row(what, ours, peer, difference, allowed, ok=True):
    return {"what": what, "ours": ours, "peer": peer, "difference": difference, "allowed": allowed,
            "ok": bool(ok and difference <= allowed)}


def compare_first(pairs):
    """Rule 1: one row with the worst iteration of all runs."""
    differences = [(abs(a[2] - b[2]) / abs(b[2]), number, i) for number, (ours, peer) in enumerate(pairs)
                   for i, (a, b) in enumerate(zip(ours["curve"][:FIRST], peer["curve"][:FIRST]))]
    worst, number, i = max(differences)
    ours, peer = (side["curve"][i][2] for side in pairs[number])
    return row(f"iterations 1-{FIRST} of {len(pairs)} runs, worst: {i + 1} of run {number + 1}",
               ours, peer, worst, TOLERANCE)


def kind_of(name):
    if "running" in name:
        return "running means" if name.endswith("mean") else "running variances"
    if "classifier" in name:
        return "classifier"
    is_norm = ".bn" in name or name.startswith("bn") or "downsample.1" in name
    return "gamma and beta" if is_norm else "convolutions"


def distance(a, b, keys):
    return math.sqrt(sum((x - y) ** 2 for key in keys for x, y in zip(a[key], b[key])))


def compare_short(what, states):
    """Rule 2: one row per kind of parameter."""
    rows = []
    for kind in dict.fromkeys(map(kind_of, states["start"])):
        keys = [key for key in states["start"] if kind_of(key) == kind]
        way = distance(states["torch64"], states["start"], keys)
        ours, peer = (distance(states[side], states["torch64"], keys) / way
                      for side in ("der", "torch"))
        rows.append(row(f"distance from float64, {what}: {kind}", ours, peer, ours, NEARNESS * peer))
    return rows


def epoch_mean(curve, epoch):
    """Mean over the images of the epoch."""
    rows = [(n, loss) for e, n, loss in curve if e == epoch]
    return sum(n * loss for n, loss in rows) / sum(n for n, _ in rows)


def compare_samples(what, ours, peer, resolution):
    a, b = statistics.mean(ours), statistics.mean(peer)
    s, r = statistics.stdev(ours), statistics.stdev(peer)
    allowed = ERRORS * math.sqrt((s * s + r * r) / len(ours))
    result = row(what, a, b, abs(a - b), allowed, allowed <= resolution * abs(b))
    return {**result, "ours_std": s, "peer_std": r}


def compare_rest(pairs, warmup, epochs):
    """Rule 3: one row per epoch behind the warm-up, and one for the accuracy."""
    rows = []
    for epoch in range(warmup, epochs):
        ours, peer = ([epoch_mean(pair[side]["curve"], epoch) for pair in pairs] for side in (0, 1))
        rows.append(compare_samples(f"mean of epoch {epoch + 1}", ours, peer, RESOLUTION))
    ours, peer = ([pair[side]["test"] for pair in pairs] for side in (0, 1))
    return rows + [compare_samples("test accuracy, %", ours, peer, math.inf)]


def compare_tests(pairs):
    """Rule 4: one row with the worst run."""
    ours, peer = max(((pair[0]["test"], pair[1]["test_der"]) for pair in pairs),
                     key=lambda two: abs(two[0] - two[1]))
    return row("accuracy of der's network, tested by both, worst run, %", ours, peer,
               abs(ours - peer), BORDER_CASES + 1e-9)


def table(rows):
    def value(r, side):
        spread = f" ± {r[side + '_std']:.2g}" if side + "_std" in r else ""
        return f"{r[side]:.4g}{spread}"

    lines = ["| what | der | PyTorch | difference | allowed | |", "|---|--:|--:|--:|--:|---|"]
    lines += [f"| {r['what']} | {value(r, 'ours')} | {value(r, 'peer')} | {r['difference']:.2g} | "
              f"{r['allowed']:.2g} | {'ok' if r['ok'] else 'DIFFERS'} |" for r in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--peer", required=True, help="python with PyTorch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--runs", type=int, default=8, help="of each side, at least 4")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of a run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--reuse", action="store_true", help="complete runs of an earlier call")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="epochs")
    parser.add_argument("--warmup-lr", type=float, default=3e-5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.runs < 4 or args.epochs <= args.warmup:
        parser.error("four runs or more, and more epochs than the warm-up has")

    runner = Runner(args)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pairs = list(pool.map(runner.pair, range(args.runs)))
    rows = [compare_first(pairs)]
    for what, start in (("fresh", None), ("trained", runner.folder / "start0" / "final.bin")):
        for n in SHORT:
            rows += compare_short(f"{what}, {n} iteration{'s' * (n > 1)}", runner.short(n, start))
    rows += [*compare_rest(pairs, args.warmup, args.epochs), compare_tests(pairs)]
    losses = [[[loss for _, _, loss in pair[side]["curve"]] for pair in pairs] for side in (0, 1)]
    (args.build / "curve.json").write_text(json.dumps(
        {"rows": rows, "der": losses[0], "torch": losses[1]}, indent=1) + "\n")
    (args.build / "curve.md").write_text(table(rows))
    print(table(rows), end="")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
