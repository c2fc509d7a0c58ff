"""Golden values of what a learner sees and keeps: class orders, herding, balanced subsets.

Written with numpy from the description of the method: herding as iCaRL has it, one subset a step
with the count of the rarest class. Tests repeat the inputs by formula.
"""
import numpy as np

from golden.store import Store, noise

SEED = 900
PER_CLASS_CIFAR = 500
# Two best scores this close could change places by rounding.
MARGIN = 1e-9
MAX_PICKS = 1000


def legacy_order(n):
    order = np.arange(n)
    np.random.RandomState(1993).shuffle(order)
    return order


def herd(features, m):
    """Ranks of the m best: follow the mean of the normalised features."""
    rows = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-8)
    mean = rows.mean(0)
    w, ranks = mean.copy(), []
    for _ in range(MAX_PICKS):
        if len(ranks) == min(m, len(rows)):
            break
        scores = rows @ w
        best, second = scores.argmax(), np.sort(scores)[-2:][0]
        assert len(rows) == 1 or scores[best] - second > MARGIN
        if best not in ranks:
            ranks.append(best)
        w += mean - rows[best]
    return ranks


def put_herding(store):
    """Features are positive, as ReLU and average pooling make them. One class is spread so thinly
    that some images are never picked."""
    cases = [("few", 12, 5, 4), ("all", 20, 9, 20), ("more", 6, 3, 50), ("one", 1, 4, 3),
             ("thin", 50, 2, 50)]
    for name, n, dim, m in cases:
        features = noise("herd/" + name, SEED, (n, dim), 1.0, 1.0).numpy()
        ranks = herd(features, m)
        store.put(f"herd/{name}/size", [n, dim, m])
        store.put(f"herd/{name}/ranks", ranks)
        assert (len(ranks) < min(m, n)) == (name == "thin")


def balanced_counts(sizes, mode, budget, base, step):
    """For every step: images of each class in D_t with M_t, and in the balanced subset."""
    n_classes, seen, memory = len(sizes), 0, {}
    rng = np.random.RandomState(0)
    counts, balanced = [], []
    while seen < n_classes:
        new = range(seen, min(n_classes, seen + (step if seen else base)))
        data = {**memory, **{c: np.arange(sizes[c]) for c in new}}
        labels = np.concatenate([np.full(len(images), c) for c, images in data.items()])
        counts.append(np.bincount(labels, minlength=n_classes))
        rarest = np.unique(labels, return_counts=True)[1].min()
        chosen = {c: rng.choice(images, rarest, replace=False) for c, images in data.items()}
        assert {len(set(images)) for images in chosen.values()} == {rarest}
        balanced.append(rarest)
        seen = new[-1] + 1
        quota = budget // seen if mode == "total" else budget
        memory = {c: images[:quota] for c, images in data.items()}
    return np.array(counts), np.array(balanced)


def put_balanced(store):
    uneven, cifar = [9, 5, 12, 7, 30, 3, 8], [PER_CLASS_CIFAR] * 100
    cases = [("uneven_total", uneven, "total", 20, 3, 2), ("uneven_each", uneven, "each", 4, 2, 1),
             ("uneven_first", [3, 9, 12, 7], "each", 10, 2, 1)]
    cases += [(f"b0_{steps}", cifar, "total", 2000, 100 // steps, 100 // steps)
              for steps in (5, 10, 20, 50)]
    cases += [(f"b50_{steps}", cifar, "each", 20, 50, 50 // steps) for steps in (2, 5, 10)]
    for name, sizes, mode, budget, base, step in cases:
        counts, balanced = balanced_counts(sizes, mode, budget, base, step)
        store.put(f"balance/{name}/sizes", sizes)
        store.put(f"balance/{name}/plan", [int(mode == "each"), budget, base, step])
        store.put(f"balance/{name}/balanced", balanced)
        if name.startswith("uneven"):
            store.put(f"balance/{name}/counts", counts)


def make():
    store = Store(SEED)
    for n in (100, 1000):
        store.put(f"order/{n}", legacy_order(n))
    put_herding(store)
    put_balanced(store)
    store.metadata["herd"] = "few all more one thin"
    store.metadata["balance"] = ("uneven_total uneven_each uneven_first b0_5 b0_10 b0_20 b0_50 "
                                 "b50_2 b50_5 b50_10")
    return store
