"""What the page of a line shows of its proposals: the tree that they make, and what they cost.

Trust: what is shown is hostile; the template escapes each value. Texts are cut.
I/O: read_diff() reads a blob.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ledger.errors import LedgerError
from ledger.wording import counted
from proctor.home import Home
from proctor.output.columns import field, figure, figures
from proctor.pages.charts.drawing import known
from proctor.pages.rendering import number, object_of, seen, spoken
from proctor.reports.tables import Data, Row, short, table

SHOWN = 100  # proposals, the newest, each with its diff
MOST_DIFF = 20_000  # bytes of a diff that is shown
_MOST_TEXT = 4_000  # characters of a text that a reader opens
_MOST_LINE = 200  # characters of a line
_MOST_FILES = 3  # that a line names
_OPEN = {  # the state of an open proposal -> what it waits for
    "proposed": "waits for `proctor line run`, or for an operator's approval",
    "approved": "is approved, and waits for `proctor line run`",
    "revise": "an operator wants it changed",
    "testing": "is being tested, or was interrupted",
}
_HOW = {"opened": "began the line", "adopted": "committed by people"}
_EMPTY = "round without a proposal"
_ENDS = ("promoted", "rejected", "halted", "superseded", "withdrawn", "open", _EMPTY, "all")
_Sums = dict[str, dict[str, float]]


def find_diffs(data: Data, read: Callable[[str], str | None]) -> dict[str, str]:
    """Return the diffs that a page shows by their SHA-256, as far as `read` finds them by it."""
    wanted = dict.fromkeys(str(row["diff"]) for row in data.get("proposals", ())[-SHOWN:])
    return {digest: text for digest in wanted if (text := read(digest)) is not None}


def read_diff(home: Home, digest: str) -> str | None:
    """Return a stored diff; None where it is missing, too long, or no text."""
    try:
        return home.blobs.get(digest, most=MOST_DIFF).decode()
    except (LedgerError, UnicodeDecodeError):
        return None


def proposal_tree(data: Data) -> list[dict[str, Any]]:
    """Return the checkpoints on which the newest proposals were made, with these.

    The newest checkpoint is first, and of its proposals those that wait.
    """
    numbers = {row["checkpoint_id"]: row["place"] for row in data["metrics"]}
    rounds = {row["subject"]: row for row in data["rounds"]}
    models = {row["subject"]: row["model"] for row in data["models"]}
    spent, made = _spent(data), dict[str, list[dict[str, Any]]]()
    for row in reversed(data["proposals"][-SHOWN:]):
        name = row["proposal_id"]
        told = _told(row, rounds.get(name), models.get(name))
        told["makes"] = numbers.get(row["checkpoint"])
        told["cost"] = _cost(spent.get(name, {}))
        told["diff"] = _cut(data["diffs"].get(row["diff"]))
        made.setdefault(row["base"], []).append(told)
    tree = []
    for row in reversed(data["checkpoints"]):
        own = made.pop(row["commit"], [])
        if own or row["active"]:
            parent = numbers.get(row["parent"])
            how = how_of(row)
            tree.append(
                {
                    "title": f"Checkpoint {numbers.get(row['checkpoint_id'])}",
                    "id": short(row["checkpoint_id"]),
                    "state": state_of(row),
                    "how": how if parent is None else f"{how}, on checkpoint {parent}",
                    "why": _line(row["rollback_reason"]),
                    "proposals": sorted(own, key=lambda each: each["status"] not in _OPEN),
                }
            )
    for commit, own in made.items():
        told = {"title": "No checkpoint", "id": short(commit), "state": "", "how": "a commit"}
        tree.append({**told, "why": "", "proposals": own})
    return tree


def how_of(checkpoint: Row) -> str:
    """Return how a checkpoint came about."""
    return _HOW.get(checkpoint["origin"], str(checkpoint["origin"]))


def state_of(checkpoint: Row) -> str:
    """Return whether a checkpoint is rolled back, active or earlier."""
    if checkpoint["rolled_back"]:
        return "rolled back"
    return "active" if checkpoint["active"] else "earlier"


def _told(row: Row, of_round: Row | None, model: Any) -> dict[str, Any]:
    """Return what the page says of a proposal."""
    files = [seen(path) for path in object_of(row["targets"])]
    more = len(files) - _MOST_FILES
    what = [f"by {seen(row['proposer'])}" + (f" ({seen(model)})" if model else "")]
    why = row["reason"] if row["stage"] else _OPEN.get(row["status"])
    if of_round is not None:
        what[:0] = [f"round {of_round['round']}", spoken(of_round["technique"])]
        if row["status"] == "proposed":
            why = of_round["reason"] or why
    return {
        "id": row["proposal_id"],
        "status": row["status"],
        "tag": "waits" if row["status"] in _OPEN and row["status"] != "testing" else row["status"],
        "what": _line(
            f"{', '.join(what)}: {', '.join(files[:_MOST_FILES])}"
            + (f" and {counted(more, 'more file')}" if more > 0 else "")
        ),
        "why": _line(why),
        "facts": {
            "Why proposed": _cut(row["rationale"]),
            "About": _line(row["task"]),
            "Tier": row["tier"],
            "Verdict": row["verdict"],
            "Tainted": _line("; ".join(row["taint_reasons"] or ())),
        },
        "evidence": _cut("\n".join(_evidence(row))),
    }


def _evidence(row: Row) -> Iterator[str]:
    if row["verdict"] is None:
        if _line(row["reason"]) != row["reason"]:  # which is shown already
            yield seen(row["reason"])
        return
    yield from map(seen, object_of(row["reasons"]))
    for what, names in (("Better", row["improvements"]), ("Worse", row["regressions"])):
        yield f"{what}: {', '.join(map(seen, object_of(names))) or 'none'}"
    yield f"Chance of a wrong promotion that the test allowed: {number(row['level'])}"


def _cost(spent: Mapping[str, float]) -> str:
    told = []
    if "answers" in spent:
        told.append(f"{counted(round(spent['answers']), 'answer')} to tasks")
    for name, unit in (("seconds", "s"), ("cpu_seconds", "s of processor time for answers")):
        if name in spent:
            told.append(f"{number(float(spent[name]), 3)} {unit}")
    if tokens := spent.get("prompt_tokens", 0) + spent.get("completion_tokens", 0):
        told.append(f"{number(round(tokens))} tokens")
    return ", ".join(told)


def _line(text: Any) -> str | None:
    """Return a text on one line, cut; None for none."""
    words = " ".join(str(text or "").split())
    return f"{words[:_MOST_LINE]}…" if len(words) > _MOST_LINE else words or None


def _cut(text: Any) -> str:
    """Return as much of a text as a page holds."""
    text = str(text or "")
    more = len(text) - _MOST_TEXT
    return text if more <= 0 else f"{text[:_MOST_TEXT]}\n… ({more:,} more characters)"


def _add(sums: _Sums, what: str, told: Mapping[str, Any]) -> None:
    own = sums.setdefault(what, {})
    for name, value in told.items():
        if known(value):
            own[name] = own.get(name, 0) + value


def _spent(data: Data) -> _Sums:
    """Return what was spent on each proposal, and in each round without one, by id."""
    sums: _Sums = {}
    for row in (*data["spent"], *data["answers"]):
        _add(sums, row["subject"], {name: row[name] for name in row if name != "subject"})
    return sums


_COST = [
    field("outcome"),
    *figures("rounds", "proposals", "answers", "seconds"),
    figure("processor seconds of answers", "cpu_seconds"),
    figure("requests to models", "calls"),
    figure("tokens in", "prompt_tokens"),
    figure("tokens out", "completion_tokens"),
    figure("US dollars", "cost"),
]
_ROUNDS = [
    figure("round"),
    field("outcome"),
    field("technique", lambda row: spoken(row["technique"])),
    field("about", lambda row: _line(row["pattern"])),
    field("why", lambda row: _line(row["reason"])),
]
_EARLIER = [
    field("proposal", lambda row: short(row["proposal_id"])),
    field("status", lambda row: spoken(row["status"])),
    figure("tier"),
    field("by", "proposer"),
    field("why proposed", lambda row: _line(row["rationale"])),
    field("verdict"),
    field("result", lambda row: _line(row["reason"])),
]


def proposal_tables(data: Data) -> dict[str, Any]:
    """Return the tables of proposals that are not in the tree, of empty rounds, and of costs."""
    sums, spent = _Sums(), _spent(data)
    empty = [row for row in reversed(data["rounds"]) if row["proposal_id"] is None]
    of_rounds = {row["proposal_id"] for row in data["rounds"]}
    for row in data["proposals"]:
        end, name = "open" if row["status"] in _OPEN else row["status"], row["proposal_id"]
        _add(sums, end, {"proposals": 1, "rounds": name in of_rounds, **spent.get(name, {})})
    for row in empty:
        _add(sums, _EMPTY, {"rounds": 1, **spent.get(row["subject"], {})})
    for own in [*sums.values()]:
        _add(sums, "all", own)
    none = {str(column.shows): None for column in _COST}
    rows = [{**none, **sums[end], "outcome": end} for end in _ENDS if end in sums]
    earlier = reversed(data["proposals"][:-SHOWN])
    return {
        "costs": table("Cost of proposals and rounds, by outcome", _COST, rows),
        "earlier": table("Earlier proposals, the newest first", _EARLIER, earlier),
        "empty_rounds": table("Rounds without a proposal, the newest first", _ROUNDS, empty),
    }
