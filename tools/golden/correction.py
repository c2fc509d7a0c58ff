"""Golden values of bias correction: beta and gamma of the new classes' logits.

Minimised by PyTorch's L-BFGS in float64 from the definition, not by the derivatives that the library uses.
"""
import torch
import torch.nn.functional as F

from golden.store import Store, noise

SEED = 1100
GAMMA_DECAY, BETA_DECAY = 0.1, 1e-3
# name, images, old classes, new classes, advantage of the new ones' logits, spread of all logits
CASES = [("favoured", 40, 6, 4, 2.0, 2.0), ("neglected", 30, 5, 5, -1.5, 1.0), ("many", 60, 9, 1, 3.0, 3.0),
         ("apart", 24, 2, 2, 0.0, 0.5)]


def objective(logits, labels, n_old, beta, gamma):
    corrected = torch.cat([logits[:, :n_old], beta * logits[:, n_old:] + gamma], 1)
    return F.cross_entropy(corrected, labels) + GAMMA_DECAY * gamma ** 2 / 2 + BETA_DECAY * (beta - 1) ** 2 / 2


def minimise(logits, labels, n_old):
    place = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([place], max_iter=1000, tolerance_grad=1e-13, tolerance_change=1e-16,
                                  line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = objective(logits, labels, n_old, place[0], place[1])
        loss.backward()
        return loss
    loss = optimiser.step(closure)
    assert place.grad.abs().max() < 1e-8
    loss = objective(logits, labels, n_old, place[0], place[1])
    return [*place.tolist(), loss.item()]


def make():
    """Of the last case every image has a logit far above the others: it can be told without error."""
    store = Store(SEED)
    for name, n, n_old, n_new, advantage, spread in CASES:
        classes = n_old + n_new
        labels = torch.arange(n) % classes
        logits = noise("correction/" + name, SEED, (n, classes), spread, 0.0)
        logits[torch.arange(n), labels] += 4.0 if name == "apart" else 2.0
        logits[:, n_old:] += advantage
        logits = logits.float().double()
        store.put(f"{name}/logits", logits)
        store.put(f"{name}/size", torch.tensor([n, n_old, classes], dtype=torch.int32))
        store.put(f"{name}/best", torch.tensor(minimise(logits, labels, n_old), dtype=torch.float64))
    store.metadata["cases"] = " ".join(case[0] for case in CASES)
    return store
