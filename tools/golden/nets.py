"""Golden values of residual blocks, whole narrow networks and one step of DER.

Networks are written as functions over a dictionary of parameters named like torchvision's, so that
widths are free at every layer and masks can stand where they belong. Parameters and images follow
the formula of store.noise; only results are stored.
"""
import math

import torch
import torch.nn.functional as F

from golden.store import Store, noise, noise_labels

EPS, MOMENTUM = 1e-5, 0.1
SGD_MOMENTUM, SGD_DECAY = 0.9, 5e-4
# No value may sit so close to the kink of a ReLU that float32 rounding decides its sign: the
# gradient would then differ by more than rounding. Seeds are chosen to keep this distance.
KINK_DISTANCE = 5e-6
# (A single sign lost on the way is enough to move the last of ten losses by a thousandth.)


def first_steady(first_seed, fill):
    """The store of the first seed from `first_seed` on whose values hang on no rounding: fill(store, seed) is the
    distance from the nearest kink."""
    for seed in range(first_seed, first_seed + 1000):
        store = Store(seed)
        if fill(store, seed) > KINK_DISTANCE:
            return store
    raise RuntimeError("no seed keeps its distance from every kink")


class Spec:
    """A residual network: stem, channels of the streams, inner channels of every block."""

    def __init__(self, stem, stream, inner, size, in_channels=3):
        self.stem, self.stream, self.inner = stem, stream, inner
        self.size, self.in_channels = size, in_channels

    def blocks(self):
        """(stage, block, channels in, inner channels, channels out, stride) of every block."""
        width = self.stream[0]
        for k, stream in enumerate(self.stream):
            for b, inner in enumerate(self.inner[k]):
                yield k, b, width, inner, stream, 2 if k > 0 and b == 0 else 1
                width = stream

    def describe(self):
        """For the metadata: what the C test turns into a resnet_spec."""
        stages = " ".join(f"{stream}:" + ",".join(map(str, inner))
                          for stream, inner in zip(self.stream, self.inner))
        return f"{self.stem} {self.in_channels} {self.size[0]} {self.size[1]} {stages}"


def parameter_shapes(spec):
    """Name -> shape of everything learnt or kept."""
    shapes = {}

    def conv_norm(conv, norm, out, source, kernel):
        shapes[conv + ".weight"] = (out, source, kernel, kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = (out,)

    conv_norm("conv1", "bn1", spec.stream[0], spec.in_channels, 7 if spec.stem == "7x7pool" else 3)
    for k, b, source, inner, out, stride in spec.blocks():
        name = f"layer{k + 1}.{b}."
        conv_norm(name + "conv1", name + "bn1", inner, source, 3)
        conv_norm(name + "conv2", name + "bn2", out, inner, 3)
        if stride != 1 or source != out:
            conv_norm(name + "downsample.0", name + "downsample.1", out, source, 1)
    return shapes


def parameter(name, shape, seed):
    """The formula for a parameter; golden_param() in the C tests is the same. Residual branches
    start small, as trained ones do: at full size so narrow a network amplifies rounding a
    thousandfold with every update, and ten losses would say nothing."""
    if len(shape) == 4:
        return noise(name, seed, shape, 0.0, math.sqrt(6.0 / (shape[0] * shape[2] * shape[3])))
    if len(shape) == 2:
        return noise(name, seed, shape, 0.0, 1.0 / math.sqrt(shape[1]))
    if name.endswith("bn2.weight"):
        return noise(name, seed, shape, 0.3, 0.1)
    if name.endswith(".weight"):
        return noise(name, seed, shape, 1.0, 0.3)
    if name.endswith(".running_var"):
        return noise(name, seed, shape, 1.0, 0.5)
    return noise(name, seed, shape, 0.0, 0.2)


def parameters(spec, seed):
    made = {name: parameter(name, shape, seed) for name, shape in parameter_shapes(spec).items()}
    for name, value in made.items():
        value.requires_grad_("running" not in name)
    return made


class Net:
    """Runs the network and watches how close values come to the kink of a ReLU."""

    def __init__(self, params, training):
        self.params, self.training, self.kink = params, training, math.inf

    def norm(self, x, name):
        p = self.params
        return F.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"],
                            p[name + ".weight"], p[name + ".bias"], self.training, MOMENTUM, EPS)

    def relu(self, x):
        self.kink = min(self.kink, x.detach().abs().min().item())
        return F.relu(x)

    def conv(self, x, name, stride=1):
        weights = self.params[name + ".weight"]
        return F.conv2d(x, weights, stride=stride, padding=weights.shape[2] // 2)

    def block(self, h, name, stride, inner_mask=None, stream_mask=None):
        """Every contribution to the stream is masked once, the inner channels after their ReLU."""
        u = masked(self.relu(self.norm(self.conv(h, name + "conv1", stride), name + "bn1")),
                   inner_mask)
        r = masked(self.norm(self.conv(u, name + "conv2"), name + "bn2"), stream_mask)
        if name + "downsample.0.weight" in self.params:
            h = masked(self.norm(self.conv(h, name + "downsample.0", stride),
                                 name + "downsample.1"), stream_mask)
        return self.relu(r + h)

    def features(self, spec, image, masks=None):
        """masks: the streams', then those inside the blocks in order."""
        masks = iter(masks) if masks else None
        stream = [next(masks) for _ in spec.stream] if masks else [None] * len(spec.stream)
        h = self.conv(image, "conv1", 2 if spec.stem == "7x7pool" else 1)
        h = masked(self.relu(self.norm(h, "bn1")), stream[0])
        if spec.stem != "3x3":
            h = F.max_pool2d(h, 3, 2, 1)
        for k, b, _, _, _, stride in spec.blocks():
            h = self.block(h, f"layer{k + 1}.{b}.", stride, next(masks) if masks else None,
                           stream[k])
        return h.mean((2, 3))


def masked(x, mask):
    return x if mask is None else x * mask.reshape(1, -1, 1, 1)


def is_learnt(name):
    return "running" not in name


def sgd(params, velocity, lr, decay=SGD_DECAY, gain=1.0, bound=math.inf):
    """One update in place; params and velocity are dictionaries."""
    with torch.no_grad():
        for name, p in params.items():
            velocity[name] = SGD_MOMENTUM * velocity.get(name, 0) + (p.grad + decay * p)
            p -= lr * gain * velocity[name]
            p.clamp_(-bound, bound)
            p.grad = None


# ---- blocks ---------------------------------------------------------------------------------


def make_block(store, name, shape, inner, out, stride, with_masks, seed):
    """One block under average pool, linear head and cross-entropy; the input gets a gradient too.
    Returns the distance to the nearest kink."""
    n, c = shape[:2]
    sizes = {"conv1": (inner, c, 3, 3), "conv2": (out, inner, 3, 3)}
    if stride != 1 or c != out:
        sizes["downsample.0"] = (out, c, 1, 1)
    params = {"x": noise(name + "x", seed, shape, 0.0, 1.5)}
    for conv, size in sizes.items():
        norm = {"conv1": "bn1", "conv2": "bn2", "downsample.0": "downsample.1"}[conv]
        params[conv + ".weight"] = parameter(name + conv + ".weight", size, seed)
        for part in ("weight", "bias", "running_mean", "running_var"):
            key = f"{norm}.{part}"
            params[key] = parameter(name + key, size[:1], seed)
    params["head"] = parameter(name + "head", (3, out), seed)
    if with_masks:
        params["inner_mask"] = noise(name + "inner_mask", seed, (inner,), 0.5, 0.5)
        params["stream_mask"] = noise(name + "stream_mask", seed, (out,), 0.5, 0.5)
    labels = noise_labels(name + "labels", seed, n, 3)
    for key, value in params.items():
        store.put(f"{name}/{key}", value)
        value.requires_grad_(is_learnt(key))
    net = Net(params, training=True)
    h = net.block(params["x"], "", stride, params.get("inner_mask"), params.get("stream_mask"))
    logits = F.linear(h.mean((2, 3)), params["head"])
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    store.put(name + "/labels", labels)
    store.put(name + "/h", h)
    store.put(name + "/logits", logits)
    store.put(name + "/loss", loss.reshape(1))
    for key, value in params.items():
        if is_learnt(key):
            store.put(f"{name}/grad/{key}", value.grad)
        else:
            store.put(f"{name}/after/{key}", value)
    store.metadata["block " + name] = f"stride={stride}"
    return net.kink


def make_blocks():
    return first_steady(0, lambda store, seed: min(
        make_block(store, name, shape, inner, out, stride, with_masks, seed)
        for name, shape, inner, out, stride, with_masks in (
            ("identity", (3, 5, 6, 5), 7, 5, 1, False),
            ("projection", (3, 5, 6, 5), 4, 9, 1, False),
            ("stride2", (2, 4, 7, 9), 6, 5, 2, False),
            ("identity_masked", (3, 5, 6, 5), 7, 5, 1, True),
            ("stride2_masked", (2, 4, 7, 9), 6, 5, 2, True))))


# ---- networks -------------------------------------------------------------------------------


def network_once(store, spec, batch, n_classes, seed):
    """Outputs, all gradients, running statistics, and the eval-mode output that follows."""
    params = parameters(spec, seed)
    head = parameter("head", (n_classes, spec.stream[-1]), seed).requires_grad_()
    image = noise("image", seed, (batch, spec.in_channels) + spec.size, 0.0, 1.7)
    labels = noise_labels("labels", seed, batch, n_classes)
    net = Net(params, training=True)
    logits = F.linear(net.features(spec, image), head)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    store.put("logits", logits)
    store.put("loss", loss.reshape(1))
    store.put("grad/head", head.grad)
    for name, value in params.items():
        store.put(("grad/" if is_learnt(name) else "state/") + name,
                  value.grad if is_learnt(name) else value)
    with torch.no_grad():
        store.put("eval_logits", F.linear(Net(params, False).features(spec, image), head))
    return net.kink


def sgd_losses(spec, batch, n_classes, seed):
    """The losses of ten steps with a rising learning rate, on a new batch each, and the distance
    to the nearest kink."""
    params = parameters(spec, seed)
    params["head"] = parameter("head", (n_classes, spec.stream[-1]), seed).requires_grad_()
    velocity, losses, kink = {}, [], math.inf
    for step in range(10):
        image = noise(f"image{step}", seed, (batch, spec.in_channels) + spec.size, 0.0, 1.7)
        labels = noise_labels(f"labels{step}", seed, batch, n_classes)
        net = Net(params, training=True)
        loss = F.cross_entropy(F.linear(net.features(spec, image), params["head"]), labels)
        loss.backward()
        losses.append(loss.item())
        kink = min(kink, net.kink)
        sgd({name: p for name, p in params.items() if p.requires_grad}, velocity,
            0.01 * (step + 1))
    return losses, kink


def make_network(spec, batch, first_seed, n_classes=10, steps=False):
    def fill(store, seed):
        kink = network_once(store, spec, batch, n_classes, seed)
        if steps and kink > KINK_DISTANCE:
            losses, later = sgd_losses(spec, 8, n_classes, seed)
            store.put("sgd_losses", losses)
            kink = min(kink, later)
        return kink

    store = first_steady(first_seed, fill)
    store.metadata["spec"] = spec.describe()
    store.metadata["batch"] = str(batch)
    store.metadata["classes"] = str(n_classes)
    return store


def two_each(stream):
    return [[width, width] for width in stream]


def make_resnet18_cifar():
    stream = [4, 8, 16, 32]
    return make_network(Spec("3x3", stream, two_each(stream), (12, 12)), 8, 100, steps=True)


def make_resnet18_odd():
    return make_network(Spec("3x3", [5, 9, 7, 12], [[3, 6], [11, 4], [8, 13], [5, 10]], (17, 14),
                             in_channels=2), 3, 100)


def make_resnet32():
    stream = [4, 8, 16]
    return make_network(Spec("3x3", stream, [[width] * 5 for width in stream], (12, 12)), 8, 486,
                        steps=True)


def make_resnet18_7x7():
    stream = [3, 5, 6, 7]
    return make_network(Spec("7x7pool", stream, two_each(stream), (37, 42)), 3, 100)


def make_resnet18_3x3():
    stream = [3, 5, 6, 7]
    return make_network(Spec("3x3pool", stream, two_each(stream), (21, 24)), 3, 100)


# ---- DER ------------------------------------------------------------------------------------

DER_SPEC = Spec("3x3", [5, 6], [[4], [7, 3]], (9, 8))
DER_OLD, DER_NEW, DER_FROZEN, DER_BATCH = 4, 3, 7, 6  # classes, classes, features, samples
DER_LR, DER_S = (0.05, 0.1, 0.08), (3.0, 3.5, 4.0)
DER_SPARSITY, DER_GAIN, DER_BOUND = 0.75, 5.0, 6.0


def sparsity(spec, masks):
    """L_S with the masks' sums in place of channel counts, over the same with all masks on."""
    stream, inner = masks[:len(spec.stream)], masks[len(spec.stream):]

    def layers(stream_count, inner_count):
        total = 9 * spec.in_channels * stream_count(0)
        for i, (k, b, source, _, out, stride) in enumerate(spec.blocks()):
            n_in = stream_count(k - 1) if b == 0 and k > 0 else stream_count(k)
            total = total + 9 * n_in * inner_count(i) + 9 * inner_count(i) * stream_count(k)
            if stride != 1 or source != out:
                total = total + n_in * stream_count(k)
        return total

    return (layers(lambda k: stream[k].sum(), lambda i: inner[i].sum())
            / layers(lambda k: len(stream[k]), lambda i: len(inner[i])))


def der_losses(params, heads, frozen, e, step, seed):
    """One iteration up to the gradients; e.grad gets the compensated gradient in closed form.
    Returns the three losses and the distance to the nearest kink."""
    n_seen = DER_OLD + DER_NEW
    image = noise(f"image{step}", seed, (DER_BATCH, 3) + DER_SPEC.size, 0.0, 1.7)
    labels = noise_labels(f"labels{step}", seed, DER_BATCH, n_seen)
    m = {name: torch.sigmoid(DER_S[step] * value.detach()).requires_grad_()
         for name, value in e.items()}
    net = Net(params, training=True)
    own = net.features(DER_SPEC, image, list(m.values()))
    main = F.cross_entropy(F.linear(torch.cat([frozen, own], 1), heads["main"]), labels)
    auxiliary = F.cross_entropy(F.linear(own, heads["auxiliary"]),
                                (labels - (DER_OLD - 1)).clamp_min(0))
    sparse = sparsity(DER_SPEC, list(m.values()))
    (main + auxiliary + DER_SPARSITY * sparse).backward()
    for name, value in e.items():
        sigma = torch.sigmoid(value.detach())
        value.grad = m[name].grad * sigma * (1 - sigma)
    return [main.item(), auxiliary.item(), sparse.item()], net.kink


def der_run(store, seed):
    params = parameters(DER_SPEC, seed)
    n_seen, own = DER_OLD + DER_NEW, DER_SPEC.stream[-1]
    heads = {"main": parameter("main", (n_seen, DER_FROZEN + own), seed).requires_grad_(),
             "auxiliary": parameter("auxiliary", (DER_NEW + 1, own), seed).requires_grad_()}
    frozen = noise("frozen", seed, (DER_BATCH, DER_FROZEN), 0.5, 0.5)
    widths = DER_SPEC.stream + [block[3] for block in DER_SPEC.blocks()]
    e = {f"e{i}": noise(f"e{i}", seed, (width,), 0.3, 1.2).requires_grad_()
         for i, width in enumerate(widths)}
    learnt = {**{name: p for name, p in params.items() if is_learnt(name)}, **heads}
    velocity, losses, kink = {}, [], math.inf
    for step in range(3):
        values, distance = der_losses(params, heads, frozen, e, step, seed)
        losses.append(values)
        kink = min(kink, distance)
        if step == 0:
            for name, value in {**learnt, **e}.items():
                store.put("grad/" + name, value.grad)
        sgd(learnt, velocity, DER_LR[step])
        sgd(e, velocity, DER_LR[step], decay=0.0, gain=DER_GAIN, bound=DER_BOUND)
    for name, value in {**params, **heads, **e}.items():
        store.put("after/" + name, value)
    store.put("losses", torch.tensor(losses))
    return kink


def make_der_step():
    store = first_steady(500, der_run)
    store.metadata["spec"] = DER_SPEC.describe()
    for name, value in (("lr", DER_LR), ("s", DER_S)):
        store.put(name, torch.tensor(value))
    return store
