"""Classify images with a residual network: `proctor run --task residual.py`.

The network that Proctor trains without a task, as a task: pre-activation blocks, BatchNorm, He's
initialisation, SGD with momentum and a warm-up.
Data: squares, crosses and stripes on a noisy background, drawn from the seed that Proctor sets.
Shapes: inputs (N, 3, size, size) uint8; targets (N,); outputs (N, classes) logits.
"""

import torch
from torch import nn
from torch.nn import functional

METRIC = ("accuracy", "higher")
CLASSES = 4
PARAMS = {
    "lr": 0.05,
    "epochs": 5,
    "batch_size": 32,
    "size": 16,
    "channels": 16,
    "blocks": 2,
    "images": 640,
    "test_images": 200,
}


class Block(nn.Module):
    """Norm, activation and a 3x3 convolution, twice, added to the input."""

    def __init__(self, channels):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.act1, self.act2 = nn.ReLU(), nn.ReLU()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.conv2(self.act2(self.norm2(self.conv1(self.act1(self.norm1(x))))))


class Residual(nn.Module):
    """A convolution, blocks, then norm, activation, mean over the image and a linear layer."""

    def __init__(self, params):
        super().__init__()
        channels = params["channels"]
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(params["blocks"])))
        self.norm, self.act = nn.BatchNorm2d(channels), nn.ReLU()
        self.head = nn.Linear(channels, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x):
        x = self.blocks(self.stem(x.float() / 127.5 - 1.0))
        return self.head(self.act(self.norm(x)).mean(dim=(2, 3)))


def model(params):
    return Residual(params)


def draw(count, size):
    """Draw horizontal stripes, vertical stripes, crosses and squares."""
    labels = torch.randint(CLASSES, (count,))
    place = torch.arange(size)
    shift = torch.randint(3, 7, (count, 1, 1))
    y, x = place[None, :, None] + shift, place[None, None, :] + shift
    across, down = (y % 6 < 3).expand(count, size, size), (x % 6 < 3).expand(count, size, size)
    inside = ((y - size // 2 - shift).abs() < 5) & ((x - size // 2 - shift).abs() < 5)
    cross = ((y - size // 2 - shift).abs() < 2) | ((x - size // 2 - shift).abs() < 2)
    kinds = torch.stack([across, down, cross, inside], dim=1)  # (count, kind, size, size)
    shape = kinds[torch.arange(count), labels]
    colour = 60 + 80 * torch.rand(count, 3, 1, 1)
    images = 40 + shape[:, None] * colour + 45 * torch.randn(count, 3, size, size)
    return images.clamp(0, 255).to(torch.uint8), labels


def data(params):
    return draw(params["images"], params["size"]), draw(params["images"] // 4, params["size"])


def test(params):
    return draw(params["test_images"], params["size"])


def loss(output, target):
    return functional.cross_entropy(output, target)


def metrics(output, target):
    return {"accuracy": (output.argmax(dim=1) == target).double().mean()}


def optimizer(model, params):
    return torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=0.9, weight_decay=5e-4)


def schedule(progress, params):
    return min(1.0, progress * params["epochs"])  # a warm-up of one epoch
