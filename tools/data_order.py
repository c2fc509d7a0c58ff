"""The random draws of the C library in Python: epoch orders, augmentation, balanced subsets, initial values.

For golden values and for training the same network elsewhere on the same data in the same order.
Written from the documentation in src/core/rng.h, src/data/sampler.c, src/data/augment.c, src/data/view.h
and src/nn/init.c.
"""
import numpy as np

RNG_INIT_WEIGHTS, RNG_INIT_HEAD, RNG_INIT_MASK = 1, 2, 3
RNG_AUGMENT, RNG_SHUFFLE, RNG_BALANCED, RNG_STAGE = 20, 21, 22, 24
STAGE_REPRESENTATION, STAGE_CLASSIFIER, STAGE_BALANCE = 1, 2, 3
STREAM_TENSORS = 4096  # tensors of one module
BLOCKS_PER_SAMPLE, TRIES = 16, 10


def rng_at(seed, purpose, stream, index):
    """Philox4x32-10: four 32-bit words for each index (an array or one number), [..., 4]."""
    index = np.asarray(index, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c0, c1 = index & low, index >> np.uint64(32)
    c2, c3 = np.full_like(index, stream), np.full_like(index, purpose)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c2 = (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & low, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], -1)


def rng_normal(seed, purpose, stream, n):
    """n draws of N(0, 1) by the Box-Muller transform."""
    words = rng_at(seed, purpose, stream, np.arange((n + 3) // 4)).reshape(-1, 2).astype(np.float64)
    radius = np.sqrt(-2 * np.log((words[:, 0] + 1) / 2**32))
    angle = 2 * np.pi * words[:, 1] / 2**32
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)[:n]


def rng_uniform(seed, purpose, stream, n, bound):
    """n draws of U[-bound, bound), of 24 bits each."""
    words = rng_at(seed, purpose, stream, np.arange((n + 3) // 4)).reshape(-1)[:n]
    return bound * (2 * (words >> np.uint64(8)).astype(np.float64) / 2**24 - 1)


def init_normal(seed, purpose, module, index, n):
    """Tensor `index` of module `module`."""
    return rng_normal(seed, purpose, module * STREAM_TENSORS + index, n)


def init_uniform(seed, purpose, module, index, n, bound):
    return rng_uniform(seed, purpose, module * STREAM_TENSORS + index, n, bound)


def stage_seed(seed, stage, step):
    """The seed of a stage's batches; steps count from 0."""
    words = rng_at(seed, RNG_STAGE, stage, step)
    return int(words[1]) << 32 | int(words[0])


def balanced(seed, step, items):
    """view_balanced: of every label as many (sample, label) as the rarest one has, by label."""
    words = rng_at(seed, RNG_BALANCED, step, [sample for sample, _ in items])
    keys = [int(w[0]) << 32 | int(w[1]) for w in words]
    by_label = {}
    for at in sorted(range(len(items)), key=lambda i: keys[i]):
        by_label.setdefault(items[at][1], []).append(at)
    rarest = min(map(len, by_label.values()))
    return [items[at] for label in sorted(by_label) for at in sorted(by_label[label][:rarest])]


def epoch_order(seed, epoch, n):
    """The permutation of sampler_epoch."""
    words = rng_at(seed, RNG_SHUFFLE, epoch, np.arange(n // 2 + 1))
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        high, low = (int(word) for word in words[i // 2][2 * (i % 2):2 * (i % 2) + 2])
        j = ((high << 32) | low) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def augment_draw(seed, epoch, sample, brightness):
    """Words for the place (y, x), flip, and factor of the brightness (None when brightness is 0)."""
    y, x, flip, factor = (v.item() for v in augment_draws(seed, epoch, sample, brightness))
    return y, x, flip, factor if brightness > 0 else None


def augment_draws(seed, epoch, samples, brightness):
    """The same of many samples at once, as arrays."""
    blocks = rng_at(seed, RNG_AUGMENT, epoch, np.asarray(samples) * BLOCKS_PER_SAMPLE)
    y, x, flip, bright = np.moveaxis(blocks, -1, 0)
    low, high = max(0.0, 1 - brightness), 1 + brightness
    factor = (low + (high - low) * (bright / 2**32)).astype(np.float32)
    return y, x, flip >> np.uint64(31), factor


def augment_tries(seed, epoch, sample):
    """The words [10][4] of the random resized crop."""
    first = sample * BLOCKS_PER_SAMPLE + 1
    return rng_at(seed, RNG_AUGMENT, epoch, np.arange(first, first + TRIES))


def pad_crop_place(word, size, pad, crop):
    """Offset in the padded image."""
    return word * (size + 2 * pad - crop + 1) >> 32
