"""Predict the next character with a small transformer: `proctor run --task characters.py`.

Data: sentences of a made-up grammar, drawn from the seed that Proctor sets, cut into windows.
Shapes: inputs and targets (N, window) of character numbers; outputs (N, window, 28) logits.
"""

import torch
from torch import nn
from torch.nn import functional

METRIC = ("perplexity", "lower")
CLASSES = 28
PARAMS = {
    "lr": 0.003,
    "epochs": 4,
    "batch_size": 16,
    "window": 48,
    "width": 32,
    "layers": 2,
    "dropout": 0.1,
    "windows": 400,
    "test_windows": 150,
}
LETTERS = " .abcdefghijklmnopqrstuvwxyz"
NOUNS = ["river", "lantern", "garden", "winter", "engine", "sailor", "mirror", "village"]
VERBS = ["follows", "forgets", "carries", "answers", "paints", "measures"]
ADJECTIVES = ["quiet", "narrow", "golden", "distant", "hollow", "bright"]


class Block(nn.Module):
    """Causal self-attention and a two-layer network, each added to its normed input."""

    def __init__(self, width, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        count, length, width = x.shape
        q, k, v = (
            part.view(count, length, 2, width // 2).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=-1)
        )
        scores = q @ k.transpose(-1, -2) / (width // 2) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(count, length, width)))
        return x + self.dropout(self.down(self.act(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """Characters and places embedded, blocks, and a linear layer to logits."""

    def __init__(self, params):
        super().__init__()
        width = params["width"]
        self.characters = nn.Embedding(CLASSES, width)
        self.places = nn.Embedding(params["window"], width)
        self.blocks = nn.Sequential(
            *(Block(width, params["dropout"]) for _ in range(params["layers"]))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        places = self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(self.characters(x) + places)))


def model(params):
    return Transformer(params)


def pick(words):
    return words[int(torch.randint(len(words), ()))]


def windows(count, length):
    text = ""
    while len(text) < count * (length + 1):
        text += f"the {pick(ADJECTIVES)} {pick(NOUNS)} {pick(VERBS)} a {pick(NOUNS)}. "
    numbers = torch.tensor([LETTERS.index(each) for each in text[: count * (length + 1)]])
    rows = numbers.view(count, length + 1)
    return rows[:, :-1], rows[:, 1:]


def data(params):
    quarter = params["windows"] // 4
    return windows(params["windows"], params["window"]), windows(quarter, params["window"])


def test(params):
    return windows(params["test_windows"], params["window"])


def loss(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def metrics(output, target):
    logits = output.flatten(0, 1).double()
    return {
        "perplexity": functional.cross_entropy(logits, target.flatten()).exp(),
        "accuracy": (output.argmax(dim=-1) == target).double().mean(),
    }


def optimizer(model, params):
    return torch.optim.AdamW(model.parameters(), lr=params["lr"], weight_decay=0.01)


def schedule(progress, params):
    return min(1.0, progress / 0.1)
