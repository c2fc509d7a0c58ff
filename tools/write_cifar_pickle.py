#!/usr/bin/env python3
"""write_cifar_pickle.py BINARY CLASSES PROTOCOL OUT: one binary CIFAR file as the Python pickle
of the same content. Runs under Python 2 as well, whose pickles the real distribution consists of.
With CLASSES = names, BINARY is a text file of class names and OUT a meta file."""
import sys

import numpy as np

try:
    import cPickle as pickle  # Python 2: the C version, which the distribution was written with
except ImportError:
    import pickle


def names(path):
    lines = [line.strip() for line in open(path) if line.strip()]
    if len(lines) == 10:
        return {"num_cases_per_batch": 1, "label_names": lines, "num_vis": 3072}
    return {"fine_label_names": lines, "coarse_label_names": ["coarse"]}


def images(path, n_classes):
    label_bytes = 2 if n_classes == 100 else 1
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, label_bytes + 3072)
    batch = {
        "batch_label": "training batch 1 of 1",
        "data": np.ascontiguousarray(records[:, label_bytes:]),
        "filenames": ["image_%d.png" % i for i in range(len(records))],
    }
    if n_classes == 100:
        batch["fine_labels"] = [int(x) for x in records[:, 1]]
        batch["coarse_labels"] = [int(x) for x in records[:, 0]]
    else:
        batch["labels"] = [int(x) for x in records[:, 0]]
    return batch


def main():
    source, classes, protocol, out = sys.argv[1:5]
    content = names(source) if classes == "names" else images(source, int(classes))
    if "--fortran" in sys.argv:
        content["data"] = np.asfortranarray(content["data"])
    with open(out, "wb") as stream:
        pickle.dump(content, stream, int(protocol))


main()
