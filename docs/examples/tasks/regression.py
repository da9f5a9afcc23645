"""Predict a number from rows of numbers: `proctor run --task regression.py`.

Data: Friedman's first function with noise (Friedman 1991, Multivariate Adaptive Regression
Splines), drawn from the seed that Proctor sets.
"""

import math

import torch
from torch import nn
from torch.nn import functional

METRIC = ("mae", "lower")
PARAMS = {"lr": 0.02, "epochs": 6, "batch_size": 50, "hidden": 32, "rows": 1000, "test_rows": 400}


def model(params):
    return nn.Sequential(
        nn.Linear(10, params["hidden"]),
        nn.ReLU(),
        nn.Linear(params["hidden"], params["hidden"]),
        nn.ReLU(),
        nn.Linear(params["hidden"], 1),
    )


def rows(count):
    x = torch.rand(count, 10)
    y = torch.sin(math.pi * x[:, 0] * x[:, 1]) + 2 * (x[:, 2] - 0.5) ** 2 + x[:, 3] + x[:, 4] / 2
    return x, (y + 0.05 * torch.randn(count))[:, None]


def data(params):
    return rows(params["rows"]), rows(params["rows"] // 4)


def test(params):
    return rows(params["test_rows"])


def loss(output, target):
    return functional.mse_loss(output, target)


def metrics(output, target):
    apart = output.double() - target.double()
    return {"mae": apart.abs().mean(), "mse": apart.square().mean()}


def optimizer(model, params):
    return torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=0.9)
