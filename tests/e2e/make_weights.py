"""Writes weights of a ResNet-18 with torchvision's names, images, and the features that PyTorch computes.

    make_weights.py FOLDER NETWORK DTYPE PREFIX

FOLDER gets weights.safetensors, by safetensors' own library; images (float32 [4, 3, 40, 40]); and features (float32
[4, 512]). The modules are PyTorch's, put together here as torchvision names them: with its head, and with counters
that training leaves.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn


class Block(nn.Module):
    def __init__(self, entering, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(entering, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(entering, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    def __init__(self, wide, pool):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if wide else nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = pool
        for k in range(4):
            channels, stride = 64 << k, 1 if k == 0 else 2
            setattr(self, f"layer{k + 1}", nn.Sequential(Block(max(channels // stride, 64), channels, stride),
                                                         Block(channels, channels, 1)))
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        if self.pool:
            h = nn.functional.max_pool2d(h, 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(h)))).mean((2, 3))


def main(folder, network, dtype, prefix):
    torch.manual_seed(1)
    torch.set_num_threads(2)
    net = ResNet18(network == "resnet18", network != "resnet18-cifar")
    images = torch.randn(4, 3, 40, 40)
    for module in net.modules():  # gammas and betas that are not 1 and 0
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    net.train()
    with torch.no_grad():
        net(torch.randn(4, 3, 40, 40))  # running statistics that are not 0 and 1
    weights = {prefix + name: value.to(getattr(torch, dtype)) if value.is_floating_point() else value
               for name, value in net.state_dict().items()}
    save_file(weights, os.path.join(folder, "weights.safetensors"), {"format": "pt"})
    net.load_state_dict({name[len(prefix):]: value.float() if value.is_floating_point() else value
                         for name, value in weights.items()})
    net.eval()
    with torch.no_grad():
        features = net(images)
    images.numpy().tofile(os.path.join(folder, "images"))
    features.numpy().tofile(os.path.join(folder, "features"))


if __name__ == "__main__":
    main(*sys.argv[1:])
