"""Golden values of a step in which the network of the step before is the teacher.

One network that is trained on, as WA does it: cross-entropy and distillation share the weight by how many classes are
old, and the classifier's weights never fall below 0. Three iterations, written from the papers with autograd.
"""
import torch
import torch.nn.functional as F

from golden.nets import Net, Spec, first_steady, is_learnt, parameter, parameters, sgd
from golden.store import noise, noise_labels

# The same numbers stand in tests/golden/der_step_test.c.
SPEC = Spec("3x3", [6, 8], [[5, 7], [9, 6]], (9, 8))
N_OLD, N_NEW, BATCH = 4, 3, 6
LR = (0.05, 0.1, 0.08)
TEMPERATURE = 2.0
LAMBDA = N_OLD / (N_OLD + N_NEW)


def losses(net, head, teacher, old_head, image, labels):
    """Cross-entropy and distillation, not weighted."""
    with torch.no_grad():
        known = F.linear(Net(teacher, training=False).features(SPEC, image), old_head)
        target = F.softmax(known / TEMPERATURE, 1)
    logits = F.linear(net.features(SPEC, image), head)
    told = F.log_softmax(logits[:, :N_OLD] / TEMPERATURE, 1)
    return F.cross_entropy(logits, labels), -(target * told).sum(1).mean()


def iterations(store, seed):
    """Returns the distance from the nearest kink."""
    teacher, trained = parameters(SPEC, seed + 1), parameters(SPEC, seed)
    columns = SPEC.stream[-1]
    old_head = parameter("classifier.weight", (N_OLD, columns), seed + 1)
    head = parameter("classifier.weight", (N_OLD + N_NEW, columns), seed).requires_grad_()
    net, velocity, values = Net(trained, training=True), {}, []
    for number, lr in enumerate(LR):
        image = noise(f"image{number}", seed, (BATCH, 3) + SPEC.size, 0.0, 1.7)
        labels = noise_labels(f"labels{number}", seed, BATCH, N_OLD + N_NEW)
        main, distilled = losses(net, head, teacher, old_head, image, labels)
        ((1 - LAMBDA) * main + LAMBDA * distilled).backward()
        values.append([main.item(), distilled.item()])
        weights = {**{name: p for name, p in trained.items() if is_learnt(name)}, "classifier.weight": head}
        if number == 0:
            for name, value in weights.items():
                store.put(f"grad0/{name}", value.grad)
        sgd(weights, velocity, lr)
        with torch.no_grad():
            head.clamp_(min=0.0)
        for name, value in {**trained, "classifier.weight": head}.items():
            store.put(f"after{number}/{name}", value)
    assert (head == 0).any()
    store.put("losses", torch.tensor(values))
    return net.kink


def make():
    store = first_steady(900, iterations)
    store.metadata["trained"] = SPEC.describe()
    store.put("lr", torch.tensor(LR))
    return store
