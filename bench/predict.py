#!/usr/bin/env python3
"""Measures one prediction with a ten-extractor pruned ResNet-18 beside PyTorch and onnxruntime.

    bench/predict.py --peer PYTHON [--threads N ...] [--rounds N]

The model file is made by `der_bench model`: ten extractors of 0.7 to 1.1 million parameters with uneven
widths, 100 classes, 32x32. Ours goes through the public interface (der_model_load, der_model_predict) from the
bytes of a picture to the best five classes; the peers get the normalised image and stop at the logits. All are
loaded at the same time and take turns, some predictions each, so that a slow moment of the machine hits all; a
time is the median over the rounds of a round's median. All variants of PyTorch take part, but for those that the
first round shows to be out of reach; the fastest counts. Logits must agree.

Start-up is a fresh process each time: loading and the first prediction within der_bench, and `der predict`
with a PNG file from the start of the process to its end.

Fails (exit status 1) when logits differ by 1e-4, a peer is as fast as ours, or start-up takes 0.3 s.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import time
import zlib

from run import ROOT, Side, machine_name

SIDE = 32
PER_TURN = 10  # predictions
WARM_UP = 5
CHANCE = 1.3  # as slow as this beside the fastest, a variant of PyTorch is given up
LOGITS_BOUND, START_BOUND, RATIO_BOUND, RATIO_AIM = 1e-4, 0.3, 1.0, 1.3
TORCH = ("torch-eager", "torch-eager-channels-last", "torch-frozen", "torch-frozen-channels-last")


def make_files(args):
    """The model, and a picture as bytes and as PNG."""
    args.folder.mkdir(parents=True, exist_ok=True)
    files = {name: args.folder / name for name in ("model.safetensors", "image.rgb", "image.png")}
    output = subprocess.run([args.bench, "model", "--file", files["model.safetensors"]], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    pixels = bytes((7 * i + 13 * (i // (3 * SIDE))) % 256 for i in range(3 * SIDE * SIDE))
    files["image.rgb"].write_bytes(pixels)
    files["image.png"].write_bytes(png(pixels))
    return files, json.loads(output)["parameters"]


def png(pixels):
    def chunk(kind, data):
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    rows = b"".join(b"\0" + pixels[i:i + 3 * SIDE] for i in range(0, len(pixels), 3 * SIDE))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def commands(args, files, threads):
    """Every contender: name -> command."""
    inputs = [files["model.safetensors"], files["image.rgb"]]
    ours = [args.bench, "predict", "--file", inputs[0], "--image", inputs[1], "--threads", threads]
    peer = [args.peer, "-W", "ignore", ROOT / "bench" / "predict_peer.py", *inputs, "--threads",
            threads, "--variant"]
    return ours, {name: peer + [name] for name in TORCH + ("onnxruntime",)}


def out_of_reach(answers):
    """Variants of PyTorch that the first round shows not to be its fastest."""
    medians = {name: statistics.median(answers[name][0]["ms"]) for name in TORCH}
    return {name for name in TORCH if medians[name] > CHANCE * min(medians.values())}


def alternate(args, contenders):
    """Answers to "run" of every contender in turns, and its logits."""
    with contextlib.ExitStack() as stack:
        sides = {name: stack.enter_context(Side(command)) for name, command in contenders.items()}
        logits = {name: side.ask("logits")["logits"] for name, side in sides.items()}
        for side in sides.values():
            side.run(WARM_UP)
        answers = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, side in sides.items():
                answers[name].append(side.ask(f"run {PER_TURN}"))
            for name in out_of_reach(answers) & sides.keys():
                del sides[name]
    return answers, logits


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(answers):
    times = [ms for answer in answers for ms in answer["ms"]]
    return {"median": statistics.median(statistics.median(a["ms"]) for a in answers),
            "p95": percentile(times, 0.95),
            "cpu": statistics.median(a["cpu_ms"] for a in answers)}


def prediction_rows(args, files, threads, faults):
    ours, peers = commands(args, files, threads)
    print(f"{threads} threads: {args.rounds} rounds", file=sys.stderr)
    answers, logits = alternate(args, {"der": ours, **peers})
    numbers = {name: summary(given) for name, given in answers.items()}
    complete = [name for name in TORCH if len(answers[name]) == args.rounds]
    torch = min(complete, key=lambda name: numbers[name]["median"])
    rows = []
    for name, row in numbers.items():
        difference = max(abs(a - b) for a, b in zip(logits[name], logits["der"], strict=True))
        if not difference < LOGITS_BOUND:
            faults.append(f"{name}: logits differ from der's by {difference:g}")
        if name in TORCH and name != torch:
            print(f"    {name}: {row['median']:.1f} ms", file=sys.stderr)
            continue
        ratio = row["median"] / numbers["der"]["median"]
        rows.append([name, str(threads), f"{row['median']:.1f}", f"{row['p95']:.1f}",
                     f"{row['cpu']:.1f}", f"{ratio:.2f}", f"{difference:.1e}"])
        if name != "der" and not ratio > RATIO_BOUND:
            faults.append(f"{name}, {threads} threads: der is not faster, ratio {ratio:.2f}")
    return rows


def cpu_seconds():
    """Processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed_process(command):
    """Seconds and processor seconds from start to end, and the output."""
    cpu, since = cpu_seconds(), time.perf_counter()
    output = subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, text=True).stdout
    return time.perf_counter() - since, cpu_seconds() - cpu, output


def start_rows(args, files, threads, faults):
    """Load and first prediction in fresh processes."""
    ours, _ = commands(args, files, threads)
    program = [args.build / "der", "predict", files["model.safetensors"], files["image.png"],
               "--threads", threads]
    starts = {"load and first prediction": [], "`der predict`, whole process": []}
    cpu = {name: [] for name in starts}
    for _ in range(args.rounds):
        _, spent, output = timed_process(ours)
        ready = json.loads(output)
        starts["load and first prediction"].append(1e-3 * (ready["load_ms"] + ready["first_ms"]))
        cpu["load and first prediction"].append(spent)
        seconds, spent, _ = timed_process(program)
        starts["`der predict`, whole process"].append(seconds)
        cpu["`der predict`, whole process"].append(spent)
    rows = []
    for name, seconds in starts.items():
        median = statistics.median(seconds)
        rows.append([name, str(threads), f"{median:.3f}", f"{percentile(seconds, 0.95):.3f}",
                     f"{statistics.median(cpu[name]):.3f}"])
        if not median < START_BOUND:
            faults.append(f"{name}, {threads} threads: {median:.3f} s")
    return rows


def table(head, rows):
    align = "|---|" + "--:|" * (len(head) - 1)
    return "\n".join(["| " + " | ".join(head) + " |", align]
                     + ["| " + " | ".join(row) + " |" for row in rows])


def versions(peer):
    script = "import torch, onnxruntime; print(torch.__version__, onnxruntime.__version__)"
    torch, onnx = subprocess.run([peer, "-c", script], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout.split()
    return f"PyTorch {torch}, onnxruntime {onnx}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, help="python with torch, onnx and onnxruntime")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, nargs="+",
                        default=[n for n in (1, 2) if n <= len(os.sched_getaffinity(0))])
    parser.add_argument("--rounds", type=int, default=15, help="turns of every contender")
    args = parser.parse_args()
    args.bench = args.build / "bench" / "der_bench"
    args.folder = args.build / "predict"
    if os.getloadavg()[0] > 0.5:
        print(f"bench: the machine is busy (load {os.getloadavg()[0]:.1f}); numbers will be poor",
              file=sys.stderr)
    files, parameters = make_files(args)
    faults = []
    starts = [row for n in args.threads for row in start_rows(args, files, n, faults)]
    predictions = [row for n in args.threads for row in prediction_rows(args, files, n, faults)]
    print(f"{machine_name()}; {versions(args.peer)}; {args.rounds} rounds of {PER_TURN}; "
          f"{len(parameters)} extractors, {sum(parameters):,} parameters\n")
    print(table(["one prediction", "threads", "median ms", "p95 ms", "processor ms",
                 f"ratio (above {RATIO_BOUND:g}; aim {RATIO_AIM:g})", "largest difference of logits"],
                predictions))
    print()
    print(table([f"start-up (below {START_BOUND:g} s)", "threads", "median s", "p95 s",
                 "processor s"], starts))
    for fault in faults:
        print("FAILED " + fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
