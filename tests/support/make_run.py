#!/usr/bin/env python3
"""make_run.py DER OUT: a run folder made by hand, as large as asked for.

Everything in it has the form that `der train` writes (docs/FORMATS.md); the numbers are drawn from a seed. DER is
the program, which is asked for the settings.
"""
import argparse
import json
import os
import random
import struct
import subprocess


def write_safetensors(path, description, tensors):
    header = {"__metadata__": {"der": json.dumps(description, separators=(",", ":"))}}
    data = b""
    for name, dtype, code, values in tensors:
        block = struct.pack(f"<{len(values)}{code}", *values)
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def predict(rng, n_seen, per_class, accuracy):
    """(label, guess, confidence) of every test image."""
    rows = []
    for label in range(n_seen):
        for _ in range(per_class):
            guess = label if rng.random() < accuracy else min(n_seen - 1, int(n_seen * rng.random() ** 2))
            rows.append((label, guess, round(rng.random(), 6)))
    return rows


def count(rows, n_groups, group):
    matrix = [[0] * n_groups for _ in range(n_groups)]
    for label, guess, _ in rows:
        matrix[label // group][guess // group] += 1
    return matrix


def epoch_lines(step, epochs, stage, rng, n_epochs):
    lines = []
    for e in range(1, n_epochs + 1):
        line = {"event": "epoch", "step": step, "stage": stage, "epoch": e, "epochs": n_epochs,
                "lr": 0.1 * (0.1 if e > 0.6 * n_epochs else 1.0), "loss": {"main": 3.0 / e + 0.1 * rng.random()}}
        if stage == "representation":
            line["loss"].update(auxiliary=2.0 / e, sparsity=0.5 / e)
            line.update(kept_params=int(1e6 - 900 * e), lambda_s=0.5, sparsity=min(0.95, 0.1 + 0.8 * e / n_epochs))
        line.update(images_per_second=1000 + rng.random(), seconds=float(e))
        lines.append(line)
    return lines


def make(args):
    rng = random.Random(args.seed)
    group = args.classes // args.steps
    settings = json.loads(subprocess.run(
        [args.der, "presets", "custom", "--json", "--set", f"step_classes={group}", "--set", "network=resnet18-cifar",
         "--set", f"order=seed:{args.seed}"] + [f"--set={s}" for s in args.set], check=True, capture_output=True, text=True).stdout)
    names = args.name + [f"class {k:04d}" for k in range(len(args.name), args.classes)]
    os.makedirs(args.out)
    config = {"format": args.format, "der": "0.1.0", "settings": settings, "data": args.data, "data_kind": "synth",
              "train_images": 100 * args.classes, "test_images": args.tests * args.classes, "data_checksum": "0" * 16,
              "bad_images": "stop", "class_order": list(range(args.classes)), "class_names": names, "device": "cpu",
              "precision": "f32", "deterministic": False, "threads": 2, "onednn": "", "cuda_toolkit": "", "max_steps": 0,
              "measure": "representation"}
    with open(os.path.join(args.out, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    lines, top1, top5, params, groups = [], [], [], [], []
    n_steps = args.steps if args.until is None else args.until
    rows = []
    for t in range(1, n_steps + 1):
        lines += epoch_lines(t, args.epochs, "representation", rng, args.epochs)
        if t > 1:
            lines += epoch_lines(t, args.epochs, "classifier", rng, max(1, args.epochs // 6))
        rows = predict(rng, t * group, args.tests, 0.95 - 0.5 * t / args.steps)
        right = [0] * (t * group)
        for label, guess, _ in rows:
            right[label] += label == guess
        per_class = [100.0 * r / args.tests for r in right]
        groups = [sum(per_class[g * group:(g + 1) * group]) / group for g in range(t)]
        top1.append(sum(per_class) / len(per_class))
        top5.append(min(100.0, top1[-1] + 10))
        params.append(1000003 * t)
        width = [max(1, int(w * (0.2 + 0.6 * rng.random()))) for w in (64, 128, 256, 512) + (64, 64, 128, 128, 256, 256, 512, 512)]
        lines.append({"event": "step", "step": t, "classes": t * group, "new_classes": group, "top1": top1[-1], "top5": top5[-1],
                      "avg_top1": sum(top1) / t, "avg_top5": sum(top5) / t, "forgetting": 3.0 + 0.1 * t, "params": params[-1],
                      "avg_params": sum(params) / t, "params_total": params[-1] + 5120 * t, "groups": groups,
                      "per_class": per_class, "confusion": count(rows, t, group), "widths": {"stream": width[:4], "inner": width[4:]},
                      "classifier_bound": min(100.0, top1[-1] + 3), "representation": [min(100.0, g + 12) for g in groups],
                      "seconds": 100.5 + t, "ms_per_iter": 12.25, "peak_bytes": 2 ** 30 + t})
    if n_steps == args.steps:
        lines.append({"event": "end", "steps": n_steps, "avg_top1": sum(top1) / n_steps, "last_top1": top1[-1],
                      "avg_top5": sum(top5) / n_steps, "last_top5": top5[-1], "avg_params": sum(params) / n_steps,
                      "params": params[-1], "params_total": params[-1] + 5120 * n_steps, "forgetting": 3.0, "bwt": -1.5,
                      "classifier_bound": 60.0, "seconds": 12345.6})
    with open(os.path.join(args.out, "metrics.jsonl"), "w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
        if n_steps < args.steps:
            file.write('{"event": "epoch", "step"')  # a line that is being written
    if n_steps == 0:
        return
    seen = names[:n_steps * group]
    write_safetensors(os.path.join(args.out, "predictions.safetensors"),
                      {"format": 1, "step": n_steps, "classes": seen, "split": "test"},
                      [("samples", "I64", "q", list(range(len(rows)))), ("confidence", "F32", "f", [r[2] for r in rows]),
                       ("labels", "I32", "i", [r[0] for r in rows]), ("guesses", "I32", "i", [r[1] for r in rows])])
    write_safetensors(os.path.join(args.out, "exemplars.safetensors"), {"format": 1, "step": n_steps, "classes": seen},
                      [("counts", "I64", "q", [2] * len(seen)), ("samples", "I64", "q", list(range(2 * len(seen))))])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("der")
    parser.add_argument("out")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--until", type=int, help="stop after so many steps, in the middle of a line")
    parser.add_argument("--epochs", type=int, default=4, help="of a step")
    parser.add_argument("--tests", type=int, default=10, help="test images of a class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", type=int, default=1)
    parser.add_argument("--data", default="nowhere")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--name", action="append", default=[], help="of a class; the others are numbered")
    make(parser.parse_args())


main()
