#!/usr/bin/python3
"""Writes the golden values of tests/golden/data with PyTorch (Debian's 1.13), or checks them.

    tools/gen_golden.py            write tests/golden/data/*.safetensors
    tools/gen_golden.py --check    make them anew in a temporary folder and compare

Everything is calculated in float64 from inputs that are exact in float32, and stored as float32,
so that the files hold the true values and not another float32 program's rounding.
"""
import argparse
import pathlib
import sys
import tempfile

import torch

from golden import correction, der, memory, nets, ops, store, taught

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "data"
MAKERS = {
    "ops": ops.make,
    "blocks": nets.make_blocks,
    "resnet18_cifar": nets.make_resnet18_cifar,
    "resnet18_odd": nets.make_resnet18_odd,
    "resnet32": nets.make_resnet32,
    "resnet18_7x7": nets.make_resnet18_7x7,
    "resnet18_3x3": nets.make_resnet18_3x3,
    "der_step": nets.make_der_step,
    "der_objective": der.make,
    "taught_objective": taught.make,
    "correction": correction.make,
    "memory": memory.make,
}
TOLERANCE = 1e-6  # relative to the largest value of a tensor: float64 sums may change their order


def generate(folder):
    """Writes every file into `folder` and returns how many bytes they take."""
    total = 0
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        path = folder / (name + ".safetensors")
        total += make().write(path)
    return total


def check(folder):
    """Compares what is committed with what this PyTorch calculates; returns the differences."""
    problems = []
    with tempfile.TemporaryDirectory() as fresh:
        generate(pathlib.Path(fresh))
        for name in MAKERS:
            file_name = name + ".safetensors"
            if not (folder / file_name).exists():
                problems.append(f"{file_name} is missing")
                continue
            problems += store.compare(pathlib.Path(fresh) / file_name, folder / file_name,
                                      TOLERANCE)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--folder", type=pathlib.Path, default=DATA)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        problems = check(args.folder)
        print("\n".join(problems) or f"{len(MAKERS)} golden files agree with PyTorch "
              + torch.__version__)
        return 1 if problems else 0
    args.folder.mkdir(parents=True, exist_ok=True)
    print(f"{generate(args.folder)} bytes in {args.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
