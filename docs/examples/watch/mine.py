"""A training loop of your own, under watch: `python mine.py`."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import proctor

torch.manual_seed(0)
x = torch.randn(2_000, 20)
y = (x @ torch.randn(20, 5)).argmax(dim=1)
train_x, train_y, val_x, val_y = x[:1_600], y[:1_600], x[1_600:], y[1_600:]

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)  # far too high

with proctor.watch(
    model, optimizer, name="my MLP", batch_size=50, epochs=8, policy="playbook", say=print
) as run:
    for epoch in run.epochs():
        for at in torch.randperm(1_600).split(50):
            loss = cross_entropy(model(train_x[at]), train_y[at])
            loss.backward()
            run.step(loss)  # in place of optimizer.step() and optimizer.zero_grad()
        with torch.no_grad():
            logits = model(val_x)
        run.validate(
            loss=cross_entropy(logits, val_y),
            accuracy=(logits.argmax(dim=1) == val_y).float().mean(),
        )
        print(epoch, f"lr {run.lr:.5f}")
