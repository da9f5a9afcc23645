"""The submitted files, read once: steps 1 to 4.

Every later step uses the bytes read here, so no file can be replaced in between.

Trust: files and their contents are hostile.  I/O: reads one folder.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load
from torch import Tensor

from aggregates.campaign import MODE
from aggregates.errors import WeightsError
from aggregates.spec import ModelSpec
from aggregates.weights import verify_canonical
from judge.auditing.replayed import Replay, SavedWeights
from judge.auditing.report import capped
from judge.compare import differences
from judge.config import JudgeConfig
from judge.confinement.sandbox import Examination
from judge.errors import StepError
from ledger.strict_json import JSONError, read_json
from monitor.submission import FILES

_MOST_FILES = 10_000  # that are listed
_MAX_TEXT = 2**20  # bytes of model.py and of run_config.json
_PICKLES = (b"\x80", b"PK\x03\x04")  # a bare pickle, and torch's archive of one
_LAST_OF_BLOCK = re.compile(r"blocks\.\d+\.conv2\.weight")


@dataclass(frozen=True)
class Submission:
    """The three files, as they were when they were read."""

    model: bytes  # model.py, or the file of a task
    weights: bytes
    run_config: bytes
    hashes: Mapping[str, str]
    ignored: tuple[str, ...]  # other files; nothing in them is looked at


def read_submission(
    directory: Path, *, config: JudgeConfig, files: Sequence[str] = FILES
) -> Submission:
    """Read the deliverables (step 1); raises StepError naming the file."""
    if not directory.is_dir():
        raise StepError(f"folder {directory.name} not found")
    limits = dict.fromkeys(files, _MAX_TEXT) | {"weights.safetensors": config.max_deliverable_bytes}
    contents = {name: _read_file(directory / name, limit) for name, limit in limits.items()}
    return Submission(
        model=next(contents[name] for name in files if name.endswith(".py")),
        weights=contents["weights.safetensors"],
        run_config=contents["run_config.json"],
        hashes={name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        ignored=tuple(
            sorted(p.name for p in islice(directory.iterdir(), _MOST_FILES) if p.name not in files)
        ),
    )


def verify_handed_in(
    deliverables: Mapping[str, str], reason: str | None, *, files: Sequence[str] = FILES
) -> None:
    """Raise StepError unless the run recorded the hashes of all three files (step 1).

    Without them nothing says which files the run submitted: any could be put in their place.
    """
    if missing := [name for name in files if name not in deliverables]:
        raise StepError(
            f"the run ended as {reason} and recorded no hash of {', '.join(missing)}, so no "
            "submission can be compared with it; train it again with `proctor run`; the same "
            "command continues a campaign",
            end=reason,
            missing=missing,
        )


def verify_hashes(submission: Submission, deliverables: Mapping[str, str]) -> None:
    """Raise StepError unless the files are those that the run handed in (step 1)."""
    for name, digest in deliverables.items():
        if submission.hashes.get(name) != digest:
            raise StepError(
                f"{name} is not the file that the run submitted: its SHA-256 differs from the "
                "recorded one",
                recorded=digest,
                found=submission.hashes.get(name),
            )


def verify_contract(
    spec: ModelSpec, examination: Examination, *, waived: Collection[str] = ()
) -> None:
    """Raise StepError unless the model is of the kind that is asked for (step 2).

    `waived` names what a recorded provocation took away: residual, norm.

    At least one residual connection, at least one BatchNorm, and convolutions drawn as by He et
    al. 2015 (Delving Deep into Rectifiers): a standard deviation of sqrt(2 / fan_in).
    """
    if "residual" not in waived and not any(block.residual for block in spec.blocks):
        raise StepError("the model has no residual connection")
    normed = spec.norm == "batch" or any(block.norm == "batch" for block in spec.blocks)
    if "norm" not in waived and not normed:
        raise StepError("the model has no BatchNorm")
    for name, value in examination.fresh.items():
        if value.dim() != 4:
            continue
        if bool((value == 0).all()):
            if _LAST_OF_BLOCK.fullmatch(name) is None:
                raise StepError(
                    f"{name} is initialised to zero, but is not the last layer of a block"
                )
            continue
        _check_he(name, value)


def _check_he(name: str, value: Tensor) -> None:
    expected = (2.0 / value[0].numel()) ** 0.5
    parts = torch.split(value.reshape(-1), 2**22)  # a copy of 64-bit numbers of all of it is large
    squares = sum(float(part.double().square().sum()) for part in parts)
    ratio = (squares / value.numel()) ** 0.5 / expected
    # The deviation of n draws is itself uncertain by 1 / sqrt(2 n); five of that, and a tenth for
    # another gain or a truncated distribution.
    slack = 0.1 + 5.0 / (2.0 * value.numel()) ** 0.5
    if not abs(ratio - 1.0) <= slack:
        raise StepError(
            f"{name} is not He-initialised: its standard deviation is {ratio:.2f} times sqrt(2 / "
            "fan_in)",
            parameter=name,
            ratio=ratio,
            allowed=slack,
        )


def verify_weights(submission: Submission, saved: SavedWeights | None) -> SavedWeights:
    """Return what was saved; StepError unless the weights are that, in safetensors (step 3)."""
    try:
        verify_canonical(submission.weights)
        load(submission.weights)
    except (KeyError, ValueError, safetensors.SafetensorError, WeightsError) as error:
        if submission.weights.startswith(_PICKLES):  # good safetensors can begin like one, too
            raise StepError(
                "weights.safetensors is a pickle file, which the judge never opens"
            ) from error
        raise StepError(f"weights.safetensors is not valid: {error}") from error
    if saved is None:
        raise StepError("the run has saved no weights")
    digest = submission.hashes["weights.safetensors"]
    if digest != saved.sha256:
        raise StepError(
            f"weights.safetensors differs from the weights that the run saved as {saved.kind} in "
            f"epoch {saved.epoch}",
            recorded=saved.sha256,
            found=digest,
        )
    return saved


def verify_run_config(submission: Submission, replay: Replay, saved: SavedWeights) -> None:
    """Raise StepError unless run_config.json says what the ledger says (step 4).

    A file in the first layout, with `config`, `config_hash` and `spec` at its top, is accepted.
    """
    try:
        found = read_json(submission.run_config)
    except JSONError as error:
        raise StepError(f"run_config.json is not strict JSON: {error}") from error
    first_layout = isinstance(found, dict) and "config" in found
    expected = _run_config(replay, saved, first_layout=first_layout)
    if not isinstance(found, dict) or not set(expected) <= set(found):
        raise StepError(f"run_config.json must have the fields {', '.join(sorted(expected))}")
    wrong = list(differences(expected, {key: found[key] for key in expected}))
    if wrong:
        raise StepError(
            f"run_config.json: {wrong[0].place} is {wrong[0].found!r}, but the ledger records "
            f"{wrong[0].recorded!r}",
            differences=capped([difference.to_dict() for difference in wrong]),
        )


def _run_config(replay: Replay, saved: SavedWeights, *, first_layout: bool) -> dict[str, Any]:
    """Return what run_config.json has to say."""
    started, spec = replay.started, saved.spec.to_dict()
    config = {"config": started.config, "config_hash": started.config_hash}
    weights = {"kind": saved.kind, "epoch": saved.epoch, "sha256": saved.sha256}
    common = {"mode": MODE, "run": str(replay.run.id)}
    if first_layout:
        return {**common, **config, "spec": spec, "weights": weights}
    return {
        **common,
        "started_from": {**config, "spec": started.spec},
        "weights": {**weights, "spec": spec},
    }


def _read_file(path: Path, limit: int) -> bytes:
    name: Any = path.name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StepError(f"{name} is missing") from None
    except OSError as error:
        raise StepError(f"{name} cannot be opened as a regular file: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StepError(f"{name} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if not 0 < len(data) <= limit:
        raise StepError(f"{name} must have 1 to {limit} bytes")
    return data
