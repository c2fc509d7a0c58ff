#!/usr/bin/env python3
"""Writes the safetensors files that tests compare with: tests/data/fixtures/safetensors.

The package `safetensors` (Hugging Face) makes them; a virtual environment beside Debian's numpy and torch will do:

    python3 -m venv --system-site-packages build/safetensors-venv
    build/safetensors-venv/bin/pip install safetensors
    build/safetensors-venv/bin/python tools/gen_safetensors_fixtures.py

Usage: tools/gen_safetensors_fixtures.py [FOLDER]
"""
import os
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

TOOLS = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(TOOLS, "..", "tests", "data", "fixtures", "safetensors")
ROOT = sys.argv[1] if len(sys.argv) > 1 else FIXTURES


def save(name, tensors, metadata=None):
    save_file(tensors, os.path.join(ROOT, name), metadata)


def main():
    os.makedirs(ROOT, exist_ok=True)
    # A model in small: float32 only, and a metadata text that needs every kind of escape.
    text = '{"classes":["caf\u00e9","a \\"b\\" \\\\ /"],"controls":"\t\r\n\b\f\x01\x1f\x7f"}'
    weights = np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3) / 8 - 3
    save("model.safetensors", {
        "classifier.weight": np.array([[0.5, -0.25], [1e-30, 3.0e38], [-0.0, 1.0]], np.float32),
        "extractors.0.bn1.running_var": np.array([1.0, 2.0], np.float32),
        "extractors.0.conv1.weight": weights,
    }, {"der": text})
    # Every type that is read and written, a tensor without elements and one without dimensions.
    save("types.safetensors", {
        "bytes": np.array([0, 1, 255], np.uint8),
        "doubles": np.array([[1 / 3, -2.0 ** 1000]], np.float64),
        "empty": np.zeros((0, 4), np.float32),
        "floats": np.array([1.5], np.float32),
        "ints": np.array([[-2 ** 31], [2 ** 31 - 1]], np.int32),
        "longs": np.array([-2 ** 63, 2 ** 63 - 1], np.int64),
        "scalar": np.array(7, np.int64),
    })
    # Floats of every width that other programs store weights in.
    numbers = torch.tensor([1.0, -2.5, 65504.0, 2.0 ** -24, -0.0, 1 / 3, 2.0 ** -14, -1000.0])
    save_torch({
        "bf16": numbers.bfloat16(),
        "f16": numbers.half(),
        "f32": numbers,
        "f64": numbers.double(),
        "i32": torch.tensor([1], dtype=torch.int32),
        "inf": torch.tensor([float("inf")], dtype=torch.float16),
        "large": torch.tensor([1e39], dtype=torch.float64),
        "nan": torch.tensor([float("nan")], dtype=torch.float16),
    }, os.path.join(ROOT, "floats.safetensors"))


main()
