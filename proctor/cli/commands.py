"""What each subcommand does; every function returns the exit code.

Answers go to standard output, as text or as one JSON document; progress goes to standard error.
"""

from pathlib import Path
from typing import Any

from ledger.errors import LedgerError, MalformedError
from ledger.files import read_bounded
from ledger.mapper import decode_body, ns_to_datetime
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.output.terminal import console, on_one_line, print_json, print_table, words
from proctor.remembering import open_remembered

_MAX_TEXT = 4 << 20  # 4 MiB; of notes, proofs and evidence, the longest need 1 MiB


def show(home: Home, name: str, *, as_json: bool) -> int:
    """Tell one run's story."""
    from proctor.runs.story import read_story, tell_story  # noqa: PLC0415 - loads DuckDB

    home.require_ledger()
    home.close_crashed()
    story = read_story(home, name)
    if as_json:
        print_json(story)
    else:
        tell_story(story)
    return EXIT_HELD


def replay(home: Home, name: str, *, at: int | None, as_json: bool) -> int:
    """Tell a run from its events, or its state after one of them."""
    from proctor.runs.replay import describe_state, read_recording  # noqa: PLC0415 - loads aggregates

    recording = read_recording(home, name)
    if at is not None:
        state = describe_state(recording.state(at))
        if as_json:
            print_json(state)
        else:
            print_table(("", ""), state.items(), title=f"run {recording.run_id} after event {at}")
        return EXIT_HELD
    if as_json:
        print_json([describe_entry(entry) for entry in recording.entries])
        return EXIT_HELD
    _print_entries(recording.entries, number=True)
    return EXIT_HELD


def log(home: Home, *, start: int, limit: int, entry: int | None, as_json: bool) -> int:
    """List entries, or show one."""
    home.require_ledger()
    home.close_crashed()
    with open_remembered(home.ledger) as ledger:
        if entry is not None:
            found = next(iter(ledger.entries(start=entry)), None)
            if found is None:
                raise ProctorError(f"the ledger has entries 0 to {ledger.size - 1}; no {entry}")
            if as_json:
                print_json(describe_entry(found))
            else:
                print_table(("", ""), describe_entry(found).items())
            return EXIT_HELD
        chosen = [each for each, _ in zip(ledger.entries(start=start), range(limit), strict=False)]
    if as_json:
        print_json([{**describe_entry(each), "body": None} for each in chosen])
    else:
        _print_entries(chosen, number=False)
    return EXIT_HELD


def read_text(path: Path | None) -> str | None:
    """Return a file's text, None for None; raises ProctorError or StorageError naming the file."""
    if path is None:
        return None
    try:
        text = read_bounded(path, most=_MAX_TEXT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ProctorError(f"{path} cannot be read: {error}") from error
    if not text.strip():
        raise ProctorError(f"{path} is empty")
    return text


def describe_entry(entry: VerifiedEntry) -> dict[str, Any]:
    """Return an entry and its body as a table of names and values."""
    return {
        "index": entry.index,
        "time": ns_to_datetime(entry.time_ns),
        "stream": str(entry.stream_id),
        "version": entry.stream_version,
        "event": entry.name,
        "author": entry.author and f"{entry.author.role} {entry.author.key_id.hex()}",
        "hash": entry.entry_hash.hex(),
        "body": _body(entry),
    }


def _body(entry: VerifiedEntry) -> Any:
    """Return what an entry's body says, as far as this program knows its kind."""
    try:
        body = decode_body(entry.body)
    except MalformedError:
        return entry.body
    from aggregates.registry import REGISTRY  # noqa: PLC0415 - loads all aggregates

    try:
        return REGISTRY.upcast(entry.name, body)
    except LedgerError:
        return body


def _print_entries(entries: list[VerifiedEntry], *, number: bool) -> None:
    from proctor.runs.replay import tell_entry  # noqa: PLC0415 - loads all aggregates

    for entry in entries:
        place = entry.stream_version if number else entry.index
        when = ns_to_datetime(entry.time_ns).strftime("%H:%M:%S")
        stream = "" if number else f"{str(entry.stream_id)[:8]} "
        told = words(on_one_line(tell_entry(entry)))
        console.print(f"[dim]{place:>5} {when} {stream}[/]{words(entry.name):<22} {told}")
