"""The live state of a training: what steps and remedies change.

I/O: none.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aggregates.decisions import Decision, Settings
from aggregates.outcomes import Changes
from aggregates.spec import ModelSpec
from aggregates.trials import Step
from monitor.config import RunConfig
from monitor.model import ResidualCNN, region
from monitor.remedies import execute_decision, put_back


@dataclass
class LiveState:
    """Model, optimizer and the settings in force."""

    config: RunConfig
    model: ResidualCNN
    optimizer: torch.optim.SGD
    settings: Settings
    train_examples: int
    # Parameters and buffers, and momentum, after epochs that can be gone back to.
    kept: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]] = field(default_factory=dict)

    @classmethod
    def start(cls, config: RunConfig, spec: ModelSpec, *, train_examples: int) -> "LiveState":
        """Build what the first step needs; raises ConfigurationError."""
        warm_up = {"kind": "warm_up", "epochs": config.warm_up_epochs, "since": 0}
        settings = Settings(
            lr=float(config.lr),
            batch_size=config.batch_size,
            accumulation=config.accumulation,
            clip_norm=None if config.clip_norm is None else float(config.clip_norm),
            schedule=warm_up if config.warm_up_epochs else {"kind": "constant"},
        )
        model = ResidualCNN(spec, seed=config.seed).to(config.device)
        return cls(config, model, new_optimizer(model, config), settings, train_examples)

    @property
    def spec(self) -> ModelSpec:
        """The model as it is now."""
        return self.model.spec()

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out after `epoch`; raises RemedyRefused if that cannot be."""
        return execute_decision(self, decision, epoch=epoch)

    def keep(self, epoch: int, most: int) -> None:
        """Keep the state after an epoch, before its decisions, and the last `most` in all."""
        if most:
            model = {name: value.clone() for name, value in self.model.state_dict().items()}
            momentum = {name: value.clone() for name, value in self.momentum().items()}
            self.kept[epoch] = model, momentum
            self.kept = {at: kept for at, kept in self.kept.items() if at > epoch - most}

    def go_on(self, step: Step, *, asked: int) -> None:
        """Go on as a trial leads to, of those that were decided on after epoch `asked`."""
        self.settings = replace(self.settings, lr=step.lr)
        put_back(self, step.epoch, asked=asked)

    def go_back(self, epoch: int) -> None:
        """Go back to the state after an epoch, which is kept and is of the same model."""
        model, momentum = self.kept[epoch]
        self.model.load_state_dict(model)
        self.renew_optimizer(momentum)

    def momentum(self) -> dict[str, Tensor]:
        """Return the optimizer's buffers by parameter name."""
        return {
            name: buffer
            for name, parameter in self.model.named_parameters()
            if (buffer := self.optimizer.state.get(parameter, {}).get("momentum_buffer"))
            is not None
        }

    def renew_optimizer(self, momentum: dict[str, Tensor]) -> None:
        """Take a fresh optimizer for the model as it is now, and put `momentum` into it.

        A buffer whose tensor has grown is padded with zeros; one whose tensor is gone is dropped.
        """
        self.optimizer = new_optimizer(self.model, self.config)
        for name, parameter in self.model.named_parameters():
            if name in momentum:
                buffer = torch.zeros_like(parameter)
                buffer[region(momentum[name])] = momentum[name]
                self.optimizer.state[parameter]["momentum_buffer"] = buffer


def new_optimizer(model: ResidualCNN, config: RunConfig) -> torch.optim.SGD:
    """Return SGD over the model's parameters; the loop sets the learning rate before each step."""
    return torch.optim.SGD(
        model.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        foreach=True,
    )
