#!/usr/bin/env python3
"""How many test images a trained model takes for the same class in every precision.

    agreement.py --der PATH/der --data DIR MODEL... [--device cuda] [-- OPTIONS OF der eval]

MODEL is a model file or the folder of a run. Each is tested in f32, TF32 and bf16, and what it takes every
image for is compared with f32: one row of a Markdown table for every model and precision, with the accuracy
and the number of images of which both say the same.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

PRECISIONS = ("f32", "tf32", "bf16")  # the first is what others are compared with


def tensor(path, name):
    """A vector of 32-bit integers of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    entry = json.loads(data[8:8 + size])[name]
    begin, end = entry["data_offsets"]
    return struct.unpack_from(f"<{(end - begin) // 4}i", data, 8 + size + begin)


def guesses(options, model, precision, folder):
    """What every image is, and what it is taken for."""
    file = pathlib.Path(folder) / f"{precision}.safetensors"
    command = [options.der, "eval", model, "--data", options.data, "--device", options.device, "--precision",
               precision, "--predictions", str(file), "--quiet", *options.rest]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"agreement: {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return tensor(file, "labels"), tensor(file, "guesses")


def same(a, b):
    return sum(x == y for x, y in zip(a, b, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--der", default="build/cuda/der")
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    arguments, rest = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1:]
    options = parser.parse_args(arguments)
    options.rest = rest
    print("| model | precision | top-1 % | images | as in f32 | % |")
    print("|---|---|--:|--:|--:|--:|")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            reference = None
            for precision in PRECISIONS:
                labels, found = guesses(options, model, precision, folder)
                reference = reference or found
                n = len(found)
                print(f"| {pathlib.Path(model).name} | {precision} | {100 * same(found, labels) / n:.2f} | {n} | "
                      f"{same(found, reference)} | {100 * same(found, reference) / n:.2f} |", flush=True)


if __name__ == "__main__":
    main()
