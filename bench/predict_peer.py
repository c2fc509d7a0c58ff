"""The peers of bench/predict.py: PyTorch and onnxruntime on the network of a model file.

    predict_peer.py MODEL IMAGE --variant NAME --threads N

The file is read with the recipe of docs/FORMATS.md, taken out of the document itself. IMAGE holds the bytes
of one picture, R G B R G B ... Variants: torch-eager, torch-frozen, each also with -channels-last, and
onnxruntime, for which the same network is written down with its batch norms folded.

Prints one line of JSON when the first prediction is made, then answers "run K", "logits" and "quit"; see
bench_predict.c.
"""
import argparse
import json
import pathlib
import sys
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

EPSILON = 1e-5
VARIANTS = ("torch-eager", "torch-eager-channels-last", "torch-frozen", "torch-frozen-channels-last",
            "onnxruntime")


def normalised(path, description):
    """[1, channels, height, width] as `input` says."""
    size = description["image"]
    pixels = numpy.fromfile(path, numpy.uint8).reshape(size["height"], size["width"],
                                                       size["channels"])
    mean, std = (numpy.array(description["input"][key], numpy.float32) for key in ("mean", "std"))
    image = (pixels.astype(numpy.float32) / 255 - mean) / std
    return numpy.ascontiguousarray(image.transpose(2, 0, 1)[None])


# ---- PyTorch -------------------------------------------------------------------------------------


def torch_predictor(args):
    import torch

    import check_model

    torch.set_num_threads(args.threads)
    description, tensors = check_model.load(args.model)
    logits = check_model.recipe(ROOT / "docs" / "FORMATS.md")
    layout = (torch.channels_last if args.variant.endswith("channels-last")
              else torch.contiguous_format)
    tensors = {name: t.to(memory_format=layout) if t.dim() == 4 else t
               for name, t in tensors.items()}
    image = torch.from_numpy(normalised(args.image, description)).to(memory_format=layout)

    class Network(torch.nn.Module):
        def forward(self, x):
            return logits(tensors, description, x)

    network = Network().eval()
    with torch.inference_mode(args.variant.startswith("torch-eager")), torch.no_grad():
        if args.variant.startswith("torch-frozen"):
            network = torch.jit.trace(network, image, check_trace=False).eval()
            network = torch.jit.optimize_for_inference(torch.jit.freeze(network))

    def predict():
        with torch.inference_mode():
            return network(image)[0]

    for _ in range(3):  # TorchScript optimises while it runs
        predict()
    return lambda: predict().numpy()


# ---- onnxruntime ---------------------------------------------------------------------------------


class Writer:
    """An ONNX graph in the making."""

    def __init__(self, tensors):
        from onnx import helper, numpy_helper
        self.helper, self.to_tensor = helper, numpy_helper.from_array
        self.tensors, self.nodes, self.weights = tensors, [], []

    def add(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(self.to_tensor(numpy.ascontiguousarray(array), name))
        return name

    def conv(self, x, weight, norm, stride=1, pad=1):
        """A convolution with the batch norm behind it folded in."""
        t = self.tensors
        scale = t[norm + ".weight"] / numpy.sqrt(t[norm + ".running_var"] + EPSILON)
        folded = (t[weight] * scale[:, None, None, None]).astype(numpy.float32)
        bias = (t[norm + ".bias"] - t[norm + ".running_mean"] * scale).astype(numpy.float32)
        return self.add("Conv", [x, self.constant(folded), self.constant(bias)],
                        strides=[stride, stride], pads=[pad] * 4)

    def features(self, prefix, spec, x):
        assert spec["stem"] == "3x3"
        h = self.add("Relu", [self.conv(x, prefix + "conv1.weight", prefix + "bn1")])
        for k, blocks in enumerate(spec["inner"], 1):
            for b in range(len(blocks)):
                name, stride = f"{prefix}layer{k}.{b}.", 2 if k > 1 and b == 0 else 1
                r = self.conv(h, name + "conv1.weight", name + "bn1", stride)
                r = self.conv(self.add("Relu", [r]), name + "conv2.weight", name + "bn2")
                if stride == 2:
                    h = self.conv(h, name + "downsample.0.weight", name + "downsample.1", 2, 0)
                h = self.add("Relu", [self.add("Add", [r, h])])
        return self.add("Flatten", [self.add("GlobalAveragePool", [h])])


def onnx_bytes(description, tensors):
    from onnx import TensorProto, helper
    size = description["image"]
    writer = Writer(tensors)
    columns = [writer.features(f"extractors.{n}.", spec, "image")
               for n, spec in enumerate(description["extractors"])]
    joined = writer.add("Concat", columns, axis=1)
    out = writer.add("MatMul", [joined, writer.constant(tensors["classifier.weight"].T)])
    shape = [1, size["channels"], size["height"], size["width"]]
    graph = helper.make_graph(
        writer.nodes, "model",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, [1, len(description["classes"])])],
        writer.weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def read_tensors(path):
    """Description and numpy arrays of a model file, without PyTorch."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    description = json.loads(header.pop("__metadata__")["der"])
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return description, tensors


def onnx_predictor(args):
    import onnxruntime

    description, tensors = read_tensors(args.model)
    image = normalised(args.image, description)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(onnx_bytes(description, tensors), options,
                                           providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"image": image})[0][0]


# ---- the lines -----------------------------------------------------------------------------------


def timed(predict, count):
    times = []
    cpu = time.process_time()
    for _ in range(count):
        since = time.perf_counter()
        predict()
        times.append(1e3 * (time.perf_counter() - since))
    return {"ms": times, "cpu_ms": 1e3 * (time.process_time() - cpu) / count}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("image")
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    predict = (onnx_predictor if args.variant == "onnxruntime" else torch_predictor)(args)
    logits = predict()
    print(json.dumps({"ready": args.variant}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        answer = (timed(predict, int(words[1])) if words[0] == "run"
                  else {"logits": [float(v) for v in logits]})
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
