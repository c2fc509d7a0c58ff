"""The twin of der_curve: the same training in PyTorch, and the same lines.

    curve_torch.py DATA FOLDER [--epochs N] [--warmup N] [--warmup-lr X] [--lr X] [--seed N]
                   [--threads N] [--iterations N] [--double]

FOLDER holds what der_curve has written there: the parameters it started from, which are taken here too,
and those it ended with. DATA is the binary distribution of CIFAR-100. Order and augmentation come from
tools/data_order.py; everything else is written here anew. Behind the last line of der_curve comes one
more, "test_der": the accuracy of what der_curve ended with, computed here. FOLDER receives
torch-final.bin, in the order of init.txt. --double computes in float64.
"""
import argparse
import pathlib
import sys

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import data_order  # noqa: E402

BATCH, TEST_BATCH = 128, 250
SIZE, PAD, BRIGHTNESS = 32, 4, 63 / 255
MEAN = np.array([.5071, .4867, .4408], np.float32).reshape(3, 1, 1)
STD = np.array([.2675, .2565, .2761], np.float32).reshape(3, 1, 1)
WIDTHS, N_BLOCKS = (16, 32, 64), 5


# ---- network, with torchvision's names -----------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.downsample = None
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False),
                                            nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Network(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        c_in = WIDTHS[0]
        for stage, width in enumerate(WIDTHS, 1):
            blocks = [Block(c_in if b == 0 else width, width, 2 if stage > 1 and b == 0 else 1)
                      for b in range(N_BLOCKS)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            c_in = width
        self.classifier = nn.Linear(c_in, n_classes, bias=False)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.classifier(x.mean((2, 3)))


def read_state(folder, name):
    """The classes in their order, and parameters and running statistics by name."""
    lines = (folder / f"{name}.txt").read_text().splitlines()
    classes = [int(word) for word in lines[0].split()[1:]]
    values = np.fromfile(folder / f"{name}.bin", "<f4")
    state, at = {}, 0
    for line in lines[1:]:
        name, *shape = line.split()
        shape = tuple(map(int, shape))
        n = int(np.prod(shape))
        state[name] = torch.from_numpy(values[at:at + n].reshape(shape).copy())
        at += n
    assert at == len(values), f"{name}.bin and {name}.txt do not belong together"
    return classes, state


def make_network(n_classes, state):
    network = Network(n_classes)
    missing, unexpected = network.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert not missing and not unexpected, (missing, unexpected)
    return network


# ---- data ----------------------------------------------------------------------------------------


def read_split(path, classes):
    """Images of the whole split, and (sample, label) class by class in learning order."""
    records = np.fromfile(path, np.uint8).reshape(-1, 2 + 3 * SIZE * SIZE)
    images, fine = records[:, 2:].reshape(-1, 3, SIZE, SIZE), records[:, 1]
    items = [(int(sample), label) for label, number in enumerate(classes)
             for sample in np.flatnonzero(fine == number)]
    return images, items


def normalise(image):
    return (image.astype(np.float32) / np.float32(255) - MEAN) / STD


def augmented(image, seed, epoch, sample):
    """Crop out of a border of zeros, flip, brightness on bytes with truncation, normalisation."""
    y, x, flip, factor = data_order.augment_draw(seed, epoch, sample, BRIGHTNESS)
    y, x = (data_order.pad_crop_place(word, SIZE, PAD, SIZE) for word in (y, x))
    crop = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))[:, y:y + SIZE, x:x + SIZE]
    if flip:
        crop = crop[:, :, ::-1]
    bright = np.minimum(crop.astype(np.float32) * np.float32(factor), np.float32(255))
    return normalise(bright.astype(np.uint8))


def batches(items, images, seed, epoch):
    order = data_order.epoch_order(seed, epoch, len(items))
    for begin in range(0, len(order), BATCH):
        chosen = [items[i] for i in order[begin:begin + BATCH]]
        pixels = np.stack([augmented(images[s], seed, epoch, s) for s, _ in chosen])
        yield torch.from_numpy(pixels), torch.tensor([label for _, label in chosen])


# ---- training ------------------------------------------------------------------------------------


def train(args, network, images, items):
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    network.train()
    done = 0
    for epoch in range(args.epochs):
        lr = args.warmup_lr if epoch < args.warmup else args.lr
        for group in optimizer.param_groups:
            group["lr"] = lr
        for iteration, (pixels, labels) in enumerate(batches(items, images, args.seed, epoch)):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(pixels.to(args.dtype)), labels)
            loss.backward()
            optimizer.step()
            print(f"{epoch} {iteration} {len(labels)} {lr:.9g} {loss.item():.9g}", flush=True)
            done += 1
            if done == args.iterations:
                return


@torch.no_grad()
def test(args, network, images, items):
    """Top-1 accuracy in per cent, by the running statistics."""
    network.eval()
    right = 0
    for begin in range(0, len(items), TEST_BATCH):
        chosen = items[begin:begin + TEST_BATCH]
        pixels = torch.from_numpy(np.stack([normalise(images[s]) for s, _ in chosen]))
        labels = torch.tensor([label for _, label in chosen])
        right += int((network(pixels.to(args.dtype)).argmax(1) == labels).sum())
    return 100 * right / len(items)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--warmup-lr", type=float, default=3e-5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=0, help="to stop after; 0: all epochs")
    parser.add_argument("--double", dest="dtype", action="store_const", const=torch.float64,
                        default=torch.float32)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    classes, state = read_state(args.folder, "init")
    network = make_network(len(classes), state).to(args.dtype)
    train(args, network, *read_split(args.data / "train.bin", classes))
    trained = network.state_dict()
    torch.cat([trained[name].flatten().float() for name in state]).numpy().tofile(
        args.folder / "torch-final.bin")
    split = read_split(args.data / "test.bin", classes)
    print(f"test {test(args, network, *split):.2f}")
    theirs = make_network(len(classes), read_state(args.folder, "final")[1]).to(args.dtype)
    print(f"test_der {test(args, theirs, *split):.2f}")


if __name__ == "__main__":
    main()
