#!/usr/bin/python3
"""Photo-like JPEG files for tests: one object in front of a cluttered scene, every file of another size.

    make_photos.py [--sides LEAST MOST] DIR FIRST COUNT CLASS...

writes DIR/CLASS/NNN.jpg for the numbers FIRST to FIRST + COUNT - 1, with sides of LEAST to MOST pixels (90 to 260). A
file depends on that, its class and its number alone. Place, size, colour and light vary from file to file; the shape of the object tells the class.
"""
import argparse
import math
import os
import random

from PIL import Image, ImageDraw, ImageFilter


def polygon(points, centre, radius):
    return [(centre[0] + radius * x, centre[1] + radius * y) for x, y in points]


def apple(draw, c, r, colour):
    draw.ellipse((c[0] - r, c[1] - r, c[0] + r, c[1] + r), fill=colour)


def book(draw, c, r, colour):
    draw.rectangle((c[0] - r, c[1] - 0.7 * r, c[0] + r, c[1] + 0.7 * r), fill=colour)
    for i in range(-2, 3):
        y = c[1] + 0.25 * i * r
        draw.line((c[0] - 0.8 * r, y, c[0] + 0.8 * r, y), fill=(20, 20, 20), width=max(1, int(r / 12)))


def tent(draw, c, r, colour):
    draw.polygon(polygon([(-1, 0.9), (1, 0.9), (0, -1)], c, r), fill=colour)


def ring(draw, c, r, colour):
    draw.ellipse((c[0] - r, c[1] - r, c[0] + r, c[1] + r), outline=colour, width=max(2, int(0.35 * r)))


def cross(draw, c, r, colour):
    draw.rectangle((c[0] - r, c[1] - 0.3 * r, c[0] + r, c[1] + 0.3 * r), fill=colour)
    draw.rectangle((c[0] - 0.3 * r, c[1] - r, c[0] + 0.3 * r, c[1] + r), fill=colour)


def fence(draw, c, r, colour):
    for i in range(-3, 4):
        x = c[0] + i * r / 3
        draw.rectangle((x - 0.09 * r, c[1] - r, x + 0.09 * r, c[1] + r), fill=colour)


def star(draw, c, r, colour):
    points = [(math.sin(i * math.pi / 5), -math.cos(i * math.pi / 5)) for i in range(10)]
    draw.polygon(polygon([(x * (0.45 if i % 2 else 1), y * (0.45 if i % 2 else 1))
                          for i, (x, y) in enumerate(points)], c, r), fill=colour)


def stairs(draw, c, r, colour):
    for i in range(4):
        left, top = c[0] - r + i * r / 2, c[1] + r - (i + 1) * r / 2
        draw.rectangle((left, top, left + r / 2, c[1] + r), fill=colour)


def window(draw, c, r, colour):
    for x in (-1, 0.1):
        for y in (-1, 0.1):
            draw.rectangle((c[0] + x * r, c[1] + y * r, c[0] + (x + 0.9) * r, c[1] + (y + 0.9) * r), fill=colour)


def bottle(draw, c, r, colour):
    draw.rectangle((c[0] - 0.4 * r, c[1] - 0.2 * r, c[0] + 0.4 * r, c[1] + r), fill=colour)
    draw.rectangle((c[0] - 0.14 * r, c[1] - r, c[0] + 0.14 * r, c[1] - 0.2 * r), fill=colour)


SHAPES = {"apple": (apple, (200, 50, 40)), "book": (book, (60, 90, 190)), "tent": (tent, (60, 150, 60)),
          "ring": (ring, (220, 180, 50)), "cross": (cross, (210, 210, 215)), "fence": (fence, (120, 70, 40)),
          "star": (star, (210, 190, 70)), "stairs": (stairs, (130, 120, 110)), "window": (window, (80, 110, 180)),
          "bottle": (bottle, (70, 140, 80))}


def vary(chance, colour, by):
    light = chance.uniform(0.8, 1.15)
    return tuple(max(0, min(255, int(light * v + chance.gauss(0, by)))) for v in colour)


def scene(chance, width, height):
    """A smooth backdrop with blurred clutter and grain."""
    small = Image.new("RGB", (4, 4))
    grey = chance.randint(70, 190)
    base = vary(chance, (grey, grey, grey), 10)
    small.putdata([vary(chance, base, 8) for _ in range(16)])
    image = small.resize((width, height), Image.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(chance.randint(3, 8)):
        x, y = chance.uniform(0, width), chance.uniform(0, height)
        w, h = (chance.uniform(0.05, 0.3) * min(width, height) for _ in range(2))
        draw.rectangle((x, y, x + w, y + h), fill=vary(chance, base, 20))
    return image.filter(ImageFilter.GaussianBlur(min(width, height) / 40))


def photo(name, number, least, most):
    shape, colour = SHAPES[name]
    chance = random.Random(f"{name} {number}")
    width, height = chance.randint(least, most), chance.randint(least, most)
    image = scene(chance, width, height)
    side = min(width, height)
    radius = chance.uniform(0.22, 0.34) * side
    centre = (width / 2 + chance.uniform(-0.12, 0.12) * side, height / 2 + chance.uniform(-0.12, 0.12) * side)
    shape(ImageDraw.Draw(image), centre, radius, vary(chance, colour, 22))
    grain = Image.frombytes("RGB", (width, height), chance.randbytes(3 * width * height))
    return Image.blend(image, grain, 0.06)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs=2, default=(90, 260), metavar=("LEAST", "MOST"))
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("classes", nargs="+", choices=sorted(SHAPES), metavar="CLASS")
    args = parser.parse_args()
    for name in args.classes:
        os.makedirs(f"{args.folder}/{name}", exist_ok=True)
        for number in range(args.first, args.first + args.count):
            photo(name, number, *args.sides).save(f"{args.folder}/{name}/{number:03d}.jpg", quality=88)


main()
