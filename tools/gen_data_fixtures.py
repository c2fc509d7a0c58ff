#!/usr/bin/python3
"""Writes the small data files that the readers' tests compare with: tests/data/fixtures/<kind>.

numpy, Python's pickle and gzip, and Pillow make the files; Pillow decodes the images, and what it
sees is stored beside them as .ppm or .pgm. PNG kinds that Pillow cannot write are put together
here, and Pillow reads them all the same. Genuine Python 2 pickles need a Python 2 with numpy, named
in DER_PYTHON2, and pickles of numpy 2 a Python that has it, named in DER_PYTHON_NUMPY2; without
them the files that are there stay.

Usage: tools/gen_data_fixtures.py [FOLDER]
"""
import gzip
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

TOOLS = os.path.dirname(os.path.abspath(__file__))
ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOOLS, "..", "tests", "data", "fixtures")


def path(*parts):
    name = os.path.join(ROOT, *parts)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    return name


def write(data, *parts):
    with open(path(*parts), "wb") as stream:
        stream.write(data)


# ---- CIFAR ---------------------------------------------------------------------------------------


def records(rng, labels):
    rows = [bytes(label) + rng.integers(0, 256, 3072, dtype=np.uint8).tobytes() for label in labels]
    return b"".join(rows)


def pickle_file(python, source, classes, protocol, out, *options):
    tool = os.path.join(TOOLS, "write_cifar_pickle.py")
    subprocess.run([python, tool, source, str(classes), str(protocol), out, *options], check=True)


def cifar(rng):
    names100 = "".join("fine %d\n" % i for i in range(100))
    names10 = "airplane automobile bird cat deer dog frog horse ship truck".replace(" ", "\n")
    write(names100.encode(), "cifar100_bin", "fine_label_names.txt")
    write(records(rng, [(3, 7), (0, 99)]), "cifar100_bin", "train.bin")
    write(records(rng, [(19, 42)]), "cifar100_bin", "test.bin")
    write((names10 + "\n\n").encode(), "cifar10_bin", "batches.meta.txt")
    for i in range(1, 6):
        write(records(rng, [(i,)]), "cifar10_bin", "data_batch_%d.bin" % i)
    write(records(rng, [(9,)]), "cifar10_bin", "test_batch.bin")

    train = path("cifar100_bin", "train.bin")
    for protocol in range(2, 6):
        pickle_file("/usr/bin/python3", train, 100, protocol, path("pickle", "py3_p%d" % protocol))
    pickle_file("/usr/bin/python3", train, 100, 2, path("pickle", "py3_p2_fortran"), "--fortran")
    newer = os.environ.get("DER_PYTHON_NUMPY2")
    if newer:
        pickle_file(newer, train, 100, 4, path("pickle", "numpy2_p4"))
        pickle_file(newer, train, 100, 5, path("pickle", "numpy2_p5_fortran"), "--fortran")
    older = os.environ.get("DER_PYTHON2")
    if older:
        for name in ("train", "test"):
            source = path("cifar100_bin", name + ".bin")
            pickle_file(older, source, 100, 2, path("cifar100_py", name))
        source = path("cifar100_bin", "fine_label_names.txt")
        pickle_file(older, source, "names", 2, path("cifar100_py", "meta"))
        for name in ["data_batch_%d" % i for i in range(1, 6)] + ["test_batch"]:
            source = path("cifar10_bin", name + ".bin")
            pickle_file(older, source, 10, 2, path("cifar10_py", name))
        source = path("cifar10_bin", "batches.meta.txt")
        pickle_file(older, source, "names", 2, path("cifar10_py", "batches.meta"))


# ---- IDX -----------------------------------------------------------------------------------------


def idx(rng):
    for split, n in (("train", 7), ("t10k", 3)):
        images = rng.integers(0, 256, (n, 5, 6), dtype=np.uint8)
        labels = (np.arange(n) % 4).astype(np.uint8)
        image_file = struct.pack(">4I", 0x0803, n, 5, 6) + images.tobytes()
        label_file = struct.pack(">2I", 0x0801, n) + labels.tobytes()
        write(image_file, "idx_plain", split + "-images-idx3-ubyte")
        write(label_file, "idx_plain", split + "-labels-idx1-ubyte")
        write(gzip.compress(image_file, mtime=0), "idx_gzip", split + "-images.idx3-ubyte.gz")
        write(gzip.compress(label_file, mtime=0), "idx_gzip", split + "-labels.idx1-ubyte.gz")


# ---- images --------------------------------------------------------------------------------------


def picture(width, height, channels=3):
    """Smooth colours with an edge, so that JPEG has something to do at every frequency."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 100 * np.sin(x * 0.31 + y * 0.17),
        255.0 * y / max(1, height - 1),
        127 + 90 * np.cos(x * 0.13 - y * 0.37) + 60 * (x > width // 2),
        80 + 60 * np.sin(x * 0.11),
    ]
    return np.clip(np.stack(planes[:channels], axis=-1), 0, 255).astype(np.uint8)


def expect(image, *parts):
    """What the reader must see: .ppm for RGB, .pgm for grey."""
    name = os.path.splitext(path(*parts))[0]
    image.save(name + (".ppm" if image.mode == "RGB" else ".pgm"))


def set_adobe_transform(data, transform):
    at = data.index(b"Adobe")
    return data[: at + 11] + bytes([transform]) + data[at + 12 :]


def drop_adobe(data):
    at = data.index(b"Adobe") - 4
    size = struct.unpack(">H", data[at + 2 : at + 4])[0]
    return data[:at] + data[at + 2 + size :]


def exif(orientation, order):
    """An APP1 segment with one entry before the orientation."""
    e = ">" if order == b"MM" else "<"
    tiff = order + struct.pack(e + "HI", 42, 8) + struct.pack(e + "H", 2)
    tiff += struct.pack(e + "HHIHH", 0x0103, 3, 1, 6, 0)
    tiff += struct.pack(e + "HHIHH", 0x0112, 3, 1, orientation, 0) + struct.pack(e + "I", 0)
    return b"Exif\0\0" + tiff


def jpeg():
    rgb = Image.fromarray(picture(37, 29))
    cmyk = Image.fromarray(picture(21, 18, 4), "CMYK")
    kinds = {
        "420": (rgb, {"subsampling": 2}),
        "444": (rgb, {"subsampling": 0}),
        "progressive": (rgb, {"progressive": True}),
        "grey": (rgb.convert("L"), {}),
        "cmyk": (cmyk, {}),
    }
    for name, (image, options) in kinds.items():
        image.save(path("jpeg", name + ".jpg"), quality=85, **options)
        expect(Image.open(path("jpeg", name + ".jpg")).convert("RGB"), "jpeg", name)
    expect(Image.open(path("jpeg", "420.jpg")).convert("L"), "jpeg", "420")

    inked = open(path("jpeg", "cmyk.jpg"), "rb").read()
    write(set_adobe_transform(inked, 2), "jpeg", "ycck.jpg")
    write(drop_adobe(inked), "jpeg", "cmyk_plain.jpg")
    plain = open(path("jpeg", "444.jpg"), "rb").read()
    adobe = b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, 0)
    write(plain[:2] + adobe + plain[20:], "jpeg", "rgb.jpg")  # without JFIF's APP0
    for name in ("ycck", "cmyk_plain", "rgb"):
        expect(Image.open(path("jpeg", name + ".jpg")).convert("RGB"), "jpeg", name)

    small = Image.fromarray(picture(13, 9))
    for orientation in range(1, 9):
        name = "exif_%d.jpg" % orientation
        order = b"MM" if orientation % 2 else b"II"
        small.save(path("jpeg", name), quality=90, exif=exif(orientation, order))
        upright = ImageOps.exif_transpose(Image.open(path("jpeg", name)))
        expect(upright.convert("RGB"), "jpeg", name)

    for scale, wanted in ((4, (18, 14)), (2, (9, 7)), (1, (4, 3))):
        image = Image.open(path("jpeg", "420.jpg"))
        image.draft("RGB", wanted)
        expect(image.convert("RGB"), "jpeg", "420_scale_%d" % scale)


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))  # x, y, step x, step y


def png_rows(samples, depth):
    """Rows of samples [h, w, c], packed, each after a filter byte."""
    out = b""
    for row in samples:
        if depth == 16:
            packed = row.astype(">u2").tobytes()
        elif depth == 8:
            packed = row.astype(np.uint8).tobytes()
        else:
            bits = ((row.reshape(-1, 1) >> np.arange(depth - 1, -1, -1)) & 1).reshape(-1)
            packed = np.packbits(bits.astype(np.uint8)).tobytes()
        out += b"\0" + packed
    return out


def png_chunk(kind, data):
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png_bytes(samples, depth, colour, palette=None, alpha=None, interlaced=False):
    height, width = samples.shape[:2]
    if interlaced:
        raw = b""
        for x, y, step_x, step_y in ADAM7:
            part = samples[y::step_y, x::step_x]
            if part.size:
                raw += png_rows(part, depth)
    else:
        raw = png_rows(samples, depth)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    out = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)
    if palette is not None:
        out += png_chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if alpha is not None:
        out += png_chunk(b"tRNS", alpha)
    return out + png_chunk(b"IDAT", zlib.compress(raw, 9)) + png_chunk(b"IEND", b"")


def png(rng):
    kinds = {}
    for depth in (1, 2, 4, 8, 16):
        samples = rng.integers(0, 1 << depth, (7, 11, 1))
        kinds["grey%d" % depth] = (samples, depth, 0)
    for depth in (1, 2, 4, 8):
        samples = rng.integers(0, 1 << depth, (7, 11, 1))
        palette = rng.integers(0, 256, (1 << depth, 3))
        kinds["palette%d" % depth] = (samples, depth, 3, palette)
    kinds["palette4_alpha"] = kinds["palette4"] + (bytes(range(0, 160, 10)),)
    kinds["grey8_key"] = kinds["grey8"] + (None, b"\0\x11")
    for name, colour, channels in (("rgb", 2, 3), ("grey_alpha", 4, 2), ("rgb_alpha", 6, 4)):
        for depth in (8, 16):
            samples = rng.integers(0, 1 << depth, (7, 11, channels))
            kinds["%s%d" % (name, depth)] = (samples, depth, colour)
    for name in ("grey1", "palette4", "rgb8", "grey16"):
        kinds[name + "_interlaced"] = kinds[name]
    for name, arguments in kinds.items():
        write(png_bytes(*arguments, interlaced=name.endswith("interlaced")), "png", name + ".png")
        image = Image.open(path("png", name + ".png"))
        if image.mode.startswith("I"):  # Pillow would cut off at 255 instead of scaling
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        expect(image.convert("RGB"), "png", name)
        if name in ("rgb8", "grey4"):
            expect(image.convert("L"), "png", name)


def main():
    rng = np.random.default_rng(1993)
    cifar(rng)
    idx(rng)
    jpeg()
    png(rng)


main()
