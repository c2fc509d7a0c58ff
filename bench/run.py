#!/usr/bin/env python3
"""Measures der against PyTorch on this machine, alternating the two, and reports medians.

    bench/run.py --peer PYTHON [--markdown] [--only NAME ...] [--threads N] [--rounds N]

Both sides stay loaded and take turns (ours, peer, ours, ...), so that a slow moment of the machine
hits both. The peer is the fastest of its variants: eager or frozen TorchScript, NCHW or
channels_last, both optimiser implementations. A ratio is peer / ours: above 1, ours is better.
Writes build/bench.json, a list of {name, unit, ours, peer, ratio}.
"""
import argparse
import contextlib
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {"resnet18": "resnet18-cifar", "resnet32": "resnet32"}
BATCH = 128
LOADER_BATCH = 64  # of 224x224
MIN_SECONDS = 1.0  # of one measurement: long against scheduling, short against a slow moment
STEPS = (5, 10)  # of the rows der_step and der_overhead
COMPILE_LIMITS = {10: 2.0, 50: 10.0}
# What is to be reached, by the start of a row's name; ratios at least, the rest at most.
TARGETS = {"train": "1.3", "infer": "1.5", "peak_memory": "1", "reorders": "0", "loader": "0.9",
           "augment_share": "3 %", "der_overhead": "10 %",
           **{f"compile_{count}": f"{limit:g} s" for count, limit in COMPILE_LIMITS.items()}}


class Side:
    """A process that obeys the line protocol of bench_net.c."""

    def __init__(self, command, env=None):
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})})
        self.log = []  # lines that are no answer: oneDNN's verbose log
        self.ready = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
            self.log.append(line)
        raise RuntimeError("ended without an answer: " + " ".join(self.command))

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def run(self, count):
        """Milliseconds per iteration."""
        return self.ask(f"run {count}")["ms"]

    def memory(self):
        return self.ask("memory")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # the end of its input is as good as "quit"
        self.process.stdout.close()
        self.process.wait()


def iterations_for(side):
    """How many iterations make one measurement long enough; warms the side up as well."""
    side.run(1)
    return max(1, round(1e3 * MIN_SECONDS / side.run(1)))


def ours_command(binary, model, infer, threads):
    return [binary, "net", "--model", model, "--batch", BATCH, "--threads", threads] + (
        ["--infer"] if infer else [])


def peer_commands(args, model, infer):
    """Every variant of the peer: name -> command."""
    base = [args.peer, ROOT / "bench" / "peer_torch.py", "--model", model, "--batch", BATCH,
            "--threads", args.threads]
    formats = ("contiguous", "channels_last")
    if infer:
        return {f"{variant}, {layout}": base + ["--infer", "--variant", variant, "--format", layout]
                for variant, layout in itertools.product(("eager", "frozen"), formats)}
    return {f"eager, {layout}, {optimizer}": base + ["--format", layout, "--optimizer", optimizer]
            for layout, optimizer in itertools.product(formats, ("fused", "foreach"))}


def peer_step_commands(args, model, t):
    """Every variant of the peer's step t."""
    base = [args.peer, ROOT / "bench" / "peer_torch.py", "--model", model, "--batch", BATCH,
            "--threads", args.threads, "--extractors", t]
    return {f"old ones {variant}, {layout}, {optimizer}":
            base + ["--variant", variant, "--format", layout, "--optimizer", optimizer]
            for variant, layout, optimizer in itertools.product(
                ("eager", "frozen"), ("contiguous", "channels_last"), ("fused", "foreach"))}


def best_peer(args, commands):
    """The variant with the fastest of a few measurements."""
    best = None
    for name, command in commands.items():
        try:
            with Side(command) as side:
                count = iterations_for(side)
                fastest = min(side.run(count) for _ in range(args.trials))
        except (RuntimeError, BrokenPipeError):
            continue  # this PyTorch lacks the variant
        print(f"    {name}: {fastest:.1f} ms", file=sys.stderr)
        if best is None or fastest < best[0]:
            best = fastest, name, command
    if best is None:
        raise RuntimeError(f"no variant of the peer runs with {args.peer}")
    return best[1], best[2]


def row(name, unit, ours, peer=None, note=""):
    """One row; smaller is better for every unit used here."""
    return {"name": name, "unit": unit, "ours": ours, "peer": peer,
            "ratio": peer / ours if peer is not None and ours else None, "note": note}


def alternate(args, ours_commands, peer_command):
    """Times of every side in args.rounds turns, and their memory."""
    commands = {**ours_commands, **({"peer": peer_command} if peer_command else {})}
    with contextlib.ExitStack() as stack:
        sides = {name: stack.enter_context(Side(command)) for name, command in commands.items()}
        counts = {name: iterations_for(side) for name, side in sides.items()}
        times = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, side in sides.items():
                times[name].append(side.run(counts[name]))
        memory = {name: side.memory() for name, side in sides.items()}
    return times, memory


def network_rows(args, kind, short):
    """Time and memory of one network, training or inference, for every build of ours."""
    infer = kind == "infer"
    name = f"{kind}_{short}"
    print(f"{name}: looking for the fastest peer", file=sys.stderr)
    variant, command = best_peer(args, peer_commands(args, MODELS[short], infer)) if args.peer else ("", None)
    print(f"{name}: {args.rounds} rounds against {variant or 'nobody'}", file=sys.stderr)
    builds = {suffix: ours_command(binary, MODELS[short], infer, args.threads)
              for suffix, binary in args.binaries.items()}
    times, memory = alternate(args, builds, command)
    medians = {key: statistics.median(values) for key, values in times.items()}
    rows = []
    for suffix in builds:
        rows.append(row(name + suffix, "ms", medians[suffix], medians.get("peer"), variant))
        peaks = [memory[key]["peak_mib"] if key in memory else None for key in (suffix, "peer")]
        rows.append(row(f"peak_memory_{name}{suffix}", "MiB", *peaks, "whole process"))
        own = [memory[key]["peak_mib"] - memory[key]["start_mib"] if key in memory else None
               for key in (suffix, "peer")]
        rows.append(row(f"working_memory_{name}{suffix}", "MiB", *own,
                        "peak less what the loaded program takes before it starts"))
    return rows


def step_rows(args, short, t):
    """One iteration of DER at step t beside the same in PyTorch, and what it costs above its two parts:
    training the new extractor, and the old ones folded. All take turns; the median of the rounds'
    overheads counts."""
    name = f"der_step_{short}_t{t}"
    print(f"{name}: looking for the fastest peer", file=sys.stderr)
    variant, command = (best_peer(args, peer_step_commands(args, MODELS[short], t))
                        if args.peer else ("", None))
    print(f"{name}: {args.rounds} rounds against {variant or 'nobody'}", file=sys.stderr)
    parts = {suffix + part: [binary, "der", "--model", MODELS[short], "--batch", BATCH, "--threads",
                             args.threads, "--extractors", t, "--masks", "--part", part]
             for suffix, binary in args.binaries.items() for part in ("step", "train", "frozen")}
    times, _ = alternate(args, parts, command)
    medians = {key: statistics.median(values) for key, values in times.items()}
    rows = []
    for suffix in args.binaries:
        step, train, frozen = (times[suffix + part] for part in ("step", "train", "frozen"))
        overhead = statistics.median(100 * (s / (a + b) - 1) for s, a, b in zip(step, train, frozen))
        rows.append(row(name + suffix, "ms", medians[suffix + "step"], medians.get("peer"), variant))
        rows.append(row(f"der_overhead_{short}_t{t}{suffix}", "%", overhead,
                        note=f"above {medians[suffix + 'train']:.0f} ms of training and "
                             f"{medians[suffix + 'frozen']:.0f} ms of {t - 1} frozen extractors"))
    return rows


# ---- reorders ------------------------------------------------------------------------------


def reorder_shapes(log):
    """Shapes of the reorders that a verbose log shows."""
    shapes = []
    for line in log:
        fields = line.strip().split(",")
        if "exec" not in fields or "reorder" not in fields:
            continue
        shape = next((f for f in reversed(fields) if re.fullmatch(r"\d+(x\d+)+", f)), None)
        if shape:
            shapes.append(tuple(map(int, shape.split("x"))))
    return shapes


def is_activation(shape):
    """Images have the batch in front; a kernel is 1x1, 3x3 or 7x7, an image here 4x4 or more."""
    return len(shape) == 4 and shape[0] == BATCH and shape[2] not in (1, 3, 7)


def reorder_rows(args, kind, short):
    """Layout changes of one iteration, from oneDNN's own log. The picture itself has to change
    its layout on the way in and does not count."""
    rows = []
    for suffix, binary in args.binaries.items():
        verbose = {"DNNL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
        with Side(ours_command(binary, MODELS[short], kind == "infer", args.threads),
                  verbose) as side:
            side.run(1)
            seen = len(side.log)
            side.run(1)
            log = side.log[seen:]
            planned = side.ready["reorders_activation"]
        shapes = reorder_shapes(log)
        inside = [s for s in shapes if is_activation(s) and s[1] != 3]
        weights = [s for s in shapes if not is_activation(s)]
        n_primitives = sum("exec" in line.split(",") for line in log)
        note = (f"{len(weights)} of weights, {n_primitives} primitives logged, "
                f"the program itself counts {planned}")
        rows.append(row(f"reorders_{kind}_{short}{suffix}", "per iteration", len(inside),
                        note=note))
    return rows


def compile_rows(args):
    rows = []
    for suffix, binary in args.binaries.items():
        for count in COMPILE_LIMITS:
            command = [binary, "step", "--extractors", count, "--batch", BATCH, "--threads",
                       args.threads]
            output = subprocess.run([str(word) for word in command], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout
            answer = json.loads(output)
            rows.append(row(f"compile_{count}{suffix}", "s", answer["seconds"],
                            note=f"{answer['programs']} programs"))
    return rows


def loader_rows(args):
    """Training images a second of the loader against bare libjpeg-turbo; both take turns within
    the one program. Larger is better here, so the ratio is ours / peer."""
    command = [args.binaries[""], "loader", "--batch", LOADER_BATCH, "--threads", args.threads,
               "--rounds", args.rounds]
    output = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                            text=True).stdout
    answer = json.loads(output)
    return [{"name": "loader_jpeg", "unit": "images/s", "ours": answer["ours"],
             "peer": answer["peer"], "ratio": answer["ratio"],
             "note": "libjpeg-turbo decoding the same files whole"}]


def augment_rows(args):
    """Making a batch of CIFAR images on one thread, as a share of the step that trains on it."""
    rows = []
    for suffix, binary in args.binaries.items():
        command = [binary, "augment", "--model", MODELS["resnet32"], "--batch", BATCH,
                   "--threads", args.threads]
        output = subprocess.run([str(word) for word in command], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        answer = json.loads(output)
        share = 100 * answer["augment_ms"] / answer["step_ms"]
        note = f"{answer['augment_ms']:.2f} ms beside {answer['step_ms']:.1f} ms of resnet32"
        rows.append(row(f"augment_share{suffix}", "%", share, note=note))
    return rows


# ---- report --------------------------------------------------------------------------------


def target_of(entry):
    if entry["name"].endswith("_dnnl3") and entry["name"].startswith(("train", "infer")):
        return "1"
    return next((value for key, value in TARGETS.items() if entry["name"].startswith(key)), "")


def number(value):
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def table(rows, markdown):
    head = ["name", "unit", "ours", "peer", "ratio", "to reach", "note"]
    lines = [[r["name"], r["unit"], number(r["ours"]), number(r["peer"]),
              "-" if r["ratio"] is None else f"{r['ratio']:.2f}", target_of(r), r["note"]]
             for r in rows]
    if markdown:
        text = ["| " + " | ".join(head) + " |", "|---|---|--:|--:|--:|--:|---|"]
        return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines])
    widths = [max(len(line[i]) for line in [head] + lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [head] + lines)


def machine_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def machine(args):
    """What the numbers belong to."""
    peer = ""
    if args.peer:
        peer = "; PyTorch " + subprocess.run(
            [args.peer, "-c", "import torch; print(torch.__version__)"], check=True, text=True,
            stdout=subprocess.PIPE).stdout.strip()
    return f"{machine_name()}, {args.threads} threads, batch {BATCH}, 32x32, {args.rounds} rounds{peer}"


def collect(args):
    """All rows whose names were asked for."""
    wanted = [(name, maker) for name, maker in itertools.chain(
        ((f"{kind}_{short}", lambda k=kind, s=short: network_rows(args, k, s))
         for kind in ("train", "infer") for short in MODELS),
        ((f"reorders_{kind}_{short}", lambda k=kind, s=short: reorder_rows(args, k, s))
         for kind in ("train", "infer") for short in MODELS),
        ((f"der_step_{short}_t{t}", lambda s=short, t=t: step_rows(args, s, t))
         for short in MODELS for t in STEPS),
        [("compile", lambda: compile_rows(args)), ("loader", lambda: loader_rows(args)),
         ("augment_share", lambda: augment_rows(args))])
        if not args.only or name in args.only]
    if not wanted:
        raise SystemExit("nothing to measure: --only names nothing that exists")
    return [entry for _, maker in wanted for entry in maker()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="python with PyTorch; left out: only ours")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9, help="turns of every side")
    parser.add_argument("--trials", type=int, default=3, help="measurements to choose a variant")
    parser.add_argument("--only", nargs="+", metavar="NAME",
                        help="train_resnet18, reorders_train_resnet18, der_step_resnet32_t5, compile...")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--output", type=pathlib.Path, help="default: BUILD/bench.json")
    args = parser.parse_args()
    args.binaries = {"": args.build / "bench" / "der_bench"}
    other = args.build / "dnnl3" / "bench" / "der_bench"
    if other.exists():
        args.binaries["_dnnl3"] = other
    if os.getloadavg()[0] > 0.5:
        print(f"bench: the machine is busy (load {os.getloadavg()[0]:.1f}); numbers will be poor",
              file=sys.stderr)
    rows = collect(args)
    output = args.output or args.build / "bench.json"
    fields = ("name", "unit", "ours", "peer", "ratio")
    output.write_text(json.dumps([{key: r[key] for key in fields} for r in rows], indent=1) + "\n")
    print(machine(args) + "\n")
    print(table(rows, args.markdown))


if __name__ == "__main__":
    main()
