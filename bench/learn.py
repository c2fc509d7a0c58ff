#!/usr/bin/python3
"""Measures lessons of `der learn`: processor seconds and accuracy on pictures that were not learnt from.

    bench/learn.py [--case NAME ...] [--try 'FLAG=VALUE ...' ...] [--lessons N] [--seeds N] [--threads N]

A case is a set of pictures: photo-like JPEG files of 64 to 640 pixels (tests/support/make_photos.py) or images of
Fashion-MNIST as PNG files, a few to learn from and as many again or more to test with. A try is the flags of
`der learn` without their dashes; an empty one stands for the defaults. With --lessons the classes are learnt in so many
lessons, one behind the other, and accuracy is that on all of them after the last. Of every case and try a row of a table is
printed, averages over the seeds. Processor time is counted because it does not hang on what else the machine does.
"""
import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = ("apple", "book", "tent", "ring", "cross", "fence", "star", "stairs", "window", "bottle")
FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
TESTED = 40  # pictures of a class
CASES = {  # what, classes, pictures of each
    "photos-60": ("photos", 3, 20),
    "photos-300": ("photos", 5, 60),
    "photos-1000": ("photos", 10, 100),
    "fashion-60": ("fashion", 3, 20),
    "fashion-1000": ("fashion", 10, 100),
}


def make_photos(folder, n_classes, n_pictures):
    for part, first, count in (("train", 0, n_pictures), ("val", 500, TESTED)):
        subprocess.run(["/usr/bin/python3", ROOT / "tests/support/make_photos.py", "--sides", "64", "640",
                        folder / part, str(first), str(count), *SHAPES[:n_classes]], check=True)


def read_idx(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


def make_fashion(folder, n_classes, n_pictures, source):
    for part, stem, count in (("train", "train", n_pictures), ("val", "t10k", TESTED)):
        images = read_idx(source / f"{stem}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        labels = read_idx(source / f"{stem}-labels-idx1-ubyte.gz", 8)
        for label, name in enumerate(FASHION[:n_classes]):
            (folder / part / name).mkdir(parents=True)
            for i, image in enumerate(images[labels == label][:count]):
                Image.fromarray(image).save(folder / part / name / f"{i:04d}.png")


def make_case(args, name):
    """The folder of a case, made where it is not there."""
    what, n_classes, n_pictures = CASES[name]
    folder = args.folder / name
    if not folder.exists():
        making = args.folder / f"{name}.new"
        subprocess.run(["rm", "-rf", making], check=True)
        making.mkdir(parents=True)
        if what == "photos":
            make_photos(making, n_classes, n_pictures)
        else:
            make_fashion(making, n_classes, n_pictures, args.fashion)
        making.rename(folder)
    return folder


def lessons(args, folder, flags, seed):
    """Processor seconds of all, and accuracy after the last."""
    model = args.folder / f"{os.getpid()}.safetensors"
    classes = args.folder / f"{os.getpid()}.txt"
    command = [args.der, "learn", model, "--new", folder, "--class-list", classes, "--threads", str(args.threads),
               "--seed", str(seed), "--json", "--quiet", *flags]
    before = os.times()
    for part in numpy.array_split(sorted(path.name for path in (folder / "train").iterdir()), args.lessons):
        classes.write_text("\n".join(part) + "\n")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            break
    after = os.times()
    for left in args.folder.glob(f"{os.getpid()}.*"):
        left.unlink()
    if done.returncode:
        return None, done.stderr.strip()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, json.loads(done.stdout)["all_after"]


def row(args, name, text):
    folder = make_case(args, name)
    flags = [part for word in text.split() for part in ("--" + word).split("=", 1)]
    results = [lessons(args, folder, flags, seed) for seed in range(1, args.seeds + 1)]
    failed = [why for used, why in results if used is None]
    if failed:
        return f"| {name} | {text or 'defaults'} | - | {failed[0]} |"
    accuracies = [accuracy for _, accuracy in results]
    return "| {} | {} | {:.1f} | {:.1f} ({}) |".format(
        name, text or "defaults", statistics.mean(used for used, _ in results), statistics.mean(accuracies),
        ", ".join(f"{a:.1f}" for a in accuracies))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--try", nargs="+", dest="tries", default=[""], metavar="'FLAG=VALUE ...'")
    parser.add_argument("--lessons", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--der", default=ROOT / "build" / "der")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "learn")
    parser.add_argument("--fashion", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()
    print("| case | flags | processor s | top-1 % (by seed) |\n|---|---|--:|---|")
    for name in args.case:
        for text in args.tries:
            print(row(args, name, text), flush=True)


if __name__ == "__main__":
    sys.exit(main())
