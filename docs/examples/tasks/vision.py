"""Classify images with a small vision transformer: `proctor run --task vision.py`.

The images are moved at random and the learning rate follows a cosine. `precision=bfloat16` trains
in mixed precision.

Data: bars, discs and rings on a noisy background, drawn from the seed that Proctor sets. With
`data_dir=FOLDER`, `images` of those in FOLDER/train/CLASS/* and FOLDER/test/CLASS/*, in ten
classes: for example CIFAR-10 as JPEG files.
Shapes: inputs (N, 3, size, size) uint8; targets (N,); outputs (N, classes) logits.
"""

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Subset

from monitor.examples import Images

METRIC = ("accuracy", "higher")
CLASSES = 10
PARAMS = {
    "lr": 0.002,
    "epochs": 4,
    "batch_size": 32,
    "size": 32,
    "patch": 8,
    "width": 48,
    "layers": 2,
    "images": 480,
    "test_images": 200,
    "data_dir": None,
}


class Layer(nn.Module):
    """Self-attention and a two-layer network, each added to its normed input."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)  # (N, patches, width) each
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        x = x + self.out(weights @ v)
        return x + self.down(self.act(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Patches embedded by a convolution, layers, their mean, and a linear layer."""

    def __init__(self, params):
        super().__init__()
        width, patch = params["width"], params["patch"]
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn((params["size"] // patch) ** 2, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(params["layers"])))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        x = x.float() / 127.5 - 1.0
        x = self.embed(x).flatten(2).transpose(1, 2) + self.places  # (N, patches, width)
        return self.head(self.norm(self.layers(x)).mean(dim=1))


def model(params):
    return VisionTransformer(params)


def draw(count, size):
    """Draw discs, rings and bars of three widths in three directions, ten classes in all."""
    labels = torch.randint(CLASSES, (count,))
    line = torch.linspace(-1, 1, size)
    y, x = line[None, :, None], line[None, None, :]
    shift = (torch.rand(count, 2, 1, 1) - 0.5) * 0.6
    x, y = x - shift[:, 0], y - shift[:, 1]
    far = (x * x + y * y).sqrt()
    angle = (labels % 4)[:, None, None] * (math.pi / 4)
    along = (x * torch.cos(angle) + y * torch.sin(angle)).abs()
    thick = torch.where(labels < 4, 0.12, 0.35)[:, None, None]
    shape = torch.where((labels < 8)[:, None, None], along < thick, far < 0.55)
    shape &= (labels < 9)[:, None, None] | (far > 0.3)
    colour = 100 + 100 * torch.rand(count, 3, 1, 1)
    noise = 40 * torch.randn(count, 3, size, size)
    images = shape[:, None] * colour + 30 + noise
    return images.clamp(0, 255).to(torch.uint8), labels


def some(folder, count, size):
    """Choose images of a folder, which are read one by one: it may be larger than memory."""
    images = Images(folder, side=size)
    return images, torch.randperm(len(images))[:count].tolist()


def data(params):
    if params["data_dir"] is None:
        quarter = params["images"] // 4
        return draw(params["images"], params["size"]), draw(quarter, params["size"])
    folder = Path(params["data_dir"]) / "train"
    images, chosen = some(folder, params["images"] * 5 // 4, params["size"])
    held = len(chosen) // 5
    return Subset(images, chosen[held:]), Subset(images, chosen[:held])


def test(params):
    if params["data_dir"] is None:
        return draw(params["test_images"], params["size"])
    folder = Path(params["data_dir"]) / "test"
    return Subset(*some(folder, params["test_images"], params["size"]))


def augment(inputs, targets, params):
    """Move each image by up to two pixels."""
    padded = functional.pad(inputs, (2, 2, 2, 2))
    size = inputs.shape[-1]
    places = torch.randint(5, (len(inputs), 2)).tolist()
    moved = [
        image[:, down : down + size, right : right + size]
        for image, (down, right) in zip(padded, places, strict=True)
    ]
    return torch.stack(moved), targets


def loss(output, target):
    return functional.cross_entropy(output, target, label_smoothing=0.05)


def metrics(output, target):
    return {"accuracy": (output.argmax(dim=1) == target).double().mean()}


def optimizer(model, params):
    return torch.optim.AdamW(model.parameters(), lr=params["lr"], weight_decay=0.05)


def schedule(progress, params):
    return 0.5 * (1.0 + math.cos(math.pi * progress))
