"""One iteration of DER on a GPU: der_bench and its twin in PyTorch, timed in turns.

    cuda_torch.py --bench PATH/der_bench [--model resnet18-cifar] [--extractors 1,5,10] [--rounds 7]

The twin does what der_bench does: t - 1 frozen extractors in evaluation mode, one trained, main and
auxiliary loss, SGD with momentum; bf16 autocast, channels_last, the whole iteration in one CUDA graph,
data on the GPU. Prints one line per t: milliseconds of both (median over the rounds) and their ratio.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
from torch import nn
import torch.nn.functional as F

from peer_torch import NETWORKS, Network

CLASSES_PER_STEP, BATCH, IMAGE_SIZE = 10, 128, 32


class Extractor(Network):
    """The network without its head."""

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1)


class Twin:
    def __init__(self, model, t):
        def make():
            return Extractor(*NETWORKS[model]).cuda().to(memory_format=torch.channels_last)
        self.frozen = [make().eval().requires_grad_(False) for _ in range(t - 1)]
        self.trained = make().train()
        dim = NETWORKS[model][0][-1]
        self.n_classes = CLASSES_PER_STEP * t
        self.classifier = nn.Linear(dim * t, self.n_classes, bias=False).cuda()
        self.auxiliary = nn.Linear(dim, CLASSES_PER_STEP + 1, bias=False).cuda()
        self.image = torch.randn(BATCH, 3, IMAGE_SIZE, IMAGE_SIZE, device="cuda").to(
            memory_format=torch.channels_last)
        self.labels = torch.arange(BATCH, device="cuda") * 7 % self.n_classes
        self.new_labels = (self.labels - (self.n_classes - CLASSES_PER_STEP) + 1).clamp(min=0)
        modules = [self.trained, self.classifier] + ([self.auxiliary] if t > 1 else [])
        parameters = [p for module in modules for p in module.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4,
                                         fused=True)
        self.graph = None

    def iterate(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                old = [extractor(self.image) for extractor in self.frozen]
            new = self.trained(self.image)
            loss = F.cross_entropy(self.classifier(torch.cat(old + [new], 1)), self.labels)
            if old:
                loss = loss + F.cross_entropy(self.auxiliary(new), self.new_labels)
        loss.backward()
        self.optimizer.step()
        self.loss = loss

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.iterate()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.iterate()

    def run(self, count):
        torch.cuda.synchronize()
        since = time.monotonic()
        for _ in range(count):
            self.graph.replay()
        torch.cuda.synchronize()
        return 1e3 * (time.monotonic() - since) / count


class Bench:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.ready = json.loads(self.process.stdout.readline())

    def run(self, count):
        self.process.stdin.write(f"run {count}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["ms"]

    def close(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--model", choices=NETWORKS, default="resnet18-cifar")
    parser.add_argument("--extractors", default="1,5,10")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--options", default="", help="more options of der_bench der")
    args = parser.parse_args()
    torch.manual_seed(1993)
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.model}", flush=True)
    for t in map(int, args.extractors.split(",")):
        twin = Twin(args.model, t)
        twin.capture()
        bench = Bench([args.bench, "der", "--backend", "cuda", "--model", args.model, "--precision",
                       args.precision, "--extractors", str(t), *args.options.split()])
        bench.run(10), twin.run(10)
        times = [(twin.run(args.iterations), bench.run(args.iterations))
                 for _ in range(args.rounds)]
        theirs, ours = (statistics.median(column) for column in zip(*times))
        spread = [(min(column), max(column)) for column in zip(*times)]
        print(f"t = {t:2d}: twin {theirs:.3f} ms ({spread[0][0]:.3f} to {spread[0][1]:.3f}), "
              f"der {ours:.3f} ms ({spread[1][0]:.3f} to {spread[1][1]:.3f}), "
              f"{theirs / ours:.2f} times; set up in {bench.ready['setup_s']:.1f} s", flush=True)
        bench.close()
        del twin
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
