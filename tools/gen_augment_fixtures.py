#!/usr/bin/python3
"""Writes the golden values for augmentation, resizing, class orders and herding.

Needs Pillow and numpy (Debian: python3-pil, python3-numpy). Images and features follow formulas that
the C tests repeat, so only results are stored. Usage: gen_augment_fixtures.py [FOLDER | --check]
"""
import filecmp
import math
import os
import struct
import sys
import tempfile

import numpy as np
from PIL import Image, ImageEnhance

from data_order import augment_draw, augment_tries, epoch_order, rng_at

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "tests", "data", "fixtures", "augment")


def picture(height, width, channels, seed):
    """Bytes [h, w, c] with edges, gradients and noise; the same formula is in augment_test.c."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint32), np.arange(width, dtype=np.uint32),
                          np.arange(channels, dtype=np.uint32), indexing="ij")
    noise = (y * np.uint32(73856093)) ^ (x * np.uint32(19349663)) ^ (c * np.uint32(83492791))
    noise = (noise + np.uint32(seed)) * np.uint32(2654435761) >> np.uint32(24)
    smooth = 3 * x + 5 * y + 60 * c
    step = np.where((x // 5 + y // 7) % 2 == 1, 90, 0)
    return ((smooth + step + noise // 4) & 255).astype(np.uint8)


def to_image(pixels):
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def to_pixels(image):
    pixels = np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def planar(pixels):
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


class Output:
    """A text file of cases and a binary file of results, one after the other."""

    def __init__(self, folder, name):
        self.lines, self.bytes, self.base = [], b"", os.path.join(folder, name)

    def add(self, *numbers, data):
        self.lines.append(" ".join(str(n) for n in numbers))
        self.bytes += data

    def close(self):
        with open(self.base + ".txt", "w") as file:
            file.write("\n".join(self.lines) + "\n")
        with open(self.base + ".bin", "wb") as file:
            file.write(self.bytes)


def resample(folder):
    """channels height width seed, box y x h w, result height width -> bytes [c, h, w].

    A box at full size is cut out first, as torchvision's resized_crop does."""
    out = Output(folder, "resample")
    cases = [(3, 20, 30, 1, (0, 0, 20, 30), (16, 16)), (1, 33, 17, 2, (0, 0, 33, 17), (12, 28)),
             (3, 9, 7, 3, (0, 0, 9, 7), (24, 24)), (3, 64, 80, 4, (3, 5, 50, 60), (14, 18)),
             (1, 200, 3, 5, (0, 0, 200, 3), (8, 8)), (3, 16, 16, 6, (0, 0, 16, 16), (16, 16)),
             (3, 31, 29, 7, (10, 11, 1, 1), (5, 4)), (1, 5, 300, 8, (0, 1, 5, 299), (5, 7)),
             (3, 75, 100, 9, (8, 1, 61, 95), (56, 56)), (4, 12, 13, 10, (1, 2, 10, 9), (6, 8)),
             (1, 257, 129, 11, (0, 0, 257, 129), (64, 64))]
    for channels, height, width, seed, (y, x, h, w), (to_h, to_w) in cases:
        pixels = picture(height, width, channels, seed)[y:y + h, x:x + w]
        # Channel by channel, since Pillow resizes 4-channel images through an alpha of their own.
        planes = [to_pixels(to_image(pixels[:, :, c:c + 1]).resize((to_w, to_h), Image.BILINEAR))
                  for c in range(channels)]
        if channels == 3:
            assert np.array_equal(to_pixels(to_image(pixels).resize((to_w, to_h), Image.BILINEAR)),
                                  np.concatenate(planes, 2))
        out.add(channels, height, width, seed, y, x, h, w, to_h, to_w,
                data=planar(np.concatenate(planes, 2)).tobytes())
    out.close()


def normalise(pixels, mean, std):
    """torchvision's ToTensor and Normalize, in float32 throughout."""
    mean, std = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in (mean, std))
    return ((planar(pixels).astype(np.float32) / np.float32(255)) - mean) / std


def enhance(pixels, flip, factor):
    image = to_image(pixels)
    if flip:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    if factor != 1.0:
        image = ImageEnhance.Brightness(image).enhance(factor)
    return to_pixels(image)


MEAN, STD = (.5071, .4867, .4408), (.2675, .2565, .2761)


def pad_crop(folder):
    """channels size seed pad, offsets y x, flip, bits of the factor -> float32 [c, size, size]."""
    out = Output(folder, "pad_crop")
    low, high = 1 - 63 / 255, 1 + 63 / 255
    cases = [(3, 8, 1, 2, 0, 0, 0, 1.0), (3, 8, 2, 2, 2, 2, 1, 1.0), (3, 8, 3, 2, 4, 1, 0, low),
             (3, 8, 4, 2, 1, 4, 1, high), (1, 10, 5, 3, 6, 0, 1, 1.1234567), (3, 8, 6, 0, 0, 0, 1, .9),
             (3, 32, 7, 4, 3, 8, 1, 0.8627451), (1, 9, 8, 12, 24, 0, 0, 1.2), (3, 8, 9, 2, 3, 3, 0, 0.0)]
    for channels, size, seed, pad, y, x, flip, factor in cases:
        factor = float(np.float32(factor))
        padded = np.pad(picture(size, size, channels, seed), ((pad, pad), (pad, pad), (0, 0)))
        pixels = enhance(padded[y:y + size, x:x + size], flip, factor)
        bits = struct.unpack("<I", struct.pack("<f", factor))[0]
        out.add(channels, size, seed, pad, y, x, flip, bits,
                data=normalise(pixels, MEAN[:channels], STD[:channels]).tobytes())
    out.close()


def brightness(folder):
    """bits of the factor -> 256 bytes: what Pillow makes of every byte."""
    out = Output(folder, "brightness")
    ramp = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    rng = np.random.RandomState(3)
    factors = [0.0, 0.5, 1.0, 2.0, 1 - 63 / 255, 1 + 63 / 255, 0.1, 0.3, 0.7, 0.9, 1.1, 1 / 3]
    for factor in factors + list(rng.uniform(1 - 63 / 255, 1 + 63 / 255, 40)):
        factor = float(np.float32(factor))
        bits = struct.unpack("<I", struct.pack("<f", factor))[0]
        out.add(bits, data=np.asarray(ImageEnhance.Brightness(ramp).enhance(factor)).tobytes())
    out.close()


def region(words, height, width):
    """torchvision's RandomResizedCrop.get_params, its random numbers given as 32-bit words."""
    low, high = math.log(3 / 4), math.log(4 / 3)
    for area_word, ratio_word, y_word, x_word in words:
        target = height * width * (0.08 + (1 - 0.08) * area_word / 2**32)
        ratio = math.exp(low + (high - low) * ratio_word / 2**32)
        w, h = int(round(math.sqrt(target * ratio))), int(round(math.sqrt(target / ratio)))
        if 0 < w <= width and 0 < h <= height:
            return y_word * (height - h + 1) >> 32, x_word * (width - w + 1) >> 32, h, w
    ratio, h, w = width / height, height, width
    if ratio < 3 / 4:
        h = int(round(w / (3 / 4)))
    elif ratio > 4 / 3:
        w = int(round(h * (4 / 3)))
    return (height - h) // 2, (width - w) // 2, h, w


def regions(folder):
    """height width, y x h w of the region; the binary file has 10 x 4 words for every case."""
    out = Output(folder, "regions")
    rng = np.random.RandomState(7)
    sizes = [(375, 500), (500, 333), (32, 32), (20, 400), (600, 30), (1, 1), (7, 5), (224, 224), (600, 32),
             (23, 400)]
    for height, width in sizes * 4:
        words = rng.randint(0, 2**32, (10, 4), dtype=np.uint64)
        out.add(height, width, *region([[int(v) for v in row] for row in words], height, width),
                data=words.astype("<u4").tobytes())
    out.close()


def test_transforms(folder):
    """kind (0 squash, 1 shorter side) channels height width seed resize crop -> bytes [c, crop, crop]."""
    out = Output(folder, "test_transforms")
    cases = [(0, 3, 50, 67, 1, 32, 28), (0, 3, 20, 21, 2, 32, 28), (1, 3, 50, 67, 3, 32, 28),
             (1, 3, 90, 40, 4, 32, 28), (1, 1, 33, 90, 5, 24, 17), (1, 3, 32, 32, 6, 32, 27),
             (0, 1, 40, 30, 7, 24, 24)]
    for kind, channels, height, width, seed, resize, crop in cases:
        image = to_image(picture(height, width, channels, seed))
        if kind == 0:
            size = (resize, resize)
        elif width <= height:
            size = (resize, int(resize * height / width))
        else:
            size = (int(resize * width / height), resize)
        image = image.resize(size, Image.BILINEAR)
        top, left = int(round((size[1] - crop) / 2)), int(round((size[0] - crop) / 2))
        out.add(kind, channels, height, width, seed, resize, crop,
                data=planar(to_pixels(image.crop((left, top, left + crop, top + crop)))).tobytes())
    out.close()


def orders(folder):
    """seed n -> uint16 [n]: numpy's legacy shuffle."""
    out = Output(folder, "orders")
    for seed, n in [(1993, 100), (1993, 1000), (0, 10), (1, 1), (2**32 - 1, 257), (42, 2)]:
        order = np.arange(n)
        np.random.RandomState(seed).shuffle(order)
        out.add(seed, n, data=order.astype("<u2").tobytes())
    out.close()


def features(n, d, seed, copies):
    """Float32 [n, d] in (0, 1]; the last `copies` rows repeat the first ones. As in exemplar_test.c."""
    i, k = np.meshgrid(np.arange(n, dtype=np.uint32), np.arange(d, dtype=np.uint32), indexing="ij")
    i = np.where(i >= n - copies, i - np.uint32(n - copies), i)
    mixed = (i * np.uint32(73856093)) ^ (k * np.uint32(19349663)) ^ np.uint32(seed * 83492791)
    mixed = mixed * np.uint32(2654435761)
    mixed ^= mixed >> np.uint32(15)
    mixed = mixed * np.uint32(2246822519)
    return (((mixed >> np.uint32(8)) + 1) / 2**24).astype(np.float32)


def herd(rows, m):
    """The loop of the DER code (tools/memory.py), with exact sums so that ties are ties."""
    rows = [[float(v) for v in row] for row in rows]
    rows = [[v / (math.sqrt(math.fsum(u * u for u in row)) + 1e-8) for v in row] for row in rows]
    mean = [math.fsum(column) / len(rows) for column in zip(*rows)]
    w, ranks, margin = list(mean), [], 1.0
    for _ in range(1000):
        if len(ranks) == min(m, len(rows)):
            break
        scores = [math.fsum(a * b for a, b in zip(w, row)) for row in rows]
        best = max(scores)
        pick = scores.index(best)
        margin = min([margin] + [best - s for s in scores if s != best])
        if pick not in ranks:
            ranks.append(pick)
        w = [a + b - c for a, b, c in zip(w, mean, rows[pick])]
    # A pick that rounding could turn would make the case useless.
    assert margin > 1e-12, margin
    return ranks


def herding(folder):
    """n d seed copies m, number of ranks -> int32 [ranks]."""
    out = Output(folder, "herding")
    for n, d, seed, copies, m in [(40, 12, 1, 0, 10), (40, 12, 2, 0, 40), (30, 5, 3, 6, 20),
                                  (7, 3, 4, 0, 20), (25, 33, 5, 25 // 2, 25), (1, 4, 6, 0, 1),
                                  (60, 2, 7, 0, 60)]:
        ranks = herd(features(n, d, seed, copies), m)
        out.add(n, d, seed, copies, m, len(ranks), data=np.asarray(ranks, "<i4").tobytes())
    out.close()


def shuffles(folder):
    """seed epoch n -> int32 [n]: the order of an epoch."""
    assert [hex(v) for v in rng_at(0, 0, 0, 0)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    out = Output(folder, "shuffles")
    for seed, epoch, n in [(1993, 2, 10), (1, 0, 101), (2**63 + 5, 169, 64), (7, 4294967295, 2), (3, 1, 1)]:
        out.add(seed % 2**64 - (2**64 if seed >= 2**63 else 0), epoch, n,
                data=np.asarray(epoch_order(seed, epoch, n), "<i4").tobytes())
    out.close()


def draws(folder):
    """seed epoch sample -> 3 + 1 + 40 words: y, x, flip, bits of the factor (63/255), the tries."""
    out = Output(folder, "draws")
    for seed, epoch, sample in [(0, 0, 0), (1993, 5, 49999), (2**40 + 1, 169, 7), (1, 2**32 - 1, 1281166)]:
        y, x, flip, factor = augment_draw(seed, epoch, sample, 63 / 255)
        bits = struct.unpack("<I", struct.pack("<f", factor))[0]
        out.add(seed, epoch, sample, data=np.asarray([y, x, flip, bits], "<u4").tobytes() +
                augment_tries(seed, epoch, sample).astype("<u4").tobytes())
    out.close()


def files(folder):
    """Image files for the loader's tests; the PNG files hold the pictures of test_transforms."""
    for name, height, width, seed in [("a.png", 50, 67, 1), ("b.png", 20, 21, 2)]:
        to_image(picture(height, width, 3, seed)).save(os.path.join(folder, name), optimize=True)
    for name, height, width, seed in [("c.jpg", 60, 80, 3), ("d.jpg", 100, 75, 4), ("e.jpg", 40, 40, 5)]:
        to_image(picture(height, width, 3, seed)).save(os.path.join(folder, name), quality=70)


PARTS = (files, shuffles, draws, resample, pad_crop, brightness, regions, test_transforms, orders, herding)


def write_all(folder):
    os.makedirs(folder, exist_ok=True)
    for part in PARTS:
        part(folder)


def check():
    with tempfile.TemporaryDirectory() as folder:
        write_all(folder)
        names = sorted(os.listdir(folder))
        _, wrong, missing = filecmp.cmpfiles(folder, FOLDER, names, shallow=False)
    for name in wrong + missing:
        print(f"gen_augment_fixtures: {name} is not what is committed")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    write_all(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
