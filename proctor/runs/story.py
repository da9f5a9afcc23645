"""One run's story in the terminal: curves, rules, decisions, verdict.

Source: projections/views.sql, projections/verdicts.sql.
Trust: what is told comes from a ledger that was just verified.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from operator import itemgetter
from typing import Any
from uuid import UUID

from rich.text import Text

from aggregates.playbook import why_waived
from aggregates.rulebook import PRECEDENCE, RULE_TITLES
from aggregates.transcript import Transcript
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from ledger.witnessing.quorum import Quorum
from ledger.wording import counted, listed
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.output.columns import Shows, grouped
from proctor.output.firings import (
    answer_form,
    fired_on,
    named,
    side_told,
    told_lost,
    told_watched,
    violation_told,
)
from proctor.output.terminal import (
    console,
    print_rows,
    print_table,
    print_words,
    records_of,
    told_level,
    told_score,
    told_verdict,
    visible,
    words,
)
from proctor.remembering import (
    ask,
    keep_definitions,
    open_index,
    open_remembered,
    tell_aside,
    tell_unread,
)
from proctor.runs.fixed import EFFECTS, cosigned_heads, find_fixed, told_fixed
from proctor.runs.metrics import CHARTED, EPOCHS, metric_names, with_columns
from proctor.runs.replay import audited_run, find_verified_run
from proctor.runs.tried import told_trials
from proctor.runs.worth import (
    COLUMNS,
    MEASURED,
    WORTH,
    carried_out,
    told_how,
    told_unmeasured,
    told_worth,
    worths,
)
from projections.errors import ProjectionError
from projections.projector import projected, settled
from projections.reading import Session

_MOST_FORKS = 8  # that are named
_MOST_BEGUN = 8  # audits without an end that are named
UNBOUND = (
    "this audit does not name the state of the run that it judged, because the judge's version was "
    "older; `proctor judge` makes one that does"
)
_UNANSWERED = ("!", "bold red")  # also where a run ended before its answer was carried out
_DECISIONS: Mapping[str, Shows] = {
    "": "number",
    "epoch": "epoch",
    "by": "source",
    "cites": lambda row: " ".join(row["cites"]),
    "decision": "direction",
    "outcome": "outcome",
    "why": "justification",
}
_MARKS = {  # what became of a fired rule -> what the heatmap shows
    "applied": ("■", "green"),
    "restart": ("■", "blue"),
    "deferred": ("◦", "yellow"),
    "refused": ("x", "red"),
}

_OF_AUDIT = ("audit_steps", "violations")  # $1 is the audit that counts
PARTS: Mapping[str, str] = {  # part of the story -> the query for it; $1 is the run
    "fork_of": "SELECT parent AS run, epoch, state = '' AS resumed FROM forks WHERE run_id = $1",
    "forks": "SELECT run_id AS run, epoch FROM forks WHERE parent = $1 ORDER BY idx",
    "files": "SELECT epoch, name, sha256 FROM run_file_saved WHERE run_id = $1 "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY name ORDER BY idx DESC) = 1 ORDER BY name",
    "provocations": "SELECT name, seed, TRY_CAST(expects AS VARCHAR[]) AS expects, changes "
    "FROM provocations WHERE run_id = $1 ORDER BY idx",
    "epochs": EPOCHS,
    "rules": "SELECT epoch, rule, fired, side, streak, waived, outcome FROM rule_heatmap "
    "WHERE run_id = $1 ORDER BY precedence, epoch",
    "waived": "SELECT w.rule, TRY_CAST(s.spec -> '$.offers' AS VARCHAR[]) AS offers, "
    "s.config ->> '$.noise' AS noise "
    "FROM run_waived AS w JOIN run_starts AS s ON s.run_id = w.run_id "
    "WHERE w.run_id = $1 AND w.rule IS NOT NULL ORDER BY w.rule",
    "decisions": "SELECT * EXCLUDE (run_id) FROM decision_outcomes WHERE run_id = $1 "
    "ORDER BY number",
    "audit_steps": "SELECT step, name, status, summary FROM audit_steps WHERE audit_id = $1 "
    "AND idx < (SELECT idx FROM counting_audits WHERE audit_id = $1) ORDER BY step",
    "violations": "SELECT kind, rule, epoch, decision, emitter, detail, times FROM violations "
    "WHERE audit_id = $1 ORDER BY place",
    "begun_audits": "SELECT audit_id, started_at FROM audits WHERE run_id = $1 AND NOT ended "
    "ORDER BY started_idx",
    "misplaced": "SELECT name, why, COUNT(*) AS entries FROM misplaced_entries "
    "WHERE stream_id = $1 OR stream_id IN (SELECT audit_id FROM audits WHERE run_id = $1) "
    "GROUP BY name, why ORDER BY name, why",
    # From some call on, a server answered no more, and refused: rows of the first such call.
    "refused": "WITH asked AS (SELECT c.* FROM calls AS c JOIN transcripts AS t "
    "USING (transcript_id) WHERE t.run_id = $1 AND c.model IS NOT NULL) "
    "SELECT MIN(number) AS call, ARG_MIN(epoch, number) AS epoch, COUNT(*) AS calls, "
    "ARG_MIN(status, number) AS status, ARG_MIN(problem, number) AS problem FROM asked "
    "WHERE number > (SELECT COALESCE(MAX(number), 0) FROM asked "
    "WHERE outcome IN ('usable', 'unusable', 'refused', 'truncated', 'too_large')) "
    "HAVING BOOL_OR(outcome IN ('rejected', 'rate_limited', 'unreachable'))",
    # Newer ones, which do not count; and one that counts, but of other files.
    "other_audits": "SELECT a.audit_id, a.hard_fail, a.accuracy_score, a.process_score, "
    "a.signed, a.retrained, s.complete, "
    "CASE WHEN s.other_files THEN d.summary END AS other_files FROM audits AS a "
    "LEFT JOIN audit_strengths AS s ON s.audit_id = a.audit_id AND s.idx = a.scored_idx "
    "LEFT JOIN (SELECT audit_id, ANY_VALUE(summary) AS summary FROM audit_steps "
    "WHERE step = 1 AND status = 'failed' GROUP BY audit_id) AS d ON d.audit_id = a.audit_id "
    "WHERE a.run_id = $1 AND a.scored_idx >= COALESCE((SELECT scored_idx FROM audits "
    "WHERE standing AND run_id = $1), -1) AND (NOT a.standing OR s.other_files) "
    "ORDER BY a.scored_idx",
}


# The newest come first, and few have to be looked for among all events.
_RUNS = """
    WITH newest AS (
        SELECT run_id, idx, run_id IN (SELECT run_id FROM forks WHERE state <> '') AS forked
        FROM run_starts WHERE idx < $1 AND (
            $2 = 'latest' OR starts_with(run_id, LOWER($2))
            OR COALESCE(config ->> '$.dataset', config ->> '$.name') = $2
        )
        ORDER BY forked, idx DESC LIMIT 1000
    )
    SELECT run_id FROM newest JOIN events USING (idx) WHERE version = 1
    ORDER BY forked, idx DESC LIMIT CASE WHEN $2 = 'latest' THEN 1 ELSE 1000 END"""
_ABOUT = """
    SELECT idx FROM events WHERE stream_id IN (
        SELECT unnest(CAST($1 AS VARCHAR[]))
        UNION SELECT audit_id FROM audit_starts WHERE run_id = $3
    )
    UNION SELECT idx FROM events WHERE name IN $2
    UNION SELECT idx FROM forks WHERE parent = $3"""


def read_story(home: Home, name: str, *, quorum: Quorum | None = None) -> dict[str, Any]:
    """Return everything that the story tells, as plain values; `quorum` of which witnesses.

    The tables are built in memory, of this run and its audits alone, from entries that have just
    been verified. Raises VerificationError for a ledger that does not hold.
    """
    with open_remembered(home, heads=quorum is not None) as ledger:
        if quorum is not None:
            quorum.verify_log(ledger.vkey)
            heads = cosigned_heads(ledger.head_notes(), quorum=quorum, authority=ledger.authority)
        index = open_index(home, ledger)
        found = None
        if index is not None:
            with suppress(ProjectionError):  # others rebuild the tables, for long
                run, chosen = looked_up(ledger, index, name)
                measured = bool(index.query(MEASURED, [str(run)]).rows)
                found = chosen
        if found is None:
            run, found = looked_for(ledger, name)
            name = "credit.started"
            begun = ledger.select(names=[name])
            measured = str(run) in {audited_run(entry, name) for entry in begun}
        authority = ledger.authority.stream_id
    tell_unread(ledger)
    keep_definitions()
    with (
        closing(projected(found, authority=authority, quarantine=True, gaps=True)) as connection,
        settled(connection, "audit_strengths", "audits"),
    ):
        odd = connection.execute("SELECT idx FROM unreadable").fetchall()
        tell_aside([idx for (idx,) in odd])
        summaries = records_of(connection, "SELECT * FROM run_summary WHERE run_id = ?", [str(run)])
        if not summaries:
            raise ProctorError(f"run {run} cannot be shown: its start cannot be read")
        summary = summaries[0]
        audit = str(summary["audit_id"])
        effects = records_of(connection, EFFECTS, [str(run)]) if quorum else []
        parts = {
            part: records_of(connection, sql, [audit if part in _OF_AUDIT else str(run)])
            for part, sql in PARTS.items()
        }
    parent = next(iter(parts["fork_of"]), None)
    waived = waived_reasons(parts["waived"])
    worth = worths(ask(home, WORTH, run)) if measured else []
    fixed = None if quorum is None else find_fixed(effects, heads)
    told = {"fixed": fixed, "worth": worth, "fork_of": parent, "waived": waived}
    return {"summary": summary, **parts, **told}


def told_refused(story: Mapping[str, Any]) -> str | None:
    """Return from which call on a model's server has refused to answer; None if it has not."""
    for each in story["refused"]:
        when = "" if each["epoch"] is None else f" (epoch {each['epoch']})"
        return (
            f"its server answered none of {counted(each['calls'], 'call')} from call "
            f"{each['call']}{when} on: {each['problem']}"
        )
    return None


def waived_reasons(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why each rule of PARTS["waived"] is waived."""
    waived: dict[str, str] = {}
    for row in rows:
        waived |= why_waived([row["rule"]], row["offers"], row["noise"])
    return waived


def looked_for(ledger: VerifiedLedger, name: str) -> tuple[UUID, list[VerifiedEntry]]:
    """Return the run that `name` means and the entries about it, from all of a ledger."""
    run = find_verified_run(ledger, name)
    audits = {
        entry.stream_id
        for entry in ledger.select(names=["audit.started"])
        if audited_run(entry) == str(run)
    }
    streams = {run, Transcript.id_of(run), *audits}
    return run, list(ledger.select(streams=streams, names=[*AUTHORITY_EVENTS, "run.forked"]))


def looked_up(
    ledger: VerifiedLedger, index: Session, name: str
) -> tuple[UUID, list[VerifiedEntry]]:
    """Return the same, having asked tables where the entries are."""
    runs = looked_up_runs(ledger, index, name)
    if not runs and name != "latest":
        return looked_for(ledger, name)  # which says what there is
    run = find_run(runs[::-1], name, dict.fromkeys(runs, name))
    streams = [str(run), str(Transcript.id_of(run))]
    found = index.query(_ABOUT, [streams, sorted(AUTHORITY_EVENTS), str(run)]).rows
    return run, list(ledger.chosen(idx for (idx,) in found))


def looked_up_runs(ledger: VerifiedLedger, index: Session, name: str) -> list[UUID]:
    """Return the runs that `name` may mean, the newest first."""
    return [UUID(each) for (each,) in index.query(_RUNS, [ledger.size, name]).rows]


def tell_story(story: dict[str, Any]) -> None:
    """Print the story."""
    summary = story["summary"]
    planned = summary["epochs_planned"]
    epochs = counted(summary["epochs"] if planned is None else planned, "epoch")
    if planned is not None:
        epochs = f"{summary['epochs']} of {epochs}"
    seed = "" if summary["seed"] is None else f"seed {summary['seed']}, "
    console.print(
        f"[bold]run {summary['run_id']}[/]: {words(summary['dataset'])}, {seed}"
        f"policy {words(summary['policy_name'])}, rules {summary['profile']}, "
        f"{summary['state']} after {epochs}"
    )
    if watched := told_watched(summary, story["rules"]):
        console.print(watched)
    for fault in story["provocations"]:
        console.print(
            f"provoked: {fault['name']}, seed {fault['seed']}: "
            f"{', '.join(fault['expects'] or ())} should fire"
        )
    if summary["parent_run"]:
        console.print(f"restart of run {words(summary['parent_run'])}")
    if parent := story["fork_of"]:
        what = "goes on from" if parent["resumed"] else "fork of"
        upto = "decisions on" if parent["resumed"] else "state of"
        console.print(
            f"{what} run {words(parent['run'])}, equal to it up to the {upto} epoch "
            f"{parent['epoch']}"
        )
    for file in story["files"]:
        console.print(
            f"file of epoch {file['epoch']}: {words(file['name'])}, SHA-256 {words(file['sha256'])}"
        )
    if forks := story["forks"]:
        shown = ", ".join(f"{each['run']} (epoch {each['epoch']})" for each in forks[:_MOST_FORKS])
        more = f" and {len(forks) - _MOST_FORKS} more" if len(forks) > _MOST_FORKS else ""
        console.print(f"forks: {shown}{more}")
    if refused := told_refused(story):
        console.print(f"[yellow]the model was lost[/]: {words(refused)}")
    if story["misplaced"]:
        console.print(f"[yellow]misplaced entries[/]: {words(told_misplaced(story['misplaced']))}")
    if len(story["epochs"]) > 1:
        metrics = metric_names(story["epochs"], first=summary["metric"])
        for each in ("loss", "accuracy", *metrics[:CHARTED]):
            _plot(with_columns(story["epochs"]), each)
    _print_heatmap(story["rules"])
    print_waived(story["waived"])
    if story["decisions"]:
        print_rows(_DECISIONS, story["decisions"], title="\ndecisions")
    print_lost(story)
    losses = {row["epoch"]: row["val_loss"] for row in story["epochs"]}
    for each in story["decisions"]:
        if tried := told_trials(each, losses):
            print_words(f"decision {each['number']} {tried}")
    if story["worth"]:
        print_rows(
            COLUMNS,
            story["worth"],
            title="\nwhat decisions were worth: forks with each, beside forks with another answer",
        )
        print_words(told_how(story["worth"]))
    for each in story["worth"]:
        if each.why_not or each.other_code:
            print_words(f"decision {each.decision} {told_worth(each)}")
    done = carried_out(story["decisions"])
    if unmeasured := told_unmeasured(summary, done, story["worth"]):
        print_words(unmeasured)
    for sentence in told_fixed(story["fixed"] or ()):
        print_words(sentence)
    _print_verdict(story)


def print_lost(story: Mapping[str, Any]) -> None:
    """Print how many answers came to nothing and why, and the form that a model's have to have."""
    if lost := told_lost(story["decisions"]):
        from proctor.runs.policies import MIXED, OPENAI  # noqa: PLC0415 - few answers are lost

        console.print(f"[yellow]not carried out[/]: {words(lost)}")
        form = answer_form(story["decisions"], story["rules"])
        if form and story["summary"]["policy_name"] in (OPENAI, MIXED):
            console.print(f"form of an answer, with types in place of values: {words(form)}")


def _plot(epochs: list[dict[str, Any]], what: str) -> None:
    import plotext  # noqa: PLC0415 - only a plot needs it

    if all(row[f"val_{what}"] is None for row in epochs):
        return
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(min(console.width, 76), 12)
    for part in ("train", "val"):
        points = [
            (row["epoch"], value)
            for row in epochs
            if (value := row.get(f"{part}_{what}")) is not None and abs(value) < 1e6  # not NaN
        ]
        if points:
            plotext.plot(*map(list, zip(*points, strict=True)), label=f"{part} {visible(what)}")
    plotext.xticks([row["epoch"] for row in epochs][:: max(1, len(epochs) // 12)])
    console.print(Text.from_ansi(plotext.build()))


def _print_heatmap(cells: list[dict[str, Any]]) -> None:
    if not cells:
        return
    console.print("\nrules, by precedence (one column an epoch)")
    sides: dict[str, list[str]] = {}
    for rule, side in fired_on(cells):
        sides.setdefault(rule, []).append(side_told(side))
    rules = {cell["rule"]: f"{cell['rule']} {RULE_TITLES.get(cell['rule'], '')}" for cell in cells}
    wide = max(map(len, rules.values()))
    for rule, title in rules.items():
        line = Text(f"{title:<{wide}}  ")
        for cell in (cell for cell in cells if cell["rule"] == rule):
            mark, style = ("·", "dim")
            if cell["fired"]:
                mark, style = (
                    ("w", "dim") if cell["waived"] else _MARKS.get(cell["outcome"], _UNANSWERED)
                )
            line.append(mark, style)
        if rule in sides:
            line.append(f"  {', '.join(sides[rule])}")
        console.print(line)
    console.print("■ acted on   ◦ deferred   x refused   ! unanswered   w waived   · silent")


def _print_verdict(story: dict[str, Any]) -> None:
    summary, audits = story["summary"], story["other_audits"]
    of_other_files = [audit["audit_id"] for audit in audits if audit["other_files"]]
    if summary["audit_id"] is None or summary["audit_id"] in of_other_files:
        overtaken = [audit for audit in audits if audit["complete"] is False]
        what = "no verdict counts" if overtaken else "not judged yet"
        gives = "`proctor judge` gives two scores"
        if summary["level"] == "repeatable" and not overtaken:
            gives = "nobody has shown that it is repeatable; `proctor judge` trains it again"
        console.print(f"\n{what}: {gives}")
    else:
        _print_counting(story)
    for audit in audits:
        newer, told = "" if audit["other_files"] else "newer ", words(told_other(audit))
        console.print(f"{newer}audit {audit['audit_id'][:8]} does not count: {told}")
    begun = story["begun_audits"]
    for audit in begun[:_MOST_BEGUN]:
        console.print(
            f"audit {audit['audit_id'][:8]} was begun on {audit['started_at']:%Y-%m-%d %H:%M} UTC "
            "and not ended: it still runs, or it was broken off"
        )
    if len(begun) > _MOST_BEGUN:
        console.print(f"and {len(begun) - _MOST_BEGUN} more audits that were not ended")


def _print_counting(story: dict[str, Any]) -> None:
    """Print the verdict of the audit that counts."""
    summary = story["summary"]
    print_table(
        ("step", "", "status", ""),
        [(s["step"], s["name"], s["status"], s["summary"]) for s in story["audit_steps"]],
        title="\nverdict",
    )
    print_violations(story["violations"])
    told, _ = told_verdict(summary["verdict"], violations=bool(summary["violations"]))
    console.print(f"verdict: {told}")
    quality = f"accuracy {told_score(summary['accuracy_score'])}"
    if summary["accuracy_score"] is None and summary["test_metric"] is not None:
        quality = f"test {words(summary['metric'])} {summary['test_metric']:.4g}"
    console.print(
        f"{quality}   process {summary['process_score']:.3f} ({summary['process_axis']}), "
        f"{counted(summary['violations'], 'violation')}"
    )
    if told_level(summary["level"]) is None:
        told = told_share(summary["retrained"], failed=summary["verdict"] == "failed")
        console.print(f"the judge retrained {told}")
    if not summary["audit_signed"]:
        print_unsigned()
    if not summary["audit_bound"]:
        console.print(f"[yellow]not bound[/]: {UNBOUND}")


def print_unsigned() -> None:
    """Print that a verdict has no judge's signature, and what that means."""
    console.print(
        "[yellow]unsigned[/]: no judge's key signed this verdict, so whoever can append to the "
        "ledger could have made it up; see docs/how-to/rotate-a-key.md"
    )


def told_share(retrained: float, *, failed: bool) -> str:
    """Return how much of a run was trained again, in words; `failed`: whether a gate failed."""
    if retrained <= 0:
        why = "a gate failed" if failed else "the recorded measurements were trusted"
        return f"no epoch: {why}"
    return "the whole run" if retrained >= 1 else f"{retrained:.0%} of the epochs"


def told_other(audit: Mapping[str, Any]) -> str:
    """Return what an audit that does not count said, and why it does not."""
    if files := audit.get("other_files"):
        return f"it judged other files than the run submitted: {files}"
    verdict = "a gate failed"
    if not audit["hard_fail"]:
        accuracy, process = (told_score(audit[f"{each}_score"]) for each in ("accuracy", "process"))
        verdict = f"no gate failed, accuracy {accuracy}, process {process}"
    signed = "signed" if audit["signed"] else "unsigned"
    why = "It checked less, or no judge signed it, or a later one checked as much"
    if audit["complete"] is False:
        why = (
            "The run or its transcript is not what it judged: something was added, or the record "
            "was exchanged"
        )
    again = told_share(audit["retrained"] or 0.0, failed=audit["hard_fail"])
    return f"{verdict}; {signed}, retrained {again}. {why}"


def told_misplaced(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return which entries are where a run and its audits have none, and what that means."""
    named = ", ".join(f"{row['name']} {row['why']} ({row['entries']})" for row in rows)
    return (
        f"{named}. Somebody who can append to the ledger added them: no program of ours does. "
        "Of what a run has once, the first counts; the judge fails a run that goes on after its end"
    )


def print_waived(reasons: Mapping[str, str]) -> None:
    """Print which rules are advisory in a run, and why; those of one reason are on one line."""
    for why in dict.fromkeys(reasons.values()):
        rules = ", ".join(rule for rule, reason in reasons.items() if reason == why)
        console.print(f"[yellow]waived[/] {words(rules)}: {words(why)}")
    if reasons:
        console.print(
            "a waived rule needs no answer when it fires (low, high, stalled: how a rule fires)"
        )


def print_violations(violations: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for the violations of one author, kind and rule, and what rules are called."""
    rules = set()
    for alike in grouped(violations, itemgetter("emitter", "kind", "rule")).values():
        first, *more = sorted(alike, key=lambda each: each["detail"] is None)
        told = violation_told(first)
        number = sum(each.get("times", 1) for each in alike) - 1
        epochs = [each["epoch"] for each in more if each["epoch"] is not None]
        if number:
            told += f"; and {number} more of this kind"
        if epochs:
            others = " and others" if len(epochs) < number else ""
            told += f" in {'epoch' if len(epochs) == 1 else 'epochs'} {listed(epochs)}{others}"
        console.print(f"violation: {words(told)}")
        rules.add(first["rule"])
    if known := [named(rule) for rule in PRECEDENCE if rule in rules]:
        console.print(f"rules: {', '.join(known)}")
