"""Does ONNX's checker accept what der exported, and does onnxruntime compute the logits that der computed?

    check_onnx.py FOLDER

FOLDER holds floats.onnx and pixels.onnx; images (float32 [n, channels, height, width], normalised), pixels (the same
as bytes) and logits (float32 [n, classes]) of the whole test set; and the model file itself, run/model.safetensors.
"""
import json
import os
import struct
import sys

import numpy
import onnx
import onnxruntime

TOLERANCE = 1e-4  # the networks are the same, the order of sums is not


def description_of(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(json.loads(file.read(length))["__metadata__"]["der"])


def softmax(x):
    e = numpy.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def check_file(path, images, want, description):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert {key: json.loads(text) for key, text in metadata.items()} == description
    assert [output.name for output in session.get_outputs()] == ["logits", "probabilities"]

    def run(x):
        return session.run(None, {"image": x})

    logits, probabilities = run(images)
    singly = numpy.concatenate([run(images[i:i + 1])[0] for i in range(len(images))])
    assert logits.shape == want.shape == singly.shape
    difference = max(abs(logits - want).max(), abs(singly - want).max())
    cooled = abs(probabilities - softmax(logits / description["temperature"])).max()
    print(f"{os.path.basename(path)}: {len(images)} images, {len(description['extractors'])} extractors of "
          f"{description['network']['name']}, logits up to {abs(want).max():.3g}: largest difference {difference:.3g}")
    return difference < TOLERANCE and cooled < 1e-6 and abs(want).max() > 0.1


def main(folder):
    def read(name, dtype):
        return numpy.fromfile(os.path.join(folder, name), dtype)

    description = description_of(os.path.join(folder, "run", "model.safetensors"))
    size = description["image"]
    shape = (-1, size["channels"], size["height"], size["width"])
    want = read("logits", "<f4").reshape(-1, len(description["classes"]))
    files = {"floats.onnx": read("images", "<f4"), "pixels.onnx": read("pixels", "u1")}
    return all([check_file(os.path.join(folder, name), images.reshape(shape), want, description)
                for name, images in files.items()])


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1]))
