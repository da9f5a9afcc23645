"""What each subcommand does; every function returns the exit code.

Answers go to standard output, as text or as one JSON document; progress goes to standard error.
"""

import tomllib
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.markup import escape

from aggregates.registry import REGISTRY
from judge.audit import audit_run
from judge.reexecution import reexecute
from judge.report import AuditReport
from ledger.application import LedgerApplication
from ledger.mapper import decode_body, ns_to_datetime
from ledger.reader import check_ledger, open_verified
from ledger.verify import VerifiedEntry
from monitor.config import RunConfig
from monitor.errors import ConfigurationError
from policies.catalogue import create_policy
from policies.recorded import RecordedPolicy
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from proctor.home import Home, find_run, run_ids
from proctor.output import cell, console, plain, print_json, print_table
from proctor.progress import watching
from proctor.replay import describe_state, read_recording, tell_entry
from proctor.story import read_story, tell_story
from proctor.training import run_training
from projections.cache import catch_up, query

# A start that goes wrong: the learning rate is ten times what the model can use.
DEMO: dict[str, Any] = {"lr": 3.0, "warm_up_epochs": 0}


def demo(home: Home, *, as_json: bool) -> int:
    """Do the main job once."""
    with home.open_log() as log:
        (run_id,) = _train(home, log, RunConfig.from_dict(DEMO), "playbook")
        report = _judge(home, log, run_id)
    checked = check_ledger(home.ledger)
    catch_up(home.projection, home.ledger)
    if as_json:
        print_json({"run": run_id, "audit": report.to_dict(), "verification": checked})
        return EXIT_FOUND if report.hard_fail or not checked.ok else EXIT_HELD
    tell_story(read_story(home, str(run_id)))
    size = checked.head.size if checked.head else 0
    console.print(f"\nledger: {checked.size} entries, complete to tree head {size}")
    place = f"--home {home.path} " if home.path != Path(".proctor") else ""
    console.print("\nnext:")
    for command, why in (
        ("verify", "check every link and signature with the public key"),
        ("show", "this run's story again"),
        ('sql "SELECT * FROM run_summary"', "ask anything"),
        ("replay", "the run, event by event"),
        ("replay --execute", "do the training again and compare it bit for bit"),
    ):
        console.print(escape(f"  .venv/bin/proctor {command} {place}").ljust(58) + why)
    return EXIT_FOUND if report.hard_fail or not checked.ok else EXIT_HELD


def run(home: Home, settings: list[str], *, config: Path | None, policy: str, as_json: bool) -> int:
    """Train."""
    chosen = read_config(config, settings)
    create_policy(policy)  # an unknown name is refused before anything is written
    with home.open_log() as log:
        runs = _train(home, log, chosen, policy)
    catch_up(home.projection, home.ledger)
    stories = [read_story(home, str(run_id))["summary"] for run_id in runs]
    if as_json:
        print_json({"runs": stories})
    else:
        shown = ("run_id", "state", "epochs", "best_val_accuracy", "firings", "decisions")
        print_table(shown, [[story[column] for column in shown] for story in stories])
    return EXIT_HELD


def judge(
    home: Home, name: str, *, submission: Path | None, head: Path | None, as_json: bool
) -> int:
    """Audit a run."""
    home.require_ledger()
    checked = check_ledger(home.ledger, kept_head=_read(head))
    if not checked.ok:  # nothing is appended to a ledger that does not hold
        report = _judge_broken(home, name, submission, head)
    else:
        with home.open_log() as log:
            run_id = find_run(run_ids(log), name)
            report = _judge(home, log, run_id, submission=submission, kept_head=_read(head))
        catch_up(home.projection, home.ledger)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    return EXIT_FOUND if report.hard_fail else EXIT_HELD


def verify(
    home: Home, *, head: Path | None, keep: Path | None, vkey: Path | None, as_json: bool
) -> int:
    """Verify the ledger."""
    home.require_ledger()
    report = check_ledger(home.ledger, vkey=_read(vkey), kept_head=_read(head))
    if report.ok and keep is not None:
        if report.head is None:
            raise ProctorError("an empty ledger has no tree head to keep")
        keep.write_text(report.head.note, encoding="utf-8")
    size = report.head.size if report.head else 0
    if as_json:
        print_json({**plain(report), "complete_to": size})
    elif report.ok:
        console.print(f"[green]held[/]: {report.size} entries, complete to tree head {size}")
        if head is not None:
            console.print("it contains the tree head that you kept")
    else:
        where = "" if report.index is None else f" at index {report.index}"
        console.print(f"[red]failed[/]{where}: {report.error_type}: {escape(str(report.error))}")
        console.print(f"the {report.size} entries before hold together")
    return EXIT_HELD if report.ok else EXIT_FOUND


def show(home: Home, name: str, *, as_json: bool) -> int:
    """Tell one run's story."""
    story = read_story(home, str(_project(home, name)))
    if as_json:
        print_json(story)
    else:
        tell_story(story)
    return EXIT_HELD


def replay(home: Home, name: str, *, at: int | None, execute: bool, as_json: bool) -> int:
    """Tell a run from its events, or do it again."""
    recording = read_recording(home, name)
    if execute:
        recorded = recording.state()
        policy = RecordedPolicy(recorded.decisions, recorded.policy)
        comparison = reexecute(recording.events, policy, blobs=home.blobs)
        if as_json:
            print_json({"run": recording.run_id, **comparison.to_dict()})
        else:
            _print_comparison(recording.run_id, comparison.to_dict())
        return EXIT_HELD if comparison.equal else EXIT_FOUND
    if at is not None:
        state = describe_state(recording.state(at))
        if as_json:
            print_json(state)
        else:
            print_table(("", ""), state.items(), title=f"run {recording.run_id} after event {at}")
        return EXIT_HELD
    if as_json:
        print_json([_entry(entry) for entry in recording.entries])
        return EXIT_HELD
    _print_entries(recording.entries, number=True)
    return EXIT_HELD


def sql(home: Home, statement: str, *, as_json: bool) -> int:
    """Ask the projection."""
    home.require_ledger()
    catch_up(home.projection, home.ledger)
    result = query(home.projection, statement)
    if as_json:
        print_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
    else:
        print_table(result.columns, result.rows)
    return EXIT_HELD


def log(home: Home, *, start: int, limit: int, entry: int | None, as_json: bool) -> int:
    """List entries, or show one."""
    home.require_ledger()
    with open_verified(home.ledger) as ledger:
        if entry is not None:
            found = next(iter(ledger.entries(start=entry)), None)
            if found is None:
                raise ProctorError(f"the ledger has entries 0 to {ledger.size - 1}; no {entry}")
            if as_json:
                print_json(_entry(found))
            else:
                print_table(("", ""), _entry(found).items())
            return EXIT_HELD
        chosen = [each for each, _ in zip(ledger.entries(start=start), range(limit), strict=False)]
    if as_json:
        print_json([{**_entry(each), "body": None} for each in chosen])
    else:
        _print_entries(chosen, number=False)
    return EXIT_HELD


def read_config(path: Path | None, settings: list[str]) -> RunConfig:
    """Return the configuration of a file, changed by KEY=VALUE settings.

    A value is read as TOML (lr=0.3, waived=["R2"]) and else taken as text. Raises
    ConfigurationError naming the key.
    """
    chosen: dict[str, Any] = {} if path is None else RunConfig.from_toml(path).to_dict()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"{setting!r} is not KEY=VALUE, as in lr=0.3")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        chosen[key] = value
    return RunConfig.from_dict(chosen)


def _train(home: Home, log: LedgerApplication, config: RunConfig, policy: str) -> list[UUID]:
    with watching() as watchers:
        return run_training(
            home,
            log,
            config,
            make_policy=lambda: create_policy(policy),
            judge_run=lambda run_id: _judge(home, log, run_id),
            watching=watchers,
        )


def _judge(
    home: Home,
    log: LedgerApplication,
    run_id: UUID,
    *,
    submission: Path | None = None,
    kept_head: str | None = None,
) -> AuditReport:
    return audit_run(
        run_id,
        ledger_dir=home.ledger,
        submission_dir=submission or home.submission(run_id),
        log=log,
        kept_head=kept_head,
    )


def _judge_broken(home: Home, name: str, submission: Path | None, head: Path | None) -> AuditReport:
    try:
        run_id = UUID(name)
    except ValueError:
        raise ProctorError(
            "the ledger does not hold (see `proctor verify`), so no run can be looked up in it; "
            "give the whole run id to have that recorded as the verdict"
        ) from None
    return audit_run(
        run_id,
        ledger_dir=home.ledger,
        submission_dir=submission or home.submission(run_id),
        log=None,
        kept_head=_read(head),
    )


def _project(home: Home, name: str) -> UUID:
    """Bring the projection up to date and return the run that `name` means."""
    home.require_ledger()
    home.close_crashed()
    catch_up(home.projection, home.ledger)
    runs = query(home.projection, "SELECT run_id FROM runs ORDER BY started_idx").rows
    return find_run([UUID(row[0]) for row in runs], name)


def _read(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProctorError(f"{path} cannot be read: {error}") from error


def _entry(entry: VerifiedEntry) -> dict[str, Any]:
    return {
        "index": entry.index,
        "time": ns_to_datetime(entry.time_ns),
        "stream": str(entry.stream_id),
        "version": entry.stream_version,
        "event": entry.name,
        "hash": entry.entry_hash.hex(),
        "body": REGISTRY.upcast(entry.name, decode_body(entry.body)),
    }


def _print_entries(entries: list[VerifiedEntry], *, number: bool) -> None:
    for entry in entries:
        place = entry.stream_version if number else entry.index
        when = ns_to_datetime(entry.time_ns).strftime("%H:%M:%S")
        stream = "" if number else f"{str(entry.stream_id)[:8]} "
        console.print(
            f"[dim]{place:>5} {when} {stream}[/]{entry.name:<22} {escape(tell_entry(entry))}"
        )


def _print_report(report: AuditReport) -> None:
    print_table(
        ("step", "", "status", ""),
        [(step.step, step.name, step.status, step.summary) for step in report.steps],
        title=f"audit of run {report.run_id}",
    )
    for violation in report.violations:
        console.print(f"violation: {escape(str(violation.to_dict()))}")
    if off := report.config.get("disabled"):
        console.print(f"[yellow]checks switched off: {', '.join(off)}[/]")
    scores = report.scores
    axis = "exercised" if scores.process_axis_exercised else "unexercised: hardly a rule fired"
    console.print(
        f"accuracy score {scores.accuracy_score:.3f} (test accuracy {cell(scores.test_accuracy)}, "
        f"target {cell(scores.target_accuracy)})\n"
        f"process score  {scores.process_score:.3f} ({len(report.violations)} violations in "
        f"{scores.obligations} obligations, {axis})"
    )
    if report.hard_fail:
        console.print("[red]hard fail[/]: a gate did not hold; both scores are 0")


def _print_comparison(run_id: UUID, found: dict[str, Any]) -> None:
    console.print(f"run {run_id} done again")
    print_table(("", ""), found.items())
