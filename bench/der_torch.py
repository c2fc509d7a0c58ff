"""The twin of `der train --method der`: the same method and schedule, written anew in PyTorch.

    der_torch.py DATA OUT [--steps N] [--classes N] [--epochs N] [--classifier-epochs N] [--seed N]
                 [--batches N] [--threads N] [--images N] [--device cpu|cuda]

DATA is the binary distribution of CIFAR-100. Trains the 32-layer network with DER's masks (stage-shared
stream masks, inner masks per block), its auxiliary loss, hard phase, pruning, balanced classifier stage
and herding, over the first steps of the paper's first class order, with the 170-epoch schedule scaled to
--epochs. OUT, a file, receives JSON lines: {"event": "epoch", ...} and, per step, {"event": "step",
"step", "classes", "top1", "params", "features", "seconds"} with the names of a run's metrics.jsonl.

Every draw is der's own for the seed (tools/data_order.py): initial weights, masks and heads, order of the
batches, augmentation, balanced subset. What remains are the two implementations, and rounding, which parts
any two runs after some epochs. --batches N takes order and augmentation of seed N instead, to see how much
these alone are worth. --images N limits every class to its first N training images, for a quick look.
"""
import argparse
import copy
import json
import math
import pathlib
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

from curve_torch import (BRIGHTNESS, MEAN, N_BLOCKS, PAD, SIZE, STD, WIDTHS, data_order,
                         read_split)

ORDER = [87, 0, 52, 58, 44, 91, 68, 97, 51, 15, 94, 92, 10, 72, 49, 78, 61, 14, 8, 86, 84, 96, 18, 24,
         32, 45, 88, 11, 4, 67, 69, 66, 77, 47, 79, 93, 29, 50, 57, 83, 17, 81, 41, 12, 37, 59, 25, 20,
         80, 73]  # the first half is enough here
BATCH, TEST_BATCH = 128, 256
LR, MOMENTUM, DECAY = 0.1, 0.9, 5e-4
LAMBDA_A, LAMBDA_S = 1.0, 0.75
GAIN, S_MAX, CLAMP = 5.0, 400.0, 6.0
TEMPERATURE, MEMORY = 5.0, 2000
SOFT_FLOOR = 1e-20  # a soft mask is never 0: a ReLU behind it would keep the task's gradient away
PARAMS_PER_LAYER = 5  # of der's parameter sets: weight, gamma, beta, mean, variance
MODULES_PER_STEP = 8  # numbers of der's modules: step t (from 0) has those from 8 t on, ...
EXTRACTOR, HEAD, AUXILIARY, MASKS, RESET = range(5)  # ... in this order
SECOND_STAGE_MODULES = 200000  # ... and the classifier of its second stage this + t
HARD_SHARE = 0.55  # the hard phase begins at the first drop behind this share of the epochs


# ---- schedules -----------------------------------------------------------------------------------


class Schedule:
    """Linear warm-up, then LR times 0.1 at every drop; boundaries are those of `full` epochs, scaled."""

    def __init__(self, full, warmup, drops, epochs):
        def scaled(epoch):
            return math.floor(epoch * epochs / full + 0.5)

        self.epochs, self.warmup, self.drops = epochs, scaled(warmup), []
        hard = next((d for d in drops if d > HARD_SHARE * full), full)
        self.hard = epochs
        for drop in drops:
            at = max(scaled(drop), (self.drops or [self.warmup - 1])[-1] + 1)
            if at < epochs:
                self.drops.append(at)
                if drop == hard:
                    self.hard = at

    def lr(self, epoch):
        if epoch < self.warmup:
            return LR * (epoch + 1) / self.warmup
        return LR * 0.1 ** sum(epoch >= drop for drop in self.drops)


# ---- network ---------------------------------------------------------------------------------------


class Layer(nn.Module):
    """m * bn(conv(x)). The mask is multiplied into gamma and beta, which is the same thing with the same
    gradients and one pass less over the images."""

    def __init__(self, c_in, c_out, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(c_out)

    def forward(self, x, mask):
        bn, x = self.bn, self.conv(x)
        if mask is None:
            return bn(x)
        return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight * mask, bn.bias * mask,
                            bn.training, 0.1, bn.eps)


class Extractor(nn.Module):
    """stream: channels of each stage; inner: channels inside each block."""

    def __init__(self, stream, inner):
        super().__init__()
        self.stream, self.inner = list(stream), list(inner)
        self.layers, self.wiring = nn.ModuleList(), []  # wiring: (input mask, output mask) by number
        self.add(3, -1, 0, 3, 1)
        self.blocks = []  # numbers of conv1, conv2, shortcut (or None)
        for block in range(len(self.inner)):
            stage = block // N_BLOCKS
            enters = stage > 0 and block % N_BLOCKS == 0
            source, mask = stage - enters, len(WIDTHS) + block
            c_in = self.stream[source]
            first = self.add(c_in, source, mask, 3, 1 + enters)
            second = self.add(self.inner[block], mask, stage, 3, 1)
            shortcut = self.add(c_in, source, stage, 1, 2) if enters else None
            self.blocks.append((first, second, shortcut))

    def add(self, c_in, source, target, kernel, stride):
        widths = self.stream + self.inner
        self.layers.append(Layer(c_in, widths[target], kernel, stride))
        self.wiring.append((source, target))
        return len(self.layers) - 1

    def run(self, number, x, masks):
        return self.layers[number](x, masks[self.wiring[number][1]] if masks else None)

    def forward(self, x, masks=None):
        h = F.relu(self.run(0, x, masks))
        for first, second, shortcut in self.blocks:
            branch = self.run(second, F.relu(self.run(first, h, masks)), masks)
            h = F.relu(branch + (h if shortcut is None else self.run(shortcut, h, masks)))
        return h.mean((2, 3))

    def count(self):
        return sum(p.numel() for p in self.parameters())


def full_width():
    return Extractor(WIDTHS, [w for w in WIDTHS for _ in range(N_BLOCKS)])


def drawn(seed, purpose, module, index, shape):
    values = data_order.init_normal(seed, purpose, module, index, int(np.prod(shape)))
    return torch.tensor(values.reshape(shape), dtype=torch.float32)


@torch.no_grad()
def first_extractor(seed):
    net = full_width()
    for i, layer in enumerate(net.layers):
        weight = layer.conv.weight
        std = math.sqrt(2 / (weight.shape[0] * weight.shape[2] * weight.shape[3]))
        weight.copy_(std * drawn(seed, data_order.RNG_INIT_WEIGHTS, EXTRACTOR, i * PARAMS_PER_LAYER,
                                 weight.shape))
    return net


# ---- masks -----------------------------------------------------------------------------------------


def hard_mask(e):
    return (e > 0) | (torch.arange(len(e)) == e.argmax())


class Gate(torch.autograd.Function):
    """m = sigmoid(s e), with the compensated gradient in closed form; s infinite means 0 or 1."""

    @staticmethod
    def forward(ctx, e, s):
        ctx.save_for_backward(e)
        ctx.hard = math.isinf(s)
        return hard_mask(e).to(e.dtype) if ctx.hard else torch.sigmoid(s * e).clamp(min=SOFT_FLOOR)

    @staticmethod
    def backward(ctx, d_m):
        (e,) = ctx.saved_tensors
        return torch.zeros_like(e) if ctx.hard else d_m * torch.sigmoid(e) * torch.sigmoid(-e), None


def sparsity(extractor, masks):
    """Weights in use over weights there are."""
    sums = [m.sum() for m in masks]
    widths = extractor.stream + extractor.inner
    used = total = 0
    for layer, (source, target) in zip(extractor.layers, extractor.wiring):
        area = layer.conv.kernel_size[0] ** 2
        used = used + area * (3 if source < 0 else sums[source]) * sums[target]
        total += area * (3 if source < 0 else widths[source]) * widths[target]
    return used / total


@torch.no_grad()
def prune(extractor, keep):
    """The small network of the channels in keep[mask], in test mode."""
    n = len(WIDTHS)
    small = Extractor([len(k) for k in keep[:n]], [len(k) for k in keep[n:]])
    for new, old, (source, target) in zip(small.layers, extractor.layers, extractor.wiring):
        weight = old.conv.weight[keep[target]]
        new.conv.weight.copy_(weight if source < 0 else weight[:, keep[source]])
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(new.bn, name).copy_(getattr(old.bn, name)[keep[target]])
    return small.eval().requires_grad_(False)


# ---- data ------------------------------------------------------------------------------------------


class Images:
    def __init__(self, data, n_classes, limit):
        self.train, train = read_split(data / "train.bin", ORDER[:n_classes])
        self.test, test = read_split(data / "test.bin", ORDER[:n_classes])
        self.train_of = [[s for s, label in train if label == k][:limit] for k in range(n_classes)]
        self.test_of = [[s for s, label in test if label == k] for k in range(n_classes)]

    @staticmethod
    def floats(images):
        pixels = (images.astype(np.float32) / np.float32(255) - MEAN) / STD
        pixels = torch.from_numpy(pixels).to(torch.get_default_device())
        return pixels.contiguous(memory_format=torch.channels_last)

    def augmented(self, samples, seed, epoch):
        """Crop out of a border of zeros, flip, brightness on bytes with truncation."""
        padded = np.pad(self.train[samples], ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
        out = np.empty((len(samples), 3, SIZE, SIZE), np.uint8)
        y, x, flip, factor = data_order.augment_draws(seed, epoch, samples, BRIGHTNESS)
        y, x = ((word * np.uint64(2 * PAD + 1) >> np.uint64(32)).astype(int) for word in (y, x))
        for i in range(len(samples)):
            crop = padded[i, :, y[i]:y[i] + SIZE, x[i]:x[i] + SIZE]
            out[i] = crop[:, :, ::-1] if flip[i] else crop
        bright = np.minimum(out * factor.reshape(-1, 1, 1, 1), np.float32(255))
        return self.floats(bright.astype(np.uint8))

    def batches(self, items, seed, epoch):
        """One epoch: (pixels, labels). A tail of one image is dropped."""
        order = data_order.epoch_order(seed, epoch, len(items))
        for begin in range(0, len(order), BATCH):
            chosen = [items[i] for i in order[begin:begin + BATCH]]
            if len(chosen) > 1:
                yield (self.augmented([s for s, _ in chosen], seed, epoch),
                       torch.tensor([label for _, label in chosen]))

    def n_batches(self, items):
        return len(items) // BATCH + (len(items) % BATCH > 1)


# ---- the learner -------------------------------------------------------------------------------------


def new_head(seed, module, rows, cols):
    """A head as a step begins with it: Kaiming normal with linear gain."""
    head = nn.Linear(cols, rows, bias=False)
    with torch.no_grad():
        head.weight.copy_(drawn(seed, data_order.RNG_INIT_HEAD, module, 0, (rows, cols)) / math.sqrt(cols))
    return head


@torch.no_grad()
def reset(head, seed, module):
    """A head that starts anew, as PyTorch's Linear does."""
    weight = head.weight
    values = data_order.init_uniform(seed, data_order.RNG_INIT_HEAD, module, 0, weight.numel(),
                                     1 / math.sqrt(head.in_features))
    weight.copy_(torch.tensor(values.reshape(weight.shape), dtype=torch.float32))


def steepness(schedule, epoch, b, n):
    if epoch >= schedule.hard:
        return math.inf
    return S_MAX if n < 2 else 1 / S_MAX + (S_MAX - 1 / S_MAX) * b / (n - 1)


class Learner:
    def __init__(self, args, images, report):
        self.args, self.images, self.report = args, images, report
        self.extractors, self.last_full, self.head = [], None, None
        self.memory = []  # samples of every class, best first
        self.step, self.n_classes = 0, 0

    def batches(self, items, stage, epoch):
        seed = data_order.stage_seed(self.args.batches or self.args.seed, stage, self.step)
        return self.images.batches(items, seed, epoch)

    @torch.no_grad()
    def old_features(self, pixels):
        return [extractor(pixels) for extractor in self.extractors]

    def features(self, pixels):
        return torch.cat(self.old_features(pixels), 1)

    def learn(self, n_new):
        start = time.time()
        fresh = [(s, k) for k in range(self.n_classes, self.n_classes + n_new)
                 for s in self.images.train_of[k]]
        items = fresh + [(s, k) for k, kept in enumerate(self.memory) for s in kept]
        self.represent(items, n_new)
        self.n_classes += n_new
        if self.step > 0:
            self.balance(items)
        self.remember(n_new)
        self.step += 1
        self.report({"event": "step", "step": self.step, "classes": self.n_classes,
                     "top1": self.test(), "params": sum(e.count() for e in self.extractors),
                     "features": self.head.in_features, "seconds": round(time.time() - start, 1)})

    def represent(self, items, n_new):
        schedule = Schedule(170, 10, [110, 130], self.args.epochs)
        net = copy.deepcopy(self.last_full) if self.last_full else first_extractor(self.args.seed)
        net = net.to(memory_format=torch.channels_last).train()
        old = sum(e.stream[-1] for e in self.extractors)
        seed, module = self.args.seed, self.step * MODULES_PER_STEP
        head = new_head(seed, module + HEAD, self.n_classes + n_new, old + WIDTHS[-1])
        auxiliary = new_head(seed, module + AUXILIARY, n_new + 1, WIDTHS[-1]) if self.step > 0 else None
        masks = [nn.Parameter(drawn(seed, data_order.RNG_INIT_MASK, module + MASKS, i, (w,)))
                 for i, w in enumerate(net.stream + net.inner)]
        weights = list(net.parameters()) + list(head.parameters())
        weights += list(auxiliary.parameters()) if auxiliary else []
        optimizer = torch.optim.SGD([{"params": weights, "weight_decay": DECAY},
                                     {"params": masks, "weight_decay": 0.0}], LR, MOMENTUM)
        for epoch in range(schedule.epochs):
            lr = schedule.lr(epoch)
            for group, gain in zip(optimizer.param_groups, (1.0, GAIN)):
                group["lr"] = lr * gain
            if epoch == schedule.hard:  # from here on no velocity may move the masks
                for e in masks:
                    optimizer.state[e]["momentum_buffer"].zero_()
            if epoch == schedule.warmup and schedule.warmup > 0:
                reset(head, seed, module + RESET)
                if auxiliary:
                    reset(auxiliary, seed, module + RESET + 1)
            sums = np.zeros(4)  # main, auxiliary, sparsity, correct
            n = self.images.n_batches(items)
            batches = self.batches(items, data_order.STAGE_REPRESENTATION, epoch)
            for b, (pixels, labels) in enumerate(batches):
                s = steepness(schedule, epoch, b, n)
                sums += self.iterate(net, head, auxiliary, masks, optimizer, pixels, labels, s)
            sums /= len(items)
            self.report({"event": "epoch", "step": self.step + 1, "stage": "representation",
                         "epoch": epoch, "lr": lr, "main": sums[0], "auxiliary": sums[1],
                         "sparsity": sums[2], "accuracy": 100 * sums[3]})
        keep = [torch.nonzero(hard_mask(e.detach())).flatten() for e in masks]
        columns = torch.cat([torch.arange(old), old + keep[len(WIDTHS) - 1]])
        self.head = nn.Linear(len(columns), head.out_features, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(head.weight[:, columns])
        self.last_full = net
        self.extractors.append(prune(net, keep).to(memory_format=torch.channels_last))

    def iterate(self, net, head, auxiliary, masks, optimizer, pixels, labels, s):
        optimizer.zero_grad()
        m = [Gate.apply(e, s) for e in masks]
        feature = net(pixels, m)
        logits = head(torch.cat(self.old_features(pixels) + [feature], 1))
        main = F.cross_entropy(logits, labels)
        other = torch.zeros(())
        if auxiliary:
            other = F.cross_entropy(auxiliary(feature), (labels - self.n_classes + 1).clamp(min=0))
        used = sparsity(net, m)
        (main + LAMBDA_A * other + LAMBDA_S * used).backward()
        optimizer.step()
        with torch.no_grad():
            for e in masks:
                e.clamp_(-CLAMP, CLAMP)
        correct = (logits.argmax(1) == labels).sum().item()
        n = len(labels)
        return np.array([n * main.item(), n * other.item(), n * used.item(), correct])

    def balance(self, items):
        """The second stage: the classifier anew, on as many images of every class."""
        schedule = Schedule(30, 0, [15], self.args.classifier_epochs)
        seed = data_order.stage_seed(self.args.seed, data_order.STAGE_BALANCE, self.step)
        chosen = data_order.balanced(seed, self.step, items)
        self.head = nn.Linear(sum(e.stream[-1] for e in self.extractors), self.n_classes, bias=False)
        reset(self.head, self.args.seed, SECOND_STAGE_MODULES + self.step)
        optimizer = torch.optim.SGD(self.head.parameters(), LR, MOMENTUM, weight_decay=DECAY)
        for epoch in range(schedule.epochs):
            optimizer.param_groups[0]["lr"] = schedule.lr(epoch)
            total = 0.0
            for pixels, labels in self.batches(chosen, data_order.STAGE_CLASSIFIER, epoch):
                optimizer.zero_grad()
                loss = F.cross_entropy(self.head(self.features(pixels)) / TEMPERATURE, labels)
                loss.backward()
                optimizer.step()
                total += len(labels) * loss.item()
            self.report({"event": "epoch", "step": self.step + 1, "stage": "classifier",
                         "epoch": epoch, "lr": schedule.lr(epoch), "main": total / len(chosen)})

    def remember(self, n_new):
        quota = MEMORY // self.n_classes
        self.memory = [kept[:quota] for kept in self.memory]
        for k in range(self.n_classes - n_new, self.n_classes):
            samples = self.images.train_of[k]
            with torch.no_grad():
                features = torch.cat([self.features(self.images.floats(self.images.train[part]))
                                      for part in np.array_split(samples, 4)])
            self.memory.append([samples[i] for i in herd(features.double().cpu().numpy(), quota)])

    @torch.no_grad()
    def test(self):
        right = n = 0
        for k in range(self.n_classes):
            pixels = self.images.floats(self.images.test[self.images.test_of[k]])
            right += int((self.head(self.features(pixels)).argmax(1) == k).sum())
            n += len(pixels)
        return 100 * right / n


def herd(features, m):
    """iCaRL's herding, as DER has it."""
    rows = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-8)
    mean = rows.mean(0)
    w, ranked = mean.copy(), []
    for _ in range(1000):
        if len(ranked) >= min(m, len(rows)):
            break
        best = int((rows @ w).argmax())
        if best not in ranked:
            ranked.append(best)
        w += mean - rows[best]
    return ranked


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--classes", type=int, default=10, help="of each step")
    parser.add_argument("--epochs", type=int, default=30, help="of the representation stage")
    parser.add_argument("--classifier-epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, metavar="SEED", help="seed of order and augmentation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, help="of every class; all of them")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_default_device(args.device)
    torch.backends.cudnn.allow_tf32 = False  # single precision, as on the CPU
    torch.set_flush_denormal(True)  # closed masks leave numbers that are not worth their time
    with args.out.open("w") as stream:
        def report(row):
            stream.write(json.dumps(row) + "\n")
            stream.flush()

        learner = Learner(args, Images(args.data, args.steps * args.classes, args.images), report)
        for _ in range(args.steps):
            learner.learn(args.classes)


if __name__ == "__main__":
    main()
