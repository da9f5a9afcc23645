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
from threats import DETECTORS, THREATS, carry_out
from threats_selections import SECTION as SELECTIONS
from threats_tasks import SECTION

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "threats.md"

_HEAD = """\
# Threats, and what detects each

Written by `PYTHONPATH=tests/helpers:tests/ledger python tests/attacks/threats_page.py`. The program
carries out every attack on a copy of an honest ledger, and runs every detector on the result; those
of tasks, and of files made of selected entries, have tests of their own. The test suite repeats
this and compares (`tests/ledger/verification/test_threats.py`). Each detector accepts the honest
ledger. Explanation: [tampering](../explanation/tampering.md).

**found**: rejected, and the changed entry is named. found: rejected. -: not detected.
"""

_SECTIONS = {
    ("ledger", "files"): """\
## The ledger's files, changed by someone who has no private key

Each column is a verifier that has, apart from the ledger:

- *nothing*: it trusts the vkey that is stored next to the ledger
- *the vkey*
- *a kept head*: the vkey and the newest witnessed tree head
- *a memory*: the vkey and its own record of that head
- *... only what is new*: a record of an earlier head; it reads newer entries only
- *a quorum*: the vkey and a policy of two witnesses; both must have cosigned the newest tree head

The *second verifier* has the vkey and the kept head. *Next append* is the recorder when it appends
again; it checks only the end of the ledger.
""",
    ("ledger", "key"): """\
## The ledger's files, changed by someone who has its private key

The attacker can sign any ledger. Only tree heads, memories and cosignatures held by others detect
it.
""",
    ("ledger", "old key"): """\
## The ledger's files, changed by someone who has a key that was rotated out
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

A ledger shows what was recorded, and that nothing of it was changed. It does not show what was
never recorded. These ways to a better score leave no trace in it:

- **Rehearsals elsewhere.** The trainer makes many runs off the ledger and records the best one. It
  is honest in every step, and the judge's retraining gives the same values. What helps: a task that
  is secret until the start. The organiser names data set and `data_seed` when the run begins, and
  the judge brings the data (`--data-dir`).
- **A seed chosen on the test set.** The trainer scores many values of `seed` or `data_seed` and
  records the best. The trainer has the images: the test set is hidden from the policy only. What
  helps: test images that only the judge has, and many of them. At an accuracy of 0.2, the best of
  16 tries gains about 0.11 by chance on 50 images, and about 0.01 on 5,000.
- **Attempts left out.** The trainer shows one campaign of several, each in a ledger of its own.
  Each ledger is complete in itself. What helps: a registered campaign. Witnesses cosign its start
  before the first attempt, so the number of attempts is fixed and each abandoned one is listed.
- **A ledger begun again** after a bad result. The new ledger is valid. What helps: a notary that
  keeps the ledger for the trainer, and witnesses, who remember the first one.
- **A data set made easy**, for example by near copies of training images in the test set: mirrored,
  or with one pixel changed. Equal pixels in two splits are refused; other images are different
  images. What helps: data that the organiser or the judge chose.

Compare scores only between runs with the same fingerprint of the test set, which `run.started`
records in `data`. A test accuracy on data that the trainer chose says how well the model fits that
data, and nothing else.
"""


def rendered(rows: dict[str, str]) -> str:
    """Return the page for these rows by the names of their threats."""
    parts = [_HEAD]
    for (target, by), text in _SECTIONS.items():
        threats = [each for each in THREATS if (each.target, each.by) == (target, by)]
        columns = ["attack", *DETECTORS[target]]
        parts.append(text)
        parts.append(
            "\n".join(
                [
                    f"| {' | '.join(columns)} |",
                    f"|{'---|' * len(columns)}",
                    *(rows[each.name] for each in threats),
                ]
            )
            + "\n"
        )
        remarks = {
            each.name: each.harmless or each.undetected
            for each in threats
            if each.harmless or each.undetected
        }
        if remarks:
            parts.append("".join(f"- {name}: {why}.\n" for name, why in remarks.items()))
    return "\n".join([*parts, SELECTIONS, SECTION, _TAIL])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = make_scene(Path(folder) / "honest")
        rows = {
            each.name: carry_out(each, scene.copy(Path(folder) / str(number))).row
            for number, each in enumerate(THREATS)
        }
    PAGE.write_text(rendered(rows), encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
