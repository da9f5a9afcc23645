"""`proctor/Training-v0`: live trainings whose fired rules an agent answers, for Gymnasium.

Importing this module registers the environment. Each environment trains in a process of its own.

Source: docs/how-to/agents.md.
I/O: starts a process; with `record`, that process appends to the home's ledger.
"""

import json
import os
import string
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ledger.strict_json import JSONError, read_json
from monitor.dispatch import PORTABLE
from proctor.environment.choices import CHOICES
from proctor.environment.numbers import BOUNDS, arrays
from proctor.environment.trainer import Trainer, episode_config
from proctor.errors import ProctorError

ID = "proctor/Training-v0"
ACTIONS = ("choices", "decisions")
REWARDS = ("gain", "val_loss", "accuracy", "process")
MAX_TEXT = 2**16  # characters of an answer
_SEEDS = 2**31

Seen = dict[str, NDArray[np.float32]]


class TrainingEnv(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]  # not always there
    """An episode is a training, and a step is the end of an epoch in which rules are due.

    actions: `choices` are numbers, those of proctor.environment.choices; `decisions` are JSON, as
    a text or a map {"decisions": [...]}, in the form that policies of other authors answer in.
    reward: one of REWARDS, or several of them with their weights.
    record: a home, in whose ledger each episode becomes a run.
    settings: of the configuration of a run, instead of those of episode_config().

    Raises ConfigurationError or ProctorError naming what is wrong.
    """

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(
        self,
        *,
        actions: str = "choices",
        reward: str | Mapping[str, float] = "gain",
        record: str | os.PathLike[str] | None = None,
        render_mode: None = None,
        **settings: Any,
    ) -> None:
        if actions not in ACTIONS:
            raise ProctorError(f"actions must be one of {', '.join(ACTIONS)}, not {actions!r}")
        self._weights = {reward: 1.0} if isinstance(reward, str) else dict(reward)
        if not self._weights or not {*self._weights} <= {*REWARDS}:
            raise ProctorError(
                f"reward must be one of {', '.join(REWARDS)}, or a map from some of them to their "
                f"weights, not {reward!r}"
            )
        self._actions = actions
        self._record = None if record is None else os.path.abspath(record)  # noqa: PTH100
        self._settings = settings
        config = episode_config(settings)
        self._trainer = Trainer(portable=config.numerics == PORTABLE)
        self._now: dict[str, Any] | None = None  # what the process said last
        self.render_mode = render_mode
        self.observation_space = spaces.Dict(
            {name: spaces.Box(low, high, dtype=np.float32) for name, (low, high) in BOUNDS.items()}
        )
        self.action_space = (
            spaces.Discrete(len(CHOICES))
            if actions == "choices"
            else spaces.Text(MAX_TEXT, charset=string.printable)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin a training, and return its first situation in which rules are due.

        `options` are settings of this episode alone. The training's seed is drawn from the
        environment's, unless the settings name one. An episode that has not ended is left.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(_SEEDS))
        self._now = None
        config = episode_config({"seed": drawn, **self._settings, **(options or {})})
        self._now = self._trainer.begin(
            {
                "config": config.to_dict(),
                "record": self._record,
                "policy": {"environment": ID, "actions": self._actions},
                "process": "process" in self._weights,
                "waiting": "gain" in self._weights,
                "words": self._actions == "decisions",
            }
        )
        return arrays(self._now["numbers"]), self._info(self._now)

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Answer the due rules, and train until rules are due again or the training ends."""
        before = self._now
        if before is None:
            raise ProctorError("there is no episode, or it has ended: call reset()")
        self._now = None  # until it is known how it goes on
        ended = "end" in before  # no rule was due in the whole training
        now = before if ended else self._trainer.answer(self._message(action))
        over = "end" in now
        self._now = None if over else now
        found = {
            "val_loss": before["val_loss"] - now["val_loss"],
            "accuracy": now["val_accuracy"] if over else 0.0,
            "process": now["process_score"] if over else 0.0,
            "gain": now["gain"] if over and "gain" in self._weights else 0.0,
        }
        reward = float(sum(weight * found[name] for name, weight in self._weights.items()))
        return arrays(now["numbers"]), reward, over, False, self._info(now)

    def close(self) -> None:
        """End the process; an episode that has not ended is left."""
        self._now = None
        self._trainer.close()

    def _message(self, action: Any) -> dict[str, Any]:
        """Return an action as the process takes it; what is no answer is recorded as none."""
        if self._actions == "choices":
            return {"choice": int(action)}
        try:
            answer = read_json(action.encode()) if isinstance(action, str) else action
            json.dumps(answer, allow_nan=False)
        except (JSONError, RecursionError, TypeError, ValueError) as error:
            return {"problem": f"the answer cannot be read: {error}"}
        return {"answer": answer}

    def _info(self, now: Mapping[str, Any]) -> dict[str, Any]:
        due = now.get("due", {})
        mask = now.get("mask", [True] + [False] * (len(CHOICES) - 1))
        info = {
            "epoch": now["epoch"],
            "due": " ".join(f"{rule}:{side}" for rule, side in due.items()),
            "mask": np.array(mask, dtype=np.int8),
            "val_loss": now["val_loss"],
            "answered": now["answered"],
            "outcomes": " ".join(now["outcomes"]),
        }
        if now.get("observation") is not None:
            said = {key: value for key, value in now["observation"].items() if key != "run_id"}
            info["observation"] = json.dumps(said)  # alike for the same seed and actions
        if "end" in now:
            info |= {key: now[key] for key in ("end", "digest", "val_accuracy")}
            if self._record is not None:
                info["run"] = now["run"]
            info |= {key: now[key] for key in ("gain",) if key in self._weights}
            if "process" in self._weights:
                info["process"] = now["process_score"]
        return info


gymnasium.register(ID, entry_point="proctor.environment.gym:TrainingEnv")
