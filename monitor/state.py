"""The live state of a training: what steps change, and decisions, which are carried out on it.

I/O: none.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from aggregates.decisions import Decision, Settings
from aggregates.errors import RemedyRefused
from aggregates.outcomes import Changes
from aggregates.playbook import FRESH
from aggregates.provocations import Fault
from aggregates.spec import ModelSpec
from aggregates.trials import Step
from monitor.config import RunConfig, initial_settings
from monitor.model import ResidualCNN, edit_model, region
from monitor.seeds import generator
from monitor.trained import outcome_of
from monitor.weights import is_finite


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
        """Build what the first step needs, a provocation in it; raises ConfigurationError."""
        model = ResidualCNN(spec, seed=config.seed).to(config.device)
        if config.fault is not None:
            put_into(model, config.fault)
        optimizer = new_optimizer(model, config)
        return cls(config, model, optimizer, initial_settings(config), train_examples)

    @property
    def spec(self) -> ModelSpec:
        """The model as it is now."""
        return self.model.spec()

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out after `epoch`; raises RemedyRefused, all as it was, if it cannot be.

        Everything is checked first and changed afterwards; what was changed is returned.
        """
        back = FRESH if decision.params.get("reinitialise", False) else decision.back
        if back is not None and back != FRESH:
            if not is_finite(self.model, self.kept[back][0]):
                raise RemedyRefused(f"the weights after epoch {back} are not finite")
        elif decision.direction != "stop" and back is None and not is_finite(self.model):
            raise RemedyRefused(
                "the weights are not finite, and only a reinitialisation brings them back"
            )
        outcome = outcome_of(decision, self, epoch=epoch)
        if decision.edit is not None:
            momentum = self.momentum()
            edit_model(self.model, decision.edit, seed=self.config.seed, salt=f"edit {epoch}")
            self.renew_optimizer(momentum)
        self.settings = outcome.settings
        if back is not None:
            self._put_back(back, asked=epoch)
        return outcome.changes

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
        self._put_back(step.epoch, asked=asked)

    def _put_back(self, back: int, *, asked: int) -> None:
        """Put the state after epoch `back`, which is of the same model, in the present one's place.

        That of FRESH has fresh weights and BatchNorm statistics and no momentum; which weights,
        follows from the epoch in which it was decided.
        """
        momentum: dict[str, Tensor] = {}
        if back == FRESH:
            salt = f"reinitialise {asked}"
            self.model.adopt(ResidualCNN(self.spec, seed=self.config.seed, salt=salt))
        else:
            model, momentum = self.kept[back]
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


@torch.no_grad()
def put_into(model: ResidualCNN, fault: Fault) -> None:
    """Change the initial weights and biases as the fault says; which units, its seed says.

    Its settings are in the configuration already, and the loop asks it for the factor of its loss.
    """
    if weights := fault.changes.get("weights"):
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and name.startswith("head.") == (weights["part"] == "head"):
                parameter.mul_(weights["factor"])
    if biases := fault.changes.get("biases"):
        for name, bias in _norm_biases(model, everywhere=biases["part"] == "everywhere"):
            count = max(1, round(biases["share"] * len(bias)))
            chosen = torch.randperm(len(bias), generator=generator(fault.name, fault.seed, name))
            bias[chosen[:count].to(bias.device)] = biases["value"]


def _norm_biases(model: ResidualCNN, *, everywhere: bool) -> list[tuple[str, Tensor]]:
    return [
        (name, module.bias)
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d) and (everywhere or name.startswith("blocks."))
    ]
