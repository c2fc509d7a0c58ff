"""The peer of der_bench: the same networks in PyTorch, driven by the same lines.

    peer_torch.py --model resnet18-cifar [--infer | --extractors T] --batch 128 --threads 2
                  --variant eager|frozen --format contiguous|channels_last --optimizer fused|foreach

--extractors T makes one iteration of DER's step T: T - 1 extractors without gradients, run as --variant
says, and one that is trained beside them with masks, auxiliary loss and sparsity loss.

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
CLASSES_PER_STEP, S, FROZEN_GAMMA = 10, 200.0, 0.2  # as in bench_der.c
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
    """n_classes = 0: the features."""

    def __init__(self, widths, n_blocks, n_classes=N_CLASSES):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        blocks, c_in = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(n_blocks):
                blocks.append(Block(c_in, width, 2 if stage > 0 and block == 0 else 1))
                c_in = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(c_in, n_classes, bias=False) if n_classes else nn.Identity()

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


def for_inference(args, network, image):
    """The network as --variant says; "frozen" folds batch norm into the convolutions."""
    if args.variant == "frozen":
        with torch.no_grad():
            network = torch.jit.freeze(torch.jit.trace(network, image))
            network = torch.jit.optimize_for_inference(network)
    return network


def make_inference(args, memory_format):
    """A function that runs the network once."""
    network = Network(*NETWORKS[args.model]).to(memory_format=memory_format).eval()
    image = torch.randn(args.batch, 3, IMAGE_SIZE, IMAGE_SIZE).to(memory_format=memory_format)
    network = for_inference(args, network, image)

    def iterate():
        with torch.inference_mode():
            return network(image)

    return iterate


class Gate(torch.autograd.Function):
    """sigmoid(s e) with the compensated gradient."""

    @staticmethod
    def forward(ctx, e):
        ctx.save_for_backward(e)
        return torch.sigmoid(S * e)

    @staticmethod
    def backward(ctx, d_m):
        (e,) = ctx.saved_tensors
        return d_m * torch.sigmoid(e) * torch.sigmoid(-e)


class MaskedNetwork(Network):
    """Every contribution to a residual stream and every inner activation is multiplied by a mask, which
    is done in gamma and beta: the fastest way there is."""

    def __init__(self, widths, n_blocks):
        super().__init__(widths, n_blocks, 0)
        self.n_blocks = n_blocks
        self.streams = nn.ParameterList(torch.randn(w) for w in widths)
        self.inners = nn.ParameterList(torch.randn(w) for w in widths for _ in range(n_blocks))

    @staticmethod
    def norm(bn, x, mask):
        return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight * mask, bn.bias * mask, True)

    def forward(self, x):
        """Features, and the sparsity loss."""
        streams, inners = ([Gate.apply(e) for e in group] for group in (self.streams, self.inners))
        n_stream, n_inner = ([m.sum() for m in group] for group in (streams, inners))
        x = F.relu(self.norm(self.bn1, self.conv1(x), streams[0]), inplace=True)
        used, total = 27 * n_stream[0], 27 * len(streams[0])
        for number, block in enumerate(self.blocks):
            stage, projects = number // self.n_blocks, len(block.shortcut) > 0
            source = stage - projects
            y = F.relu(self.norm(block.bn1, block.conv1(x), inners[number]), inplace=True)
            y = self.norm(block.bn2, block.conv2(y), streams[stage])
            if projects:
                conv, bn = block.shortcut
                y += self.norm(bn, conv(x), streams[stage])
                used = used + n_stream[source] * n_stream[stage]
                total += len(streams[source]) * len(streams[stage])
            else:
                y += x
            x = F.relu(y, inplace=True)
            used = used + 9 * n_inner[number] * (n_stream[source] + n_stream[stage])
            total += 9 * len(inners[number]) * (len(streams[source]) + len(streams[stage]))
        return F.adaptive_avg_pool2d(x, 1).flatten(1), used / total


def make_step(args, memory_format):
    """A function that makes one iteration of DER's first stage and returns the main loss."""
    spec, old = NETWORKS[args.model], (args.extractors - 1) * CLASSES_PER_STEP
    image = torch.randn(args.batch, 3, IMAGE_SIZE, IMAGE_SIZE).to(memory_format=memory_format)
    labels = torch.arange(args.batch) * 7 % (old + CLASSES_PER_STEP)
    aux_labels = (labels - old + 1).clamp(min=0)
    frozen = []
    for _ in range(args.extractors - 1):
        network = Network(*spec, 0).to(memory_format=memory_format).eval()
        for block in network.blocks:
            nn.init.constant_(block.bn2.weight, FROZEN_GAMMA)
        frozen.append(for_inference(args, network, image))
    trained = MaskedNetwork(*spec).to(memory_format=memory_format).train()
    dim = spec[0][-1]
    head = nn.Linear(args.extractors * dim, old + CLASSES_PER_STEP, bias=False)
    auxiliary = nn.Linear(dim, CLASSES_PER_STEP + 1, bias=False)
    masks = [*trained.streams, *trained.inners]
    chosen = {id(e) for e in masks}
    weights = [p for p in trained.parameters() if id(p) not in chosen]
    weights += [head.weight, auxiliary.weight]
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": 5e-4},
                                 {"params": masks, "lr": 0.05}], lr=0.01, momentum=0.9,
                                **{args.optimizer: True})

    def iterate():
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            features = [network(image) for network in frozen]
        feature, sparsity = trained(image)
        main = F.cross_entropy(head(torch.cat(features + [feature], 1)), labels)
        loss = main + F.cross_entropy(auxiliary(feature), aux_labels) + 0.75 * sparsity
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for e in masks:
                e.clamp_(-6, 6)
        return main.detach()

    return iterate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=NETWORKS, default="resnet18-cifar")
    parser.add_argument("--infer", action="store_true")
    parser.add_argument("--extractors", type=int, default=0)
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
    make = make_inference if args.infer else make_step if args.extractors else make_training
    iterate = make(args, memory_format)
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
