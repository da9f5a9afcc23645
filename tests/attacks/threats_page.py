"""Writes docs/reference/threats.md from what attacks and detectors do.

Run as `PYTHONPATH=tests/helpers python tests/attacks/threats_page.py`.
"""

import argparse
import tempfile
from pathlib import Path

import threats_exports  # noqa: F401  (each registers its attacks)
import threats_files  # noqa: F401
import threats_owner  # noqa: F401
from threat_scene import make_scene
from threats import DETECTORS, THREATS, carry_out

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "threats.md"

_HEAD = """\
# Threats, and what detects each

Written by `PYTHONPATH=tests/helpers python tests/attacks/threats_page.py`: every attack on this
page is carried out, on disk, on a copy of an honest ledger, and every detector is asked. The
suite does it again and compares (`tests/ledger/verification/test_threats.py`); each detector
accepts the ledger that was not attacked. Why it is so: [tampering](../explanation/tampering.md).

**found**: refused, and the entry named where it was made. found: refused. -: not noticed.
"""

_SECTIONS = {
    ("ledger", "files"): """\
## The ledger's files, by somebody who can write them and has no private key

The columns are verifiers by what they hold beside the ledger: nothing (the vkey that lies there is
believed); the vkey; the vkey and the newest witnessed tree head; the vkey and a memory of that
head; a memory of an earlier one, by which only what is new is read; the vkey and a policy of two
witnesses that both have to have cosigned the newest tree head. Then the second verifier, with vkey
and kept head; then the recorder, at its next append, which checks the end of the ledger only.
""",
    ("ledger", "key"): """\
## The same, by somebody who holds the ledger's private key as well

They can sign whatever they like; what others hold is all that stands against it.
""",
    ("ledger", "old key"): """\
## The same, by somebody who holds a key that was rotated out
""",
    ("clock", "clock"): """\
## The recorder's time, by somebody who can set its machine's clock
""",
    ("bundle", "files"): """\
## A bundle, by whoever hands it over
""",
    ("proof", "files"): """\
## A proof of one entry, by whoever hands it over
""",
    ("proof", "key"): """\
## The same, by somebody who holds the ledger's private key as well
""",
    ("evidence", "files"): """\
## Evidence against a ledger, by whoever accuses it
""",
    ("evidence", "old key"): """\
## The same, by somebody who holds a key that was rotated out
""",
    ("memory", "files"): """\
## What a verifier remembers, by somebody who can write that
""",
    ("blob", "files"): """\
## Blobs, by somebody who can write the ledger's files
""",
}


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
    return "\n".join(parts)


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
