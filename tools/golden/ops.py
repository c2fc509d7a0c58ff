"""Golden values of single operations.

A case is a short program over named tensors, kept in the file's metadata as
"op key=value ...: in in -> out out; op ...", with "-" for an absent operand; the C test builds
exactly these nodes. "case/name" holds what a tensor starts as or must become, "case/name.after"
what an operand that is overwritten must become.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden.store import Store

SEED = 20210
INFINITY = float("inf")


class Case:
    """Collects the tensors of one case; every draw is rounded to float32 first."""

    def __init__(self, store, name):
        self.store = store
        self.name = name
        self.nodes = []
        self.random = np.random.RandomState(
            (SEED + sum(ord(c) * (i + 1) for i, c in enumerate(name))) % 2**31)

    def put(self, **tensors):
        for name, value in tensors.items():
            self.store.put(f"{self.name}/{name.replace('_after', '.after')}", value)

    def draw(self, name, *shape, low=None, high=None):
        """A stored input: N(0, 1), or uniform when bounds are given."""
        value = (self.random.randn(*shape) if low is None
                 else self.random.uniform(low, high, shape))
        return self.given(name, value)

    def given(self, name, value):
        """A stored input with given values."""
        value = np.asarray(value, dtype=np.float32)
        self.store.put(f"{self.name}/{name}", value)
        tensor = torch.from_numpy(np.array(value, dtype=np.float64))
        return tensor.requires_grad_()

    def labels(self, name, values):
        self.store.put(f"{self.name}/{name}", np.asarray(values, dtype=np.int32))
        return torch.tensor(values)

    def node(self, op, ins, outs, **attr):
        keys = "".join(f" {key}={value!r}".replace("'", "") for key, value in attr.items())
        self.nodes.append(f"{op}{keys}: {ins} -> {outs}")

    def done(self):
        self.store.metadata["case " + self.name] = "; ".join(self.nodes)


def conv_cases(store):
    sizes = [  # n, c, h, w, k, r, s, stride, pad
        (2, 3, 7, 6, 5, 3, 3, 1, 1), (1, 5, 9, 8, 7, 3, 3, 2, 1), (2, 4, 5, 5, 6, 1, 1, 1, 0),
        (2, 5, 7, 6, 3, 1, 1, 2, 0), (1, 3, 15, 13, 4, 7, 7, 2, 3), (2, 17, 5, 6, 19, 3, 3, 1, 1),
        (1, 2, 4, 5, 3, 5, 5, 1, 2), (3, 1, 1, 1, 2, 3, 3, 1, 1), (2, 3, 6, 4, 2, 1, 3, 2, 1)]
    for n, c, h, w, k, r, s, stride, pad in sizes:
        case = Case(store, f"conv2d_{r}x{s}_stride{stride}_c{c}")
        src = case.draw("src", n, c, h, w)
        weights = case.draw("weights", k, c, r, s)
        dst = F.conv2d(src, weights, stride=stride, padding=pad)
        d_dst = case.draw("d_dst", *dst.shape)
        dst.backward(d_dst)
        case.put(dst=dst, d_src=src.grad, d_weights=weights.grad)
        case.node("conv2d", "src weights", "dst", stride=stride, pad=pad)
        case.node("conv2d_d_src", "d_dst weights", "d_src", stride=stride, pad=pad)
        case.node("conv2d_d_weights", "src d_dst", "d_weights", stride=stride, pad=pad)
        case.done()
    for residual, relu in ((False, False), (False, True), (True, False), (True, True)):
        case = Case(store, f"conv2d_affine_residual{residual:d}_relu{relu:d}")
        src, weights = case.draw("src", 2, 3, 6, 5), case.draw("weights", 5, 3, 3, 3)
        gamma, beta, mean = (case.draw(name, 5) for name in ("gamma", "beta", "mean"))
        var = case.draw("var", 5, low=0.3, high=3)
        dst = F.batch_norm(F.conv2d(src, weights, stride=2, padding=1), mean.detach(),
                           var.detach(), gamma, beta, training=False, eps=1e-5)
        if residual:
            dst = dst + case.draw("residual", *dst.shape)
        case.put(dst=F.relu(dst) if relu else dst)
        case.node("conv2d_affine", "src weights gamma beta mean var "
                  + ("residual" if residual else "-"), "dst",
                  stride=2, pad=1, eps=1e-5, relu=int(relu))
        case.done()


def batchnorm_case(store, shape, training, mask, residual, relu, second):
    """One combination of everything that may follow a batch norm. `second`: two gradients meet."""
    case = Case(store, f"batchnorm_{len(shape)}d_training{training:d}_mask{mask:d}"
                f"_residual{residual:d}_relu{relu:d}_second{second:d}")
    c, eps, momentum = shape[1], 1e-5, 0.1
    src = case.draw("src", *shape)
    gamma, beta = case.draw("gamma", c), case.draw("beta", c)
    running_mean, running_var = case.draw("running_mean", c), case.draw("running_var", c, low=.3,
                                                                        high=3)
    mean, var = running_mean.detach().clone(), running_var.detach().clone()
    z = F.batch_norm(src, mean, var, gamma, beta, training, momentum, eps)
    per_channel = (1, c) + (1,) * (len(shape) - 2)
    m = case.draw("mask", c, low=0, high=1) if mask else None
    added = case.draw("residual", *shape) if residual else None
    z = z if m is None else z * m.reshape(per_channel)
    z = z if added is None else z + added
    dst = F.relu(z) if relu else z
    d_dst = case.draw("d_dst", *shape)
    dst.backward(d_dst + case.draw("d_dst2", *shape) if second else d_dst)
    other = [i for i in range(len(shape)) if i != 1]
    used_mean, used_var = ((src.mean(other), src.var(other, unbiased=False)) if training
                           else (running_mean, running_var))
    case.put(dst=dst, mean=used_mean, inv_std=1 / torch.sqrt(used_var + eps),
             running_mean_after=mean, running_var_after=var,
             d_src=src.grad, d_gamma=gamma.grad, d_beta=beta.grad)
    if mask:
        case.put(d_mask=m.grad)
    if residual:
        case.put(d_residual=added.grad)
    attr = dict(eps=eps, momentum=momentum, training=int(training), relu=int(relu))
    case.node("batchnorm", "src gamma beta running_mean running_var "
              + ("mask " if mask else "- ") + ("residual" if residual else "-"),
              "dst mean inv_std", **attr)
    case.node("batchnorm_grad", "d_dst " + ("d_dst2 " if second else "- ") + "src "
              + ("dst " if relu else "- ") + "gamma beta mean inv_std " + ("mask" if mask else "-"),
              "d_src d_gamma d_beta " + ("d_mask " if mask else "- ")
              + ("d_residual" if residual else "-"), **attr)
    case.done()


def batchnorm_cases(store):
    for bits in range(16):
        batchnorm_case(store, (3, 5, 3, 2), *(bool(bits >> i & 1) for i in range(4)),
                       second=bits in (1, 9, 14))
    batchnorm_case(store, (7, 5), True, False, False, True, False)
    batchnorm_case(store, (7, 5), False, True, True, True, True)
    batchnorm_case(store, (4, 19, 5, 5), True, True, True, True, True)


def pointwise_cases(store):
    case = Case(store, "relu")
    src = case.given("src", [[-1.5, 0.0, 2.0, -0.0], [1e-30, -1e-30, 3.0, -4.0]])
    dst = F.relu(src)
    dst.backward(case.draw("d_dst", 2, 4))
    case.put(dst=dst, d_src=src.grad)
    case.node("relu", "src", "dst")
    case.node("relu_grad", "d_dst dst", "d_src")
    case.done()

    case = Case(store, "add")
    a, b, c = (case.draw(name, 2, 3, 3, 5) for name in "abc")
    case.put(two=a + b, three=a + b + c)
    case.node("add", "a b", "two")
    case.node("add", "a b c", "three")
    case.done()

    for shape in ((3, 5, 4, 3), (4, 7)):
        case = Case(store, f"scale_channel_{len(shape)}d")
        src, m = case.draw("src", *shape), case.draw("m", shape[1])
        dst = src * m.reshape((1, shape[1]) + (1,) * (len(shape) - 2))
        dst.backward(case.draw("d_dst", *shape))
        case.put(dst=dst, d_src=src.grad, d_m=m.grad)
        case.node("scale_channel", "src m", "dst")
        case.node("scale_channel_grad", "d_dst src m", "d_src d_m")
        case.done()

    case = Case(store, "scale")
    src, factor = case.draw("src", 3, 5), case.given("factor", [-1.75])
    dst = src * factor
    dst.backward(case.draw("d_dst", 3, 5))
    case.put(dst=dst, d_src=src.grad, d_factor=factor.grad)
    case.node("scale", "src factor", "dst")
    case.node("scale_grad", "d_dst src factor", "d_src d_factor")
    case.done()


def pool_cases(store):
    for name, shape, kernel, stride, pad, ties in (
            ("maxpool_3_2_1", (2, 3, 9, 8), 3, 2, 1, False),
            ("maxpool_ties", (2, 5, 7, 7), 3, 2, 1, True),
            ("maxpool_2_2_0", (1, 17, 4, 6), 2, 2, 0, False),
            ("maxpool_3_1_1", (2, 2, 3, 5), 3, 1, 1, False)):
        case = Case(store, name)
        src = (case.given("src", case.random.randint(-2, 2, shape)) if ties
               else case.draw("src", *shape))
        dst, index = F.max_pool2d(src, kernel, stride, pad, return_indices=True)
        dst.backward(case.draw("d_dst", *dst.shape))
        case.put(dst=dst, index=index, d_src=src.grad)
        attr = dict(kernel=kernel, stride=stride, pad=pad)
        case.node("maxpool", "src", "dst index", **attr)
        case.node("maxpool_grad", "d_dst index", "d_src", **attr)
        case.done()
    case = Case(store, "avgpool")
    src = case.draw("src", 3, 5, 4, 3)
    dst = src.mean((2, 3))
    dst.backward(case.draw("d_dst", 3, 5))
    case.put(dst=dst, d_src=src.grad)
    case.node("avgpool", "src", "dst")
    case.node("avgpool_grad", "d_dst", "d_src")
    case.done()


def matrix_cases(store):
    for n, d, k, bias, first, count in ((3, 7, 5, True, 0, 7), (1, 17, 3, False, 6, 11),
                                        (6, 19, 21, True, 3, 4)):
        case = Case(store, f"linear_{n}x{d}x{k}_bias{bias:d}")
        src, weights = case.draw("src", n, d), case.draw("weights", k, d)
        offset = case.draw("bias", k) if bias else None
        dst = F.linear(src, weights, offset)
        dst.backward(case.draw("d_dst", n, k))
        case.put(dst=dst, d_src=src.grad[:, first:first + count], d_weights=weights.grad)
        if bias:
            case.put(d_bias=offset.grad)
        case.node("linear", "src weights " + ("bias" if bias else "-"), "dst")
        case.node("linear_d_src", "d_dst weights", "d_src", first=first, count=count)
        case.node("linear_d_weights", "src d_dst", "d_weights " + ("d_bias" if bias else "-"))
        case.done()
    for name, zero_row in (("l2norm", False), ("l2norm_zero_row", True)):
        case = Case(store, name)
        eps = 1e-12
        src = (case.given("src", np.zeros((1, 4))) if zero_row else case.draw("src", 5, 7))
        norm = src.norm(dim=1, keepdim=True).clamp_min(eps)
        dst = src / norm
        dst.backward(case.draw("d_dst", *src.shape))
        case.put(dst=dst, inv_norm=1 / norm[:, 0], d_src=src.grad)
        case.node("l2norm", "src", "dst inv_norm", eps=eps)
        case.node("l2norm_grad", "d_dst dst inv_norm", "d_src", eps=eps)
        case.done()


def finish_loss(case, loss, logits, weight, op, ins, **attr):
    """Stores the value, and the gradient times the weight."""
    (weight * loss).sum().backward()
    case.put(loss=loss.reshape(1), d_logits=logits.grad)
    case.node(op, ins, "loss d_logits", **attr)
    case.done()


def xent_cases(store):
    for name, shape, labels, first, count, shift, clamp, temperature in (
            ("plain", (4, 7), [0, 6, 3, 3], 0, 7, 0, False, 1.0),
            ("temperature_range", (5, 9), [2, 5, 4, 6, 3], 2, 5, 2, False, 5.0),
            ("auxiliary", (6, 4), [3, 12, 10, 0, 11, 9], 0, 4, 9, True, 1.0),
            ("rows_left_out", (6, 8), [1, 7, 3, 9, 4, -1], 1, 5, 1, False, 2.0),
            ("no_row", (3, 5), [7, 8, 9], 0, 5, 0, False, 1.0),
            ("wide", (2, 101), [100, 50], 0, 101, 0, False, 1.0)):
        case = Case(store, "softmax_xent_" + name)
        logits = case.given("logits", 4 * case.random.randn(*shape))
        case.labels("labels", labels)
        weight = case.given("weight", [0.7])
        target = [label - shift for label in labels]
        target = [max(t, 0) if clamp else t for t in target]
        rows = [i for i, t in enumerate(target) if 0 <= t < count]
        part = logits[rows][:, first:first + count] / temperature
        loss = (F.cross_entropy(part, torch.tensor([target[i] for i in rows])) if rows
                else logits.sum() * 0)
        finish_loss(case, loss, logits, weight, "softmax_xent", "logits labels weight",
                    first=first, count=count, label_shift=shift, clamp_low=int(clamp),
                    temperature=temperature)


def other_loss_cases(store):
    case = Case(store, "distill")
    logits, teacher = case.given("logits", 3 * case.random.randn(4, 9)), case.draw("teacher", 4, 6)
    weight = case.given("weight", [1.25])
    p = F.softmax(teacher.detach()[:, 1:6] / 2, dim=1)
    q = F.log_softmax(logits[:, 3:8] / 2, dim=1)
    finish_loss(case, -(p * q).sum(1).mean(), logits, weight, "distill", "logits teacher weight",
                first=3, count=5, teacher_first=1, temperature=2.0)

    for n_old in (0, 3):
        case = Case(store, f"bce_old{n_old}")
        logits = case.given("logits", 4 * case.random.randn(5, 7))
        labels = case.labels("labels", [6, 0, 3, 2, 5])
        weight = case.given("weight", [0.5])
        target = F.one_hot(labels, 7).double()
        if n_old:
            target[:, :n_old] = torch.sigmoid(case.draw("teacher", 5, 4).detach())[:, :n_old]
        finish_loss(case, F.binary_cross_entropy_with_logits(logits, target), logits, weight,
                    "bce", "logits labels " + ("teacher" if n_old else "-") + " weight",
                    n_old=n_old)

    case = Case(store, "cosine_loss")
    logits, b = case.draw("logits", 4, 7), case.draw("b", 4, 7)
    weight = case.given("weight", [2.0])
    finish_loss(case, (1 - F.cosine_similarity(logits, b.detach(), dim=1)).mean(), logits, weight,
                "cosine_loss", "logits b weight")

    for name, labels in (("margin_loss", [0, 5, 2, 1, 3, 2]), ("margin_loss_no_row", [4, 5, 3])):
        case = Case(store, name)
        n_old, top_k, margin = 3, 2, 0.5
        logits = case.draw("logits", len(labels), 7)
        case.labels("labels", labels)
        weight = case.given("weight", [1.5])
        rows = [i for i, label in enumerate(labels) if label < n_old]
        loss = logits.sum() * 0
        if rows:
            own = logits[rows, [labels[i] for i in rows]].unsqueeze(1)
            loss = F.relu(margin - own + logits[rows, n_old:].topk(top_k, dim=1).values).mean()
        finish_loss(case, loss, logits, weight, "margin_loss", "logits labels weight",
                    n_old=n_old, top_k=top_k, margin=margin)

    case = Case(store, "rank")
    logits = case.given("logits", case.random.randint(-3, 4, (6, 9)))
    labels = case.labels("labels", [2, 3, 4, 5, 6, 3])
    first, count = 2, 5
    place = torch.arange(first, first + count)
    own = logits[torch.arange(6), labels].unsqueeze(1)
    part = logits[:, first:first + count]
    rank = ((part > own) | ((part == own) & (place < labels.unsqueeze(1)))).sum(1)
    case.put(rank=rank)
    case.node("rank", "logits labels", "rank", first=first, count=count)
    case.done()


def mask_cases(store):
    values = [[-1.5, 0.25, 1.9, -0.1, 0.0], [-2.0, -0.5, -0.5], [0.75]]
    for name, s, gradient in (("exact", 3.0, 0), ("exact_steep", 400.0, 0), ("hat", 3.0, 1),
                              ("hat_saturated", 60.0, 1), ("hard", INFINITY, 0)):
        case = Case(store, "mask_gate_" + name)
        case.given("s", [s])
        s_max, names = 400.0, "012"
        for i, value in zip(names, values):
            e = case.given("e" + i, value).detach()
            d_m = case.draw("d_m" + i, len(value)).detach()
            y = torch.sigmoid(s * e)
            m = y.clamp(min=1e-20)
            if s == INFINITY:
                m = (e > 0).double()
                m[e.argmax()] = 1
                d_e = torch.zeros_like(e)
            elif gradient == 0:
                d_e = d_m * torch.sigmoid(e) * (1 - torch.sigmoid(e))
            else:
                y = y.float().double()
                d_e = (d_m * y * (1 - y) * s_max * (torch.cosh((s * e).clamp(-50, 50)) + 1)
                       / (torch.cosh(e) + 1))
            case.put(**{"m" + i: m, "d_e" + i: d_e})
        attr = dict(gradient=gradient, s_max=s_max)
        case.node("mask_gate", "s e0 e1 e2", "m0 m1 m2", **attr)
        case.node("mask_gate_grad", "s e0 e1 e2 d_m0 d_m1 d_m2", "d_e0 d_e1 d_e2", **attr)
        case.done()

    case = Case(store, "mask_sparsity")
    weight = case.given("weight", [0.75])
    sizes = (4, 6, 5)
    m = [case.draw(f"m{i}", size, low=0, high=1) for i, size in enumerate(sizes)]
    layers = [(-1, 0, 49, 3), (0, 2, 9, 0), (2, 0, 9, 0), (0, 1, 1, 0), (1, 1, 9, 0)]
    total, value = 0, 0
    for source, target, area, channels in layers:
        n_in = channels if source < 0 else m[source].sum()
        total += area * (channels if source < 0 else sizes[source]) * sizes[target]
        value = value + area * n_in * m[target].sum()
    loss = value / total
    (loss * weight).sum().backward()
    case.put(loss=loss.reshape(1), **{f"d_m{i}": m[i].grad for i in range(3)})
    case.node("mask_sparsity", "weight m0 m1 m2", "loss d_m0 d_m1 d_m2", total=total,
              layers="|".join(":".join(map(str, layer)) for layer in layers))
    case.done()


def sgd_cases(store):
    for name, decay, gain, low, high in (("weights", 5e-4, 1.0, -INFINITY, INFINITY),
                                         ("masks", 0.0, 5.0, -1.0, 1.5)):
        case = Case(store, "sgd_" + name)
        attr = dict(momentum=0.9, decay=decay, gain=gain, low=low, high=high)
        p = {i: case.draw("p" + i, *shape).detach() for i, shape in (("0", (3, 5)), ("1", (4,)))}
        v = {i: case.given("v" + i, np.zeros(p[i].shape)).detach() for i in p}
        for step, lr in enumerate((0.02, 0.1, 0.05)):
            lr = case.given(f"lr{step}", [lr]).detach()
            operands = ""
            for i in p:
                g = case.draw(f"g{i}{step}", *p[i].shape).detach()
                v[i] = attr["momentum"] * v[i] + (g + decay * p[i])
                p[i] = (p[i] - lr * gain * v[i]).clamp(low, high)
                operands += f" p{i} g{i}{step} v{i}"
            case.node("sgd", f"lr{step}{operands}", "", **attr)
        case.put(**{f"p{i}_after": p[i] for i in p}, **{f"v{i}_after": v[i] for i in v})
        case.done()


def make():
    store = Store(SEED)
    for maker in (conv_cases, batchnorm_cases, pointwise_cases, pool_cases, matrix_cases,
                  xent_cases, other_loss_cases, mask_cases, sgd_cases):
        maker(store)
    assert not any(math.isnan(value.sum()) for value in store.tensors.values())
    return store
