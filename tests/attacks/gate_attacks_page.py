"""Writes docs/reference/gauntlet-threats.md from the catalogue of attacks on the gate.

Run as `PYTHONPATH=tests/helpers python tests/attacks/gate_attacks_page.py`.
"""

import argparse
from collections.abc import Iterable
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

Written by `PYTHONPATH=tests/helpers python tests/attacks/gate_attacks_page.py`. Every attack on
this page is carried out by the suite (`tests/judge/gauntlet/test_gate_attacks.py`) through the
front door: a real repository, ledger and controller, real processes. It has to end as it says
here, for the reason that is quoted here; the line, its checkpoint, the work tree, hooks and
settings have to be as before; and an honest change beside it has to be promoted.

*Unfenced*: the line that is attacked allows changed code to import anything, and so lacks a part of
what protects others; what stands behind that has to hold by itself. Where an attack looks for
something (what is expected, others' files, the arm that it is in), its candidate does better if it
finds it, and would be promoted.

How a candidate is run: [the gauntlet](gauntlet.md). Attacks on the ledger: [threats](threats.md).
"""
_CHANCE = """\
How often one of many changes that change nothing gets through, on tasks whose answers differ from
run to run, is measured and bounded: [the calibrated gate](../explanation/calibrated-gate.md).
"""
_REMAINS = """\
These are carried out as well, and are not refused. Beside them remain: whoever can write the
repository moves its branch (`measure` says so); whoever holds the ledger's key writes its record
([threats](threats.md)); whoever can set the clock makes an approval last. A candidate that answers
at random has to be lucky twice, and can try again; `measure` asks it once more each time. Harm of
less than ten points in a stochastic task [is not excluded](../explanation/calibrated-gate.md). A
hole in the kernel is one in the confinement.
"""
_WORDS = {"chance": (_CHANCE,), "remains": (_REMAINS,)}


def rendered() -> str:
    """Return the page."""
    parts = [_HEAD]
    for section, title in SECTIONS.items():
        found = [each for each in ATTACKS if each.section == section]
        remains = section == "remains"
        last = "what stands against it" if remains else "because"
        rows = [
            (
                each.name + ("" if each.ground == "plain" else " (unfenced)"),
                each.wants,
                each.ends,
                each.against if remains else f"... {each.because} ...",
            )
            for each in found
        ]
        parts += [f"## {title}\n", *_WORDS.get(section, ())]
        parts.append(_table(("attack", "what it wants", "ends as", last), rows))
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in lines)


def _cell(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in text)
    return shown.replace("|", "\\|").replace("_", "\\_").replace("<", "&lt;")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(rendered(), encoding="utf-8")
