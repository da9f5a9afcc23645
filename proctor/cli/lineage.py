"""`proctor data lineage`: where one training example comes from, as a file that proves it.

Exit code 0: it leads to what let it come about. 1: a link is missing, or what it rests on was
rolled back or withdrawn since. 2: it is no decision of this ledger.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated
from uuid import UUID

from aggregates.registry import REGISTRY
from judge.errors import LineageError
from judge.lineage.example import ExportLine, decisions_of, line_of
from judge.lineage.files import (
    find_lineage,
    open_lineage,
    remark_on_size,
    write_lineage,
)
from judge.lineage.trace import Lineage
from ledger.verification.reader import VerifiedLedger
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, VkeyOption
from proctor.cli.verify_files import Step, steps_of, tell_lineage
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_octets
from proctor.output.files import verify_target, write_output
from proctor.output.shape import Answer
from proctor.output.terminal import console, warn, words
from proctor.remembering import keep_definitions, open_remembered
from projections.projector import projected

app = CommandGroup()

_MAX_EXPORT = 1 << 30  # bytes


class Traced(Answer):
    """Where an example comes from; exit code 1 if a run of it is tainted."""

    example: str
    steps: list[Step]
    out: Path | None
    bytes: int | None
    remark: str | None
    tainted: list[tuple[str, str]]  # run, reason


@app.command(prints=Traced)
def lineage(
    home: Home,
    example: Annotated[
        str, "RUN/NUMBER of a decision; a preference names two, A>B.", Argument("EXAMPLE")
    ],
    export: Annotated[
        Path | None, "JSON Lines file with the example; its line is checked, too."
    ] = None,
    out: Annotated[Path | None, "Write a proof to this file."] = None,
    vkey: VkeyOption = None,
) -> Output:
    """Trace an example to its decision, run, checkpoint, evaluation, approval and key."""
    keep_definitions()
    if out is not None:
        verify_target(out, home=home, others=(export, vkey))
    line = None if export is None else _line(example, export)
    decisions = _decisions(example)
    with open_remembered(home, heads=True) as ledger:
        try:
            found = find_lineage(ledger, example, line=line)
        except LineageError:
            _verify_known(ledger, decisions)  # or nothing is missing but the example
            raise
        text = remark = None
        if out is not None:
            text = write_lineage(ledger, example, line=line)
            remark = remark_on_size(text, open_lineage(text, vkey=ledger.vkey))
        taints = _taints(ledger, found)
    if out is not None and text is not None:
        write_output(out, text, home=home)
    size = None if text is None else len(text.encode())
    told = Traced.of(
        found, steps=steps_of(found), out=out, bytes=size, remark=remark, tainted=taints
    )

    def tell() -> None:
        tell_lineage(told.example, told.steps)
        if text is not None:
            console.print(f"wrote the proof, {counted(size or 0, 'byte')}, to {words(out)}")
        if remark is not None:
            warn(remark)
        for run, reason in taints:
            console.print(f"[red]tainted since[/]: run {words(run)}: {words(reason)}")

    return Output(told, tell, found=bool(taints))


def _taints(ledger: VerifiedLedger, found: Lineage) -> list[tuple[str, str]]:
    """Return what came later: each run with the reason why nothing of it is to be used.

    By the entries that were verified: the DuckDB file of a home is no evidence.
    """
    runs = list(dict.fromkeys(str(run) for run, _ in decisions_of(found.example)))
    asked = (
        "SELECT run_id, unnest(taint_reasons) FROM run_standing WHERE run_id IN (SELECT unnest(?))"
    )
    with closing(
        projected(ledger.entries(), authority=ledger.authority.stream_id, quarantine=True)
    ) as connection:
        rows = connection.execute(asked, [runs]).fetchall()
    return [(str(run), str(reason)) for run, reason in rows]


def _decisions(example: str) -> list[tuple[UUID, int]]:
    try:
        return decisions_of(example)
    except LineageError as error:
        raise ProctorError(f"{error}; the `id` of a line of an export is one") from error


def _verify_known(ledger: VerifiedLedger, decisions: Sequence[tuple[UUID, int]]) -> None:
    """Raise ProctorError unless the ledger has each of these decisions."""
    sought = set(decisions)
    for entry in ledger.entries():
        if entry.name == "run.decision_made" and any(entry.stream_id == run for run, _ in sought):
            body = REGISTRY.readable(entry.name, entry.body) or {}
            sought.discard((entry.stream_id, body.get("number", 0)))
    for run, number in sorted(sought):
        raise ProctorError(
            f"the ledger has no decision {run}/{number}; the `id` of a line of an export, and "
            "`proctor log`, say which there are"
        )


def _line(example: str, export: Path) -> ExportLine:
    data = read_octets(export, most=_MAX_EXPORT)
    return line_of(example, data.removesuffix(b"\n").split(b"\n"))
