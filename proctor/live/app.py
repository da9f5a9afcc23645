"""The addresses of the live view, and the page of each.

Trust: requests are hostile until guard.py lets them pass. What they ask for is checked here; each
wrong form of it gets an error page. What the tables hold is shown as text.
I/O: reads the tables, the blobs, and whether a process trains a run.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from aggregates.playbook import TRY_RATES
from aggregates.rules import PRECEDENCE, RULE_TITLES
from ledger.errors import LedgerError
from proctor.home import Home
from proctor.live import bodies, console, queries, subjects
from proctor.live.asked import addresses, number, one, one_of, parameters, text_of, whole_id
from proctor.live.guard import TABLE, Guard, Keys
from proctor.live.refusals import failed, refusal, refused
from proctor.live.shown import all_settings_of, charts_of, compared, sampled, settings_of
from proctor.live.tables import Ask, Standing, Tables
from proctor.output.columns import field, figure
from proctor.output.terminal import told_level, visible
from proctor.pages.charts.curves import CURVES, spark
from proctor.pages.charts.grids import rule_heatmap
from proctor.pages.rendering import STYLESHEET, render, spoken
from proctor.reports.section_parts import table_part
from proctor.reports.values import listed_of, violations_found
from proctor.runs.story import waived_reasons
from proctor.runs.tried import told_trials
from proctor.runs.worth import told_unmeasured, told_worth
from projections.errors import BusyError, ProjectionError, QueryError

_LAST = 2**63 - 1
_MOST_PAGES = 100_000
_MOST_SEARCHED = 2_000  # calls whose bodies a search reads
_REFRESH = 15.0  # s after which a page is made again although the ledger has nothing new
_FOLDER = Path(__file__).parent
_STATIC = {
    "style.css": (STYLESHEET, "text/css"),
    "live.css": (_FOLDER / "live.css", "text/css"),
    "live.js": (_FOLDER / "live.js", "text/javascript"),
    "enter.js": (_FOLDER / "enter.js", "text/javascript"),
}
_MENU = (
    ("", "Runs"),
    *((kind.path, kind.title) for kind in subjects.KINDS.values()),
    ("decisions", "Decisions"),
    ("calls", "Transcripts"),
    ("sql", "SQL"),
    ("ledger", "Ledger"),
)
_STEPS = [
    figure("Step", "step"),
    field("What it looks at", lambda row: spoken(row["name"])),
    field("Status", "status"),
    field("Result", "summary"),
]
_OUTCOMES = ("applied", "refused", "restart", "deferred", "open")


def live_view(home: Home, tables: Tables, *, keys: Keys, hosts: Collection[str] = ()) -> ASGIApp:
    """Return the application; `hosts` are the names that it answers to."""
    pages = _Pages(home, tables, keys)
    below = [
        Route("/", pages.runs),
        Route("/runs/{run}", pages.run),
        Route("/compare", pages.compare),
        *(
            Route(f"/{kind.path}{below}", partial(answer, kind))
            for kind in subjects.KINDS.values()
            for below, answer in (("", pages.listed), ("/{id}", pages.subject))
        ),
        Route("/decisions", pages.decisions),
        Route("/calls", pages.calls),
        Route("/calls/{idx}", pages.call),
        Route("/sql", pages.sql),
        Route("/ledger", pages.ledger),
    ]
    app = Starlette(
        routes=[
            Route("/", pages.enter),
            Route("/static/{name}", _static),
            Route(TABLE, pages.table),
            Mount(keys.base, routes=below),
        ],
        exception_handlers={
            HTTPException: refused,
            BusyError: refused,
            LedgerError: refused,
            ProjectionError: refused,
            Exception: failed,
        },
    )
    return Guard(app, keys=keys, hosts=hosts, refuse=refusal)


def _static(request: Request) -> Response:
    found = _STATIC.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such file.")
    path, kind = found
    return Response(path.read_bytes(), media_type=kind, headers={"cache-control": "max-age=300"})


class _Pages:
    """The pages of one home."""

    def __init__(self, home: Home, tables: Tables, keys: Keys) -> None:
        self._home = home
        self._tables = tables
        self._base = keys.base
        self._name = home.path.resolve().name

    # --------------------------------------------------------------------------------------------
    # Pages

    def enter(self, _: Request) -> Response:
        """Exchange the token in the link for the cookie."""
        return HTMLResponse(render("live/enter.html", {"title": "Proctor"}))

    def runs(self, request: Request) -> Response:
        """List the runs."""
        asked = parameters(request, "q", "state", "order", "page")
        wanted = queries.Wanted(
            text=text_of(asked, "q"),
            state=one_of(asked, "state", ("", *queries.STATES)),
            order=one_of(asked, "order", tuple(queries.ORDERS)),
            page=number(asked, "page", least=1, most=_MOST_PAGES, default=1),
        )

        def made(ask: Ask) -> dict[str, Any]:
            counts = queries.count_runs(ask, wanted)
            rows = queries.list_runs(ask, wanted)
            return {
                "counts": counts,
                "rows": [
                    {
                        **row,
                        "spark": spark(sampled(row["losses"], 60)),
                        "gone": self._is_gone(row),
                    }
                    for row in rows
                ],
                "wanted": wanted,
                "states": queries.STATES,
                "orders": queries.ORDERS,
                "pages": max(1, -(-counts["wanted"] // queries.ON_PAGE)),
                "address": addresses(asked),
            }

        return self._page(request, "runs", "Runs", made)

    def run(self, request: Request) -> Response:
        """Show a run."""
        run = whole_id(request.path_params["run"])
        asked = parameters(request, "after")
        after = number(asked, "after", least=0, most=2**31 - 1, default=0)

        def made(ask: Ask) -> dict[str, Any]:
            found = queries.read_run(ask, run)
            if found is None:
                raise HTTPException(404, f"The ledger has no run {run}.")
            decisions = queries.read_decisions(ask, run, after=after)
            started = found["run"]
            state = started["end_reason"] or "running"
            shown = decisions[: queries.ON_PAGE]
            worth = queries.read_worth(ask, run)
            tried = any(row["direction"] == TRY_RATES for row in shown)
            losses = queries.read_losses(ask, run) if tried else {}
            return {
                **found,
                "id": run,
                "state": state,
                "gone": self._is_gone({"run_id": run, "state": state}),
                "level_told": told_level(started["level"]),
                "settings": settings_of(started["config"]),
                "policy_settings": settings_of(started["policy"]),
                "violations_found": violations_found(found["found"]),
                "listed": listed_of(
                    len(found["violations"]), sum(each["violations"] for each in found["found"])
                ),
                "charts": charts_of(found),
                "rule_chart": rule_heatmap(found["rules"], waived_reasons(found["waived"])),
                "rule_titles": RULE_TITLES,
                "order": PRECEDENCE,
                "steps": table_part("The eleven steps of the audit", _STEPS, found["steps"]),
                "decisions": shown,
                "tried": {row["number"]: told_trials(row, losses) for row in shown},
                "worth": {
                    row["number"]: [
                        told_worth(each) for each in worth if each.decision == row["number"]
                    ]
                    for row in shown
                },
                "unmeasured": told_unmeasured(
                    {**started, "state": state}, queries.read_carried_out(ask, run), worth
                ),
                "more": len(decisions) > queries.ON_PAGE,
                "after": after,
            }

        return self._page(request, "run", f"Run {run[:8]}", made)

    def compare(self, request: Request) -> Response:
        """Compare the curves, settings and verdicts of some runs."""
        asked = parameters(request, "run", several="run")
        ids = list(dict.fromkeys(whole_id(run) for run in asked.get("run", [])))
        if len(ids) > CURVES:
            raise HTTPException(400, f"Choose at most {CURVES} runs to compare.")

        def made(ask: Ask) -> dict[str, Any]:
            found = queries.read_compared(ask, ids)
            missing = next((run for run in ids if run not in found), None)
            if missing is not None:
                raise HTTPException(404, f"The ledger has no run {missing}.")
            known = [{**row, "gone": self._is_gone(row)} for row in found.values()]
            settings = [all_settings_of(row) for row in known]
            names = sorted({name for each in settings for name in each})
            return {
                "runs": known,
                "charts": compared(known),
                "different": [
                    (name, [each.get(name) for each in settings])
                    for name in names
                    if len({str(each.get(name)) for each in settings}) > 1
                ],
            }

        return self._page(request, "compare", "Compare runs", made)

    def listed(self, kind: subjects.Kind, request: Request) -> Response:
        """List campaigns, comparisons or lines."""
        asked = parameters(request, "page")
        page = number(asked, "page", least=1, most=_MOST_PAGES, default=1)

        def made(ask: Ask) -> dict[str, Any]:
            rows = subjects.list_subjects(ask, kind, page)
            kept = rows[: queries.ON_PAGE]
            return {"kind": kind, "rows": kept, "more": len(rows) > len(kept), "page": page}

        return self._page(request, "subjects", kind.title, made)

    def subject(self, kind: subjects.Kind, request: Request) -> Response:
        """Show a campaign, a comparison or a line."""
        found = whole_id(request.path_params["id"])
        parameters(request)

        def made(ask: Ask) -> dict[str, Any]:
            values = subjects.read_subject(ask, kind, found)
            if values is None:
                raise HTTPException(404, f"The ledger has no {kind.name} {found}.")
            return {**values, "id": found, "here": kind.name}

        return self._page(request, "subject", kind.title, made, rows=subjects.MOST_READ)

    def decisions(self, request: Request) -> Response:
        """Search the decisions of all runs."""
        asked = parameters(request, "q", "rule", "outcome", "before")
        wanted = {
            "text": text_of(asked, "q"),
            "rule": one_of(asked, "rule", ("", *PRECEDENCE)),
            "outcome": one_of(asked, "outcome", ("", *_OUTCOMES)),
        }
        before = number(asked, "before", least=0, most=_LAST, default=_LAST)

        def made(ask: Ask) -> dict[str, Any]:
            rows = queries.find_decisions(ask, **wanted, before=before)
            return {
                "wanted": wanted,
                "order": PRECEDENCE,
                "rule_titles": RULE_TITLES,
                "outcomes": _OUTCOMES,
                "address": addresses(asked),
                **_paged(rows, before),
            }

        return self._page(request, "decisions", "Decisions", made)

    def calls(self, request: Request) -> Response:
        """Search the calls of all transcripts."""
        asked = parameters(request, "q", "run", "inside", "outcome", "before")
        text = text_of(asked, "q")
        run = one(asked, "run")
        run = whole_id(run) if run else ""
        outcome = text_of(asked, "outcome")
        inside = one_of(asked, "inside", ("", "1")) == "1"
        before = number(asked, "before", least=0, most=_LAST, default=_LAST)

        searches = inside and bool(text)

        def read(ask: Ask) -> list[dict[str, Any]]:
            return queries.find_calls(
                ask,
                text="" if searches else text,
                run=run,
                outcome=outcome,
                before=before,
                most=_MOST_SEARCHED if searches else queries.ON_PAGE + 1,
            )

        def shown(rows: list[dict[str, Any]]) -> dict[str, Any]:
            told = None
            if searches:
                found, searched, whole = bodies.matching(
                    self._home, rows, text, most=queries.ON_PAGE
                )
                told = (searched, whole and len(rows) < _MOST_SEARCHED)
                rows = [dict(row) for row in found]
            return {
                "text": text,
                "run": run,
                "inside": inside,
                "outcome": outcome,
                "told": told,
                "address": addresses(asked),
                **_paged(rows, before),
            }

        return self._page(request, "calls", "Transcripts", read, shown)

    def call(self, request: Request) -> Response:
        """Show a call with its request and its answer."""
        idx = number({"idx": [request.path_params["idx"]]}, "idx", least=0, most=_LAST, default=0)

        def read(ask: Ask) -> dict[str, Any]:
            found = queries.read_call(ask, idx)
            if found is None:
                raise HTTPException(404, f"Entry {idx} of the ledger is no call.")
            return found

        def shown(found: dict[str, Any]) -> dict[str, Any]:
            return {
                "call": found,
                "request_text": bodies.shown(self._home, found["request"]),
                "response_text": bodies.shown(self._home, found["response"]),
            }

        return self._page(request, "call", f"Call in entry {idx}", read, shown)

    def sql(self, request: Request) -> Response:
        """Answer a statement."""
        asked = parameters(request, "q", most=console.MOST_SQL)
        statement = one(asked, "q")

        def shown(described: Any) -> dict[str, Any]:
            answer, problem, rests_on = None, None, {}
            began = time.monotonic()
            if statement.strip():
                try:
                    answer = console.answer(self._tables.database, statement)
                    rests_on = {"standing": self._tables.standing_at(answer.end)}
                except QueryError as error:
                    problem = visible(str(error))
            return {
                "statement": statement,
                "answer": answer,
                "problem": problem,
                "seconds": time.monotonic() - began,
                "bounds": console.BOUNDS,
                "tables": described,
                **rests_on,
            }

        return self._page(request, "sql", "SQL", queries.describe_tables, shown, again=False)

    def table(self, request: Request) -> Response:
        """Answer a statement of a script, as JSON."""
        statement = one(parameters(request, "q", most=console.MOST_SQL), "q")
        with self._tables.reading():
            pass  # or there are none to ask
        try:
            found = console.answer(
                self._tables.database, statement, bounds=console.FOR_SCRIPTS, as_values=True
            )
        except QueryError as error:
            raise HTTPException(400, str(error)) from error
        standing = self._tables.standing_at(found.end)
        head = standing.head
        return JSONResponse(
            {
                "columns": found.columns,
                "rows": found.rows,
                "more": found.cut,
                "ledger": {
                    "origin": head and head.origin,
                    "entries": standing.position,
                    "root": head and head.root.hex(),
                    "problem": standing.error,
                },
            }
        )

    def ledger(self, request: Request) -> Response:
        """Tell what was verified, and how to verify it elsewhere."""

        def made(ask: Ask) -> dict[str, Any]:
            return {**queries.describe_ledger(ask), "home": str(self._home.path)}

        return self._page(request, "ledger", "Ledger", made)

    # --------------------------------------------------------------------------------------------
    # What all pages have

    def _page(
        self,
        request: Request,
        template: str,
        title: str,
        read: Callable[[Ask], Any],
        shown: Callable[[Any], Mapping[str, Any]] = dict,
        *,
        rows: int | None = None,
        again: bool = True,
    ) -> Response:
        """Return a page, or say that it is as the browser has it.

        What is read of the tables is of one state, which the page names. What takes longer is
        `shown` of it afterwards, so that new entries need not wait.
        """
        standing = self._tables.standing
        if again and request.headers.get("if-none-match") == _tag(standing):
            return Response(status_code=304, headers={"etag": _tag(standing)})
        values = {
            "title": f"{title} · {self._name}",
            "heading": title,
            "section": title,
            "base": self._base,
            "menu": _MENU,
            "here": template,
            "again": again,
        }
        if standing.position is None:
            waits = {"standing": standing, "again": True, "here": "waiting"}
            page = render("live/waiting.html", values | waits)
            status = 200 if standing.error is None else 503
            return HTMLResponse(page, status, headers={"etag": _tag(standing)})
        found, standing = self._tables.read(read, rows=rows)
        page = render(f"live/{template}.html", {**values, "standing": standing, **shown(found)})
        return HTMLResponse(page, headers={"etag": _tag(standing)})

    def _is_gone(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a run has no end although its process is gone."""
        return row["state"] == "running" and self._home.is_gone(row["run_id"])


def _tag(standing: Standing) -> str:
    return f'"{standing.serial}-{time.time() // _REFRESH:.0f}"'


def _paged(rows: Sequence[Mapping[str, Any]], before: int) -> dict[str, Any]:
    kept = rows[: queries.ON_PAGE]
    return {
        "rows": kept,
        "older": kept[-1]["idx"] if len(rows) > len(kept) else None,
        "first": before == _LAST,
    }
