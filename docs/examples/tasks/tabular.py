"""Classify rows of numbers with a small network: `proctor run --task tabular.py`.

Data: 2,000 rows of 8 numbers in 3 classes, drawn from the seed that Proctor sets.
"""

import torch
from torch import nn
from torch.nn import functional

METRIC = ("accuracy", "higher")
CLASSES = 3
PARAMS = {"lr": 0.01, "epochs": 5, "batch_size": 50, "hidden": 32, "rows": 1200, "test_rows": 400}


def model(params):
    return nn.Sequential(
        nn.Linear(8, params["hidden"]), nn.GELU(), nn.Linear(params["hidden"], CLASSES)
    )


def rows(count):
    inputs = torch.randn(count, 8)
    scores = [inputs[:, 0] * inputs[:, 1], inputs[:, 2] + inputs[:, 3], inputs[:, 4].abs()]
    return inputs, torch.stack(scores, dim=1).argmax(dim=1)


def data(params):
    return rows(params["rows"]), rows(params["rows"] // 4)


def test(params):
    return rows(params["test_rows"])


def loss(output, target):
    return functional.cross_entropy(output, target)


def metrics(output, target):
    return {"accuracy": (output.argmax(dim=1) == target).double().mean()}


def optimizer(model, params):
    return torch.optim.AdamW(model.parameters(), lr=params["lr"], weight_decay=0.01)
