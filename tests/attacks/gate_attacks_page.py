"""Writes docs/reference/gauntlet-threats.md from the catalogue of attacks on the gate.

Run as `PYTHONPATH=tests/helpers python tests/attacks/gate_attacks_page.py`.
"""

import argparse
from pathlib import Path

import gate_attacks_code  # noqa: F401  (each registers its attacks)
import gate_attacks_diffs  # noqa: F401
import gate_attacks_rest  # noqa: F401
import gate_attacks_words  # noqa: F401
from gate_attacks import ATTACKS, SECTIONS

__all__ = ["PAGE", "rendered"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gauntlet-threats.md"

_HEAD = """\
# Attacks on the gate, and how each ends

Written by `PYTHONPATH=tests/helpers python tests/attacks/gate_attacks_page.py`. The test suite
(`tests/judge/gauntlet/test_gate_attacks.py`) carries out all {attacks} attacks through the command
line, with a real repository, ledger, controller and processes. Each test checks four facts: the
attack ends as stated here; the reason contains the quoted words; the line, its checkpoint, the work
tree, hooks and settings are unchanged; and an honest change on the same line is promoted.

\u00b0: the attacked line lets changed code import anything, so the other defences have to hold
without the import check. A candidate that looks for something (expected answers, files of others,
the arm it runs in) scores better if it finds it, and would be promoted.

How a candidate is run: [the gauntlet](gauntlet.md). Attacks on the ledger: [threats](threats.md).
"""
_CHANCE = """\
On tasks whose answers differ between runs, a change without effect can pass by chance. Its
probability is measured and bounded: [error rates](../studies/gate.md#error-rates-of-the-gate).
"""
_REMAINS = """\
The suite carries out the last four of these too.

- Whoever can write the repository can move its branch; `proctor line run --measure` reports this.
- Whoever holds the ledger's key can write its record ([threats](threats.md)).
- Whoever can set the clock can extend an approval.
- A candidate that answers at random has to be lucky twice, but can try again.
  `proctor line run --measure` asks it once more each time.
- Harm of less than ten points in a stochastic task
  [is not excluded](../studies/gate.md#error-rates-of-the-gate).
- A vulnerability of the kernel is one of the confinement."""
_WORDS = {"chance": (_CHANCE,), "remains": (_REMAINS,)}


def rendered() -> str:
    """Return the page."""
    parts = [_HEAD.format(attacks=len(ATTACKS))]
    for section, title in SECTIONS.items():
        parts += [f"## {title}\n", *_WORDS.get(section, ())]
        found: dict[str, list[str]] = {}  # how attacks end -> them
        for each in (each for each in ATTACKS if each.section == section):
            mark = "" if each.ground.startswith("plain") else "\u00b0"
            if section == "remains":
                line = f"{each.name}{mark} ({each.wants}): {each.ends}. {each.against}"
                parts.append(f"- {_cell(line)}")
            else:
                ends = f'{each.ends}, "{each.because}"'
                found.setdefault(ends, []).append(f"{each.name}{mark}")
        parts += [
            f"- **{_cell(ends)}**: {_cell('; '.join(names))}" for ends, names in found.items()
        ]
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in text)
    return shown.replace("_", "\\_").replace("<", "&lt;")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(rendered(), encoding="utf-8")
