"""Safetensors files, and the numbers that the C tests make for themselves.

A file is: 8 bytes little-endian length, a JSON header, raw data. Large inputs (weights, images) are
not stored: `noise` is a formula that tests/support/golden_file.c repeats bit for bit.
"""
import json
import struct

import numpy as np
import torch

DTYPES = {"F32": np.dtype("<f4"), "I32": np.dtype("<i4")}


class Store:
    """Named tensors and metadata that go into one file."""

    def __init__(self, seed):
        self.tensors = {}
        self.metadata = {"torch": torch.__version__, "seed": str(seed)}

    def put(self, name, value):
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        value = np.asarray(value)
        kind = "<i4" if value.dtype.kind in "iu" else "<f4"
        value = np.ascontiguousarray(value, dtype=kind)
        assert name not in self.tensors, name
        self.tensors[name] = value.reshape(value.shape or (1,))

    def write(self, path):
        header = {"__metadata__": self.metadata}
        offset = 0
        for name, value in self.tensors.items():
            dtype = next(key for key, kind in DTYPES.items() if kind == value.dtype)
            header[name] = {"dtype": dtype, "shape": list(value.shape),
                            "data_offsets": [offset, offset + value.nbytes]}
            offset += value.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        data = b"".join(value.tobytes() for value in self.tensors.values())
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return 8 + len(text) + len(data)


def load(path):
    """Tensors by name and the metadata."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[first:last], DTYPES[entry["dtype"]]).reshape(
            entry["shape"])
    return tensors, metadata


def compare(want_path, got_path, tolerance):
    """What differs between two files, as sentences; the PyTorch version may."""
    want, want_meta = load(want_path)
    got, got_meta = load(got_path)
    want_meta.pop("torch")
    got_meta.pop("torch", None)
    problems = []
    if want_meta != got_meta:
        problems.append(f"{got_path.name}: the description of the cases differs")
    if want.keys() != got.keys():
        problems.append(f"{got_path.name}: tensors differ: {sorted(want.keys() ^ got.keys())}")
    for name in want.keys() & got.keys():
        a, b = want[name], got[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            problems.append(f"{got_path.name}: {name} has another shape or type")
            continue
        finite = np.isfinite(a)
        scale = np.abs(a[finite]).max(initial=0)
        same = np.array_equal(a[~finite], b[~finite], equal_nan=True) and np.all(
            np.abs(a[finite].astype(float) - b[finite]) <= tolerance * scale)
        if not same:
            problems.append(f"{got_path.name}: {name} differs")
    return problems


def name_seed(name, seed):
    """32-bit FNV-1a of a tensor's name, mixed with the seed of the file."""
    value = 2166136261
    for byte in name.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value ^ seed


def noise_words(name, seed, count):
    """Integer hash (a 32-bit finaliser by Chris Wellons) of name, seed and index."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        x += np.uint32(name_seed(name, seed))
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
    return x


def noise(name, seed, shape, centre, amplitude):
    """Uniform in centre + [-amplitude, amplitude), rounded to float32, as a float64 tensor."""
    count = int(np.prod(shape))
    unit = (noise_words(name, seed, count) >> np.uint32(8)).astype(np.float64) / 2.0**23 - 1.0
    value = (centre + amplitude * unit).astype(np.float32).astype(np.float64)
    return torch.from_numpy(value.reshape(shape))


def noise_labels(name, seed, count, n_classes):
    """Labels in [0, n_classes)."""
    words = noise_words(name, seed, count)
    return torch.from_numpy((words % np.uint32(n_classes)).astype(np.int64))
