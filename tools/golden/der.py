"""Golden values of the method's own training program: the whole of an iteration of DER's first stage.

A frozen extractor of odd widths in front, a trained one with masks on every contribution, main and
auxiliary head, sparsity loss, both updates; three iterations with soft masks and three with hard
ones. Written from the paper (Sec. 3.3, 3.4 and its equations of the masks) with autograd.
"""
import math

import torch
import torch.nn.functional as F

from golden.nets import (Net, Spec, first_steady, is_learnt, parameter, parameters, sgd,
                         sparsity)
from golden.store import noise, noise_labels

# The same numbers stand in tests/golden/der_step_test.c.
TRAINED = Spec("3x3", [6, 8], [[5, 7], [9, 6]], (9, 8))
FROZEN = Spec("3x3", [5, 7], [[3, 6], [4, 1]], (9, 8))
N_OLD, N_NEW, BATCH = 4, 3, 6
LR = (0.05, 0.1, 0.08, 0.06, 0.04, 0.02)
# At s = 400 most masks that are off stand at the floor, and feel the task all the same.
SOFT = (0.6, 4.0, 400.0)
LAMBDA_A, LAMBDA_S = 0.6, 0.75
GAIN, BOUND = 5.0, 1.25  # a bound that a few e reach at once
EMPTY = 5                # this mask has no e above 0
# Hard masks take the sign of e, so no e may be near 0 when they begin.
SIGN_DISTANCE = 1e-3


class Gate(torch.autograd.Function):
    """m = sigmoid(s e), whose gradient is compensated: dL/dm sigmoid(e) (1 - sigmoid(e)). With s
    infinite m = [e > 0], the largest e counts as above 0, and there is no gradient."""

    @staticmethod
    def forward(ctx, e, s):
        ctx.s = s
        ctx.save_for_backward(e)
        if math.isfinite(s):
            return torch.sigmoid(s * e)
        m = (e > 0).to(e.dtype)
        m[e.argmax()] = 1
        return m

    @staticmethod
    def backward(ctx, d_m):
        (e,) = ctx.saved_tensors
        sigma = torch.sigmoid(e)
        return d_m * sigma * (1 - sigma) if math.isfinite(ctx.s) else torch.zeros_like(e), None


class MaskedNet(Net):
    """Masks scale whole channels, and rounding with them, so the distance from a kink is relative
    to the channel. Channels that are off are 0 and near no kink."""

    def relu(self, x):
        distance = x.detach().abs()
        distance = distance / distance.amax((0, 2, 3), keepdim=True)
        self.kink = min(self.kink, distance[distance > 0].min().item())
        return F.relu(x)


class Learner:
    """Everything that one iteration changes."""

    def __init__(self, seed):
        self.seed = seed
        self.frozen = parameters(FROZEN, seed + 1)
        self.net = parameters(TRAINED, seed)
        own, columns = TRAINED.stream[-1], FROZEN.stream[-1] + TRAINED.stream[-1]
        self.heads = {
            "classifier.weight": parameter("classifier.weight", (N_OLD + N_NEW, columns), seed),
            "auxiliary.weight": parameter("auxiliary.weight", (N_NEW + 1, own), seed)}
        widths = TRAINED.stream + [block[3] for block in TRAINED.blocks()]
        self.e = {f"masks.{i}": noise(f"masks.{i}", seed, (width,), -0.9 if i == EMPTY else 0.3,
                                      0.4 if i == EMPTY else 1.2)
                  for i, width in enumerate(widths)}
        for value in [*self.heads.values(), *self.e.values()]:
            value.requires_grad_()
        self.velocity, self.kink = {}, math.inf

    def weights(self):
        return {**{name: p for name, p in self.net.items() if is_learnt(name)}, **self.heads}

    def losses(self, number, s, gate=Gate.apply):
        """Main, auxiliary and sparsity loss of batch `number`."""
        image = noise(f"image{number}", self.seed, (BATCH, 3) + TRAINED.size, 0.0, 1.7)
        labels = noise_labels(f"labels{number}", self.seed, BATCH, N_OLD + N_NEW)
        with torch.no_grad():
            old = Net(self.frozen, training=False).features(FROZEN, image)
        masks = [gate(e, s) for e in self.e.values()]
        net = MaskedNet(self.net, training=True)
        new = net.features(TRAINED, image, masks)
        self.kink = min(self.kink, net.kink)
        logits = F.linear(torch.cat([old, new], 1), self.heads["classifier.weight"])
        # All old classes are the first label of the auxiliary head.
        new_labels = torch.where(labels < N_OLD, 0, labels - N_OLD + 1)
        auxiliary = F.cross_entropy(F.linear(new, self.heads["auxiliary.weight"]), new_labels)
        return F.cross_entropy(logits, labels), auxiliary, sparsity(TRAINED, masks)

    def gradients(self, number, s):
        """Leaves them in .grad and returns the losses."""
        main, auxiliary, sparse = self.losses(number, s)
        (main + LAMBDA_A * auxiliary + LAMBDA_S * sparse).backward()
        return [main.item(), auxiliary.item(), sparse.item()]

    def update(self, lr):
        sgd(self.weights(), self.velocity, lr)
        sgd(self.e, self.velocity, lr, decay=0.0, gain=GAIN, bound=BOUND)

    def harden(self):
        """The masks stand still from here on."""
        for name in self.e:
            self.velocity.pop(name)


def check_compensation(seed):
    """The paper's formula, as printed, gives what Gate does: autograd through sigmoid(s e), then
    times sigma(e) (1 - sigma(e)) / (s sigma(s e) (1 - sigma(s e)))."""
    ours, printed = Learner(seed), Learner(seed)
    s = SOFT[0]
    for learner, gate in ((ours, Gate.apply), (printed, lambda e, s: torch.sigmoid(s * e))):
        main, auxiliary, sparse = learner.losses(0, s, gate)
        (main + LAMBDA_A * auxiliary + LAMBDA_S * sparse).backward()
    for name, e in printed.e.items():
        one, steep = torch.sigmoid(e.detach()), torch.sigmoid(s * e.detach())
        factor = one * (1 - one) / (s * steep * (1 - steep))
        assert torch.allclose(factor * e.grad, ours.e[name].grad, rtol=1e-12, atol=0)


def iterations(store, seed):
    """Three soft ones, three hard ones. Returns the distance from the nearest kink."""
    learner, losses = Learner(seed), []
    for number, lr in enumerate(LR):
        s = SOFT[number] if number < len(SOFT) else math.inf
        if number == len(SOFT):
            learner.harden()
            values = list(learner.e.values())
            assert learner.e[f"masks.{EMPTY}"].max() < 0
            if min(e.detach().abs().min() for e in values) < SIGN_DISTANCE:
                return 0.0
        losses.append(learner.gradients(number, s))
        if number in (0, len(SOFT)):
            for name, value in {**learner.weights(), **learner.e}.items():
                store.put(f"grad{number}/{name}", value.grad)
        learner.update(lr)
        for name, value in {**learner.net, **learner.heads, **learner.e}.items():
            store.put(f"after{number}/{name}", value)
    store.put("losses", torch.tensor(losses))
    return learner.kink


def make():
    store = first_steady(700, iterations)
    check_compensation(int(store.metadata["seed"]))
    store.metadata["trained"] = TRAINED.describe()
    store.metadata["frozen"] = FROZEN.describe()
    store.put("lr", torch.tensor(LR))
    store.put("s", torch.tensor(SOFT + (math.inf,) * (len(LR) - len(SOFT))))
    return store
