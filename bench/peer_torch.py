"""The peer of der_bench: the same networks in PyTorch, driven by the same lines.

    peer_torch.py --model resnet18-cifar [--infer] --batch 128 --threads 2
                  --variant eager|frozen --format contiguous|channels_last --optimizer fused|foreach

Prints one line of JSON when ready, then answers "run K", "memory" and "quit"; see bench_net.c.
"""
import argparse
import json
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F

N_CLASSES, IMAGE_SIZE = 100, 32
NETWORKS = {"resnet18-cifar": ((64, 128, 256, 512), 2), "resnet32": ((16, 32, 64), 5)}


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False),
                                          nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class Network(nn.Module):
    def __init__(self, widths, n_blocks):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        blocks, c_in = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(n_blocks):
                blocks.append(Block(c_in, width, 2 if stage > 0 and block == 0 else 1))
                c_in = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(c_in, N_CLASSES, bias=False)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.blocks(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def status_mib(field):
    """A field of /proc/self/status in MiB."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return 0.0


def make_training(args, memory_format):
    """A function that makes one training iteration and returns the loss."""
    network = Network(*NETWORKS[args.model]).to(memory_format=memory_format).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4,
                                **{args.optimizer: True})
    image = torch.randn(args.batch, 3, IMAGE_SIZE, IMAGE_SIZE).to(memory_format=memory_format)
    labels = torch.arange(args.batch) * 7 % N_CLASSES

    def iterate():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(image), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return iterate


def make_inference(args, memory_format):
    """A function that runs the network once; "frozen" folds batch norm into the convolutions."""
    network = Network(*NETWORKS[args.model]).to(memory_format=memory_format).eval()
    image = torch.randn(args.batch, 3, IMAGE_SIZE, IMAGE_SIZE).to(memory_format=memory_format)
    if args.variant == "frozen":
        with torch.no_grad():
            network = torch.jit.freeze(torch.jit.trace(network, image))
            network = torch.jit.optimize_for_inference(network)

    def iterate():
        with torch.inference_mode():
            return network(image)

    return iterate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=NETWORKS, default="resnet18-cifar")
    parser.add_argument("--infer", action="store_true")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--variant", choices=("eager", "frozen"), default="eager")
    parser.add_argument("--format", choices=("contiguous", "channels_last"), default="contiguous")
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="foreach")
    args = parser.parse_args()
    start_mib = status_mib("VmRSS")
    torch.manual_seed(1993)
    torch.set_num_threads(args.threads)
    since = time.monotonic()
    memory_format = (torch.channels_last if args.format == "channels_last"
                     else torch.contiguous_format)
    iterate = (make_inference if args.infer else make_training)(args, memory_format)
    print(json.dumps({"setup_s": time.monotonic() - since, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        if words[0] == "run":
            since = time.monotonic()
            for _ in range(int(words[1])):
                result = iterate()
            value = result.flatten()[0].item()
            seconds = (time.monotonic() - since) / int(words[1])
            answer = {"ms": 1e3 * seconds, "result": value}
        else:
            answer = {"peak_mib": status_mib("VmHWM"), "start_mib": start_mib}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
