"""Does PyTorch, with the recipe of docs/FORMATS.md, compute the logits that der computed?

    check_model.py FORMATS.md MODEL IMAGES LOGITS

IMAGES holds float32 [n, channels, height, width], normalised; LOGITS float32 [n, classes]. The recipe is not
copied here but read out of the document, so that what stands there is what is tested. Where the package
`safetensors` is installed its own reader opens the file; otherwise twenty lines do.
"""
import json
import re
import struct
import sys

import numpy
import torch

TOLERANCE = 1e-4  # the networks are the same, the order of sums is not


def recipe(document):
    """The block that defines logits()."""
    blocks = re.findall(r"^```python$\n(.*?)^```$", open(document, encoding="utf-8").read(), re.M | re.S)
    found = [text for text in blocks if "def logits(" in text]
    assert len(found) == 1, f"{document} has {len(found)} blocks with logits()"
    scope = {}
    exec(compile(found[0], document, "exec"), scope)
    return scope["logits"]


def by_hand(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return metadata, tensors


def load(path):
    metadata, tensors = by_hand(path)
    try:
        from safetensors import safe_open
    except ImportError:
        return json.loads(metadata["der"]), tensors
    with safe_open(path, framework="pt") as f:
        assert f.metadata() == metadata
        assert {name: f.get_tensor(name).tolist() for name in f.keys()} == \
            {name: tensor.tolist() for name, tensor in tensors.items()}
    return json.loads(metadata["der"]), tensors


def main(document, model, images, logits):
    description, tensors = load(model)
    size = description["image"]
    shape = (-1, size["channels"], size["height"], size["width"])
    x = torch.from_numpy(numpy.fromfile(images, "<f4").reshape(shape))
    want = torch.from_numpy(numpy.fromfile(logits, "<f4").reshape(len(x), -1))
    assert want.shape[1] == len(description["classes"])
    with torch.no_grad():
        found = recipe(document)(tensors, description, x)
    difference = (found - want).abs().max().item()
    print(f"{len(x)} images, {len(description['extractors'])} extractors, "
          f"logits up to {want.abs().max().item():.3g}: largest difference {difference:.3g}")
    return 0 if difference < TOLERANCE and want.abs().max().item() > 0.1 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
