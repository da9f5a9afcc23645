"""Writes docs/reference/threats.md from what attacks and detectors do.

Run as `PYTHONPATH=tests/helpers:tests/ledger python tests/attacks/threats_page.py`.
"""

import argparse
import tempfile
from pathlib import Path

import threats_exports  # noqa: F401  (each registers its attacks)
import threats_files  # noqa: F401
import threats_owner  # noqa: F401
import threats_verdicts  # noqa: F401
from threat_scene import make_scene
from threats import DETECTORS, THREATS, Threat, carry_out
from threats_selections import SECTION as SELECTIONS
from threats_selections import SELECTION_THREATS
from threats_tasks import SECTION, TASK_THREATS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "threats.md"

_HEAD = """\
# Threats, and what detects each

Written by `PYTHONPATH=tests/helpers:tests/ledger python tests/attacks/threats_page.py`, which
carries out every attack on a copy of an honest ledger and runs every detector on the result; those
of tasks, and of files made of selected entries, have tests of their own. The tests repeat all
{attacks} attacks (`tests/ledger/verification/test_threats.py`). Each detector accepts the honest
ledger.

Before an attack stands a letter for each detector of the section, in order: `F`: rejected, and the
changed entry is named. `f`: rejected. `-`: not detected, and why that does no harm or what helps.
"""

_SECTIONS = {
    ("ledger", "files"): """\
## The ledger's files, changed by someone who has no private key

Verifiers, by what they have apart from the ledger:

1. nothing: it trusts the vkey that is stored next to the ledger
2. the vkey
3. a kept head: the vkey and the newest witnessed tree head
4. a memory: the vkey and its own record of that head
5. only what is new: a record of an earlier head; it reads newer entries only
6. a quorum: the vkey and a policy of two witnesses; both must have cosigned the newest tree head
7. the second verifier, with the vkey and the kept head
8. the next append: the recorder when it appends again; it checks only the end of the ledger
""",
    ("ledger", "key"): """\
## The ledger's files, changed by someone who has its private key

The attacker can sign any ledger. Only tree heads, memories and cosignatures held by others detect
it. The same eight verifiers.
""",
    ("ledger", "old key"): """\
## The ledger's files, changed by someone who has a key that was rotated out

The same eight verifiers.
""",
    ("clock", "clock"): """\
## The recorder's clock, set by someone who controls its machine
""",
    ("bundle", "files"): """\
## A bundle, changed by the person who hands it over
""",
    ("proof", "files"): """\
## A proof of one entry, changed by the person who hands it over
""",
    ("proof", "key"): """\
## A proof of one entry, made by someone who has the ledger's private key
""",
    ("evidence", "files"): """\
## Evidence against a ledger, changed by the accuser
""",
    ("evidence", "old key"): """\
## Evidence against a ledger, made by someone who has a key that was rotated out
""",
    ("memory", "files"): """\
## A verifier's memory, changed by someone who can write it

A key in the same folder, which only its owner can read, authenticates each file. Someone who can
read that key and write the folder can write any memory. The tables that `proctor sql` asks lie in
a folder inside of it that only its owner can enter; who writes there can write any table. Nothing
detects that: they are the verifier's own user, or root.
""",
    ("blob", "files"): """\
## Blobs, changed by someone who can write the ledger's files
""",
    ("verdict", "append"): """\
## Verdicts, made up or weakened by someone who can append to the ledger

A run can be judged any number of times.
[The audit that checked most stands](audit.md#several-audits-of-one-run). *found*: another audit
of the run stands, or none. Each made-up audit here was appended after the one that ought to stand.
The first rows are of a run that was changed under its signed audit: then none ought to stand.

`proctor judge --sample` retrains less than the whole run. It always reaches the submitted weights.
If they are of epoch *s* of *n* (from 0), it notices one forged epoch behind them with a probability
of 1 / (*n* - *s*) if that epoch is the last. The report states this probability. Trust a sample as
a first look; the whole run is retrained by default.
""",
}


_TAIL = """\
## What a ledger cannot see

A ledger shows what was recorded, and that nothing of it was changed. These ways to a better score
leave no trace in it:

- **Rehearsals elsewhere**: many runs off the ledger, of which the best one is recorded. Helps: a
  task that is secret until the start. The organiser names data set and `data_seed` when the run
  begins, and the judge brings the data (`--data-dir`).
- **A seed chosen on the test set.** The trainer has the images: the test set is hidden from the
  policy only. Helps: many test images that only the judge has. At an accuracy of 0.2, the best of
  16 tries gains about 0.11 by chance on 50 images, and about 0.01 on 5,000.
- **Attempts left out**: one campaign of several is shown, each in a ledger of its own. Helps: a
  registered campaign. Witnesses cosign its start before the first attempt, so the number of
  attempts is fixed and each abandoned one is listed.
- **A ledger begun again** after a bad result. Helps: a notary that keeps the ledger for the
  trainer, and witnesses, who remember the first one.
- **A data set made easy**, for example by near copies of training images in the test set. Equal
  pixels in two splits are refused; other images are different images. Helps: data that the
  organiser or the judge chose.

Compare scores only between runs with the same fingerprint of the test set, which `run.started`
records in `data`. A test accuracy on data that the trainer chose says how well the model fits that
data, and nothing else.
"""


def codes_of(page: str) -> dict[str, str]:
    """Return the letters of each attack on a page."""
    told = [line.removeprefix("- `").split("` ", 1) for line in page.splitlines()[::-1]]
    lines = {pair[1]: pair[0] for pair in told if len(pair) == 2}  # of two alike, the first
    return {each.name: lines[_line(each)] for each in THREATS if _line(each) in lines}


def _line(threat: Threat) -> str:
    why = threat.harmless or threat.undetected
    return f"{threat.name}: {why}." if why else threat.name


def rendered(codes: dict[str, str]) -> str:
    """Return the page for these letters by the names of their threats."""
    parts = [_HEAD.format(attacks=len(THREATS) + len(SELECTION_THREATS) + len(TASK_THREATS))]
    for (target, by), text in _SECTIONS.items():
        parts.append(text)
        if target != "ledger":
            parts.append(f"Detectors: {', '.join(DETECTORS[target])}.\n")
        threats = [each for each in THREATS if (each.target, each.by) == (target, by)]
        parts += [*(f"- `{codes[each.name]}` {_line(each)}" for each in threats), ""]
    return "\n".join([*parts, SELECTIONS, SECTION, _TAIL])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = make_scene(Path(folder) / "honest")
        codes = {
            each.name: carry_out(each, scene.copy(Path(folder) / str(number))).codes
            for number, each in enumerate(THREATS)
        }
    PAGE.write_text(rendered(codes), encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
