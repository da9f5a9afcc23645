"""The addresses of the live view, and the page of each.

Trust: requests are hostile until guard.py lets them pass. What they ask for is checked here; each
wrong form of it gets an error page. What the tables hold is shown as text.
I/O: reads the tables, the blobs, and whether a process trains a run.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from aggregates.rulebook import PRECEDENCE, RULE_TITLES
from ledger.errors import LedgerError
from proctor.home import Home
from proctor.live import bodies, console, queries, subjects
from proctor.live.asked import addresses, number, one, one_of, parameters, whole_id
from proctor.live.guard import Guard, Keys
from proctor.live.refusals import TABLE, failed, refused
from proctor.live.shown import all_settings_of, charts_of, compared, settings_of
from proctor.live.tables import Ask, Standing, Tables
from proctor.output.columns import field, figure
from proctor.output.firings import told_watched
from proctor.output.terminal import visible
from proctor.pages.charts.curves import CURVES, spark
from proctor.pages.charts.grids import rule_heatmap
from proctor.pages.rendering import STATIC, render, spoken
from proctor.reports.run_decisions import (
    decisions_told,
    lost_told,
    violated_told,
    waiting_told,
)
from proctor.reports.tables import table, violations_found
from proctor.runs.metrics import with_columns
from proctor.runs.story import waived_reasons
from proctor.runs.worth import told_unmeasured, worths
from projections.cookbook import recipes
from projections.errors import BusyError, ProjectionError, QueryError

_LAST = 2**63 - 1
_MOST_PAGES = 100_000
_MOST_SEARCHED = 2_000  # calls whose bodies a search reads
_REFRESH = 15.0  # s after which a page is made again although the ledger has nothing new
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
    page = partial(partial, pages.answer)
    below = [
        Route("/", page("runs", "Runs", pages.runs)),
        Route("/runs/{run}", page("run", "Runs", pages.run)),
        Route("/compare", page("compare", "Compare runs", pages.compare)),
        *(
            Route(f"/{kind.path}{below}", page(template, kind.title, partial(read, kind), **more))
            for kind in subjects.KINDS.values()
            for below, template, read, more in (
                ("", "subjects", pages.listed, {}),
                ("/{id}", "subject", pages.subject, {"rows": subjects.MOST_READ}),
            )
        ),
        Route("/decisions", page("decisions", "Decisions", pages.decisions)),
        Route("/calls", page("calls", "Transcripts", pages.calls)),
        Route("/calls/{idx}", page("call", "Transcripts", pages.call)),
        Route("/sql", page("sql", "SQL", pages.sql, again=False)),
        Route("/ledger", page("ledger", "Ledger", pages.ledger)),
    ]
    app = Starlette(
        routes=[
            Route("/", _enter),
            Mount("/static", StaticFiles(directory=STATIC)),
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
    return Guard(app, keys=keys, hosts=hosts)


def _enter(_: Request) -> Response:
    """Exchange the token in the link for the cookie."""
    return HTMLResponse(render("live/enter.html", {"title": "Proctor"}))


class _Pages:
    """The pages of one home.

    Each returns what its template shows. What it reads of the tables is of one state, which the
    page names; what takes longer is done afterwards, by the function that it returns instead, so
    that new entries need not wait.
    """

    def __init__(self, home: Home, tables: Tables, keys: Keys) -> None:
        self._home = home
        self._tables = tables
        self._base = keys.base
        self._name = home.path.resolve().name

    def answer(
        self,
        template: str,
        section: str,
        read: Callable[[Request, Ask], Any],
        request: Request,
        *,
        rows: int | None = None,
        again: bool = True,
    ) -> Response:
        """Return a page, or say that it is as the browser has it."""
        standing = self._tables.standing
        if again and request.headers.get("if-none-match") == _tag(standing):
            return Response(status_code=304, headers={"etag": _tag(standing)})
        values: dict[str, Any] = {
            "heading": section,
            "section": section,
            "base": self._base,
            "menu": _MENU,
            "here": template,
            "again": again,
            "standing": standing,
        }
        status = 200
        if standing.position is None:
            template, status = "waiting", 200 if standing.error is None else 503
            values |= {"here": template, "again": True}
        else:
            found, standing = self._tables.read(partial(read, request), rows=rows)
            values |= {"standing": standing, **(found() if callable(found) else found)}
        values["title"] = f"{values['heading']} · {self._name}"
        page = render(f"live/{template}.html", values)
        return HTMLResponse(page, status, headers={"etag": _tag(standing)})

    def runs(self, request: Request, ask: Ask) -> dict[str, Any]:
        """List the runs."""
        asked = parameters(request, "q", "state", "order", "page")
        text = one(asked, "q")
        state = one_of(asked, "state", ("", *queries.STATES))
        order = one_of(asked, "order", tuple(queries.ORDERS))
        page = number(asked, "page", least=1, most=_MOST_PAGES, default=1)
        counts = queries.count_runs(ask, text=text, state=state)
        rows = queries.list_runs(ask, text=text, state=state, order=order, page=page)
        return {
            "counts": counts,
            "rows": [
                {**row, "spark": spark(row["losses"]), "gone": self._is_gone(row)} for row in rows
            ],
            "wanted": {"text": text, "state": state, "order": order, "page": page},
            "states": queries.STATES,
            "orders": queries.ORDERS,
            "pages": max(1, -(-counts["wanted"] // queries.ON_PAGE)),
            "address": addresses(asked),
        }

    def run(self, request: Request, ask: Ask) -> dict[str, Any]:
        """Show a run."""
        run = whole_id(request.path_params["run"])
        asked = parameters(request, "after")
        after = number(asked, "after", least=0, most=2**31 - 1, default=0)
        found = queries.read_run(ask, run)
        if found is None:
            raise HTTPException(404, f"The ledger has no run {run}.")
        decisions = queries.read_decisions(ask, run, after=after)
        started = found["run"]
        state = started["end_reason"] or "running"
        shown = decisions[: queries.ON_PAGE]
        worth = queries.read_worth(ask, run)
        told = {**found, "decisions": shown, "worth": worth, "effects": queries.effects_of(shown)}
        told["run"] = [started]
        return {
            **found,
            "heading": f"Run {run[:8]}",
            "id": run,
            "state": state,
            "latest": next(iter(with_columns(found["epochs"][-1:])), {}).get(
                f"val_{started['metric']}"
            ),
            "gone": self._is_gone({"run_id": run, "state": state}),
            "level_told": told_watched(started, found["rules"]),
            "settings": settings_of(started["config"]),
            "policy_settings": settings_of(started["policy"]),
            "violations_found": violations_found(found["found"]),
            "charts": charts_of(found),
            "rule_chart": rule_heatmap(found["rules"], waived_reasons(found["waived"])),
            "rule_titles": RULE_TITLES,
            "order": PRECEDENCE,
            "steps": table("The eleven steps of the audit", _STEPS, found["steps"]),
            "lost": lost_told(told),
            "violated": violated_told(told),
            "decisions": shown,
            "told": decisions_told(told, started),
            "waiting": waiting_told(told),
            "unmeasured": told_unmeasured(
                {**started, "state": state}, found["carried_out"][0]["numbers"], worths(worth)
            ),
            "more": len(decisions) > queries.ON_PAGE,
            "after": after,
        }

    def compare(self, request: Request, ask: Ask) -> dict[str, Any]:
        """Compare the curves, settings and verdicts of some runs."""
        asked = parameters(request, "run", several="run")
        ids = list(dict.fromkeys(whole_id(run) for run in asked.get("run", [])))
        if len(ids) > CURVES:
            raise HTTPException(400, f"Choose at most {CURVES} runs to compare.")
        found = queries.read_compared(ask, ids)
        missing = next((run for run in ids if run not in found), None)
        if missing is not None:
            raise HTTPException(404, f"The ledger has no run {missing}.")
        known = [{**row, "gone": self._is_gone(row)} for row in found.values()]
        settings = [all_settings_of(row) for row in known]
        return {
            "runs": known,
            "charts": compared(known),
            "different": [
                (name, [each.get(name) for each in settings])
                for name in sorted({name for each in settings for name in each})
                if len({str(each.get(name)) for each in settings}) > 1
            ],
        }

    def listed(self, kind: subjects.Kind, request: Request, ask: Ask) -> dict[str, Any]:
        """List campaigns, comparisons or lines."""
        asked = parameters(request, "page")
        page = number(asked, "page", least=1, most=_MOST_PAGES, default=1)
        rows = subjects.list_subjects(ask, kind, page)
        kept = rows[: queries.ON_PAGE]
        return {"kind": kind, "rows": kept, "more": len(rows) > len(kept), "page": page}

    def subject(self, kind: subjects.Kind, request: Request, ask: Ask) -> dict[str, Any]:
        """Show a campaign, a comparison or a line."""
        found = whole_id(request.path_params["id"])
        parameters(request)
        values = subjects.read_subject(ask, kind, found, self._home)
        if values is None:
            raise HTTPException(404, f"The ledger has no {kind.name} {found}.")
        return {**values, "id": found, "kind": kind.name, "here": kind.name}

    def decisions(self, request: Request, ask: Ask) -> dict[str, Any]:
        """Search the decisions of all runs."""
        asked = parameters(request, "q", "rule", "outcome", "before")
        wanted = {
            "text": one(asked, "q"),
            "rule": one_of(asked, "rule", ("", *PRECEDENCE)),
            "outcome": one_of(asked, "outcome", ("", *_OUTCOMES)),
        }
        before = number(asked, "before", least=0, most=_LAST, default=_LAST)
        rows = queries.find_decisions(ask, **wanted, before=before)
        return {
            "wanted": wanted,
            "order": PRECEDENCE,
            "rule_titles": RULE_TITLES,
            "outcomes": _OUTCOMES,
            "address": addresses(asked),
            **_paged(rows, before),
        }

    def calls(self, request: Request, ask: Ask) -> Callable[[], dict[str, Any]]:
        """Search the calls of all transcripts."""
        asked = parameters(request, "q", "run", "inside", "outcome", "before")
        text = one(asked, "q")
        run = one(asked, "run")
        run = whole_id(run) if run else ""
        outcome = one(asked, "outcome")
        inside = one_of(asked, "inside", ("", "1")) == "1"
        before = number(asked, "before", least=0, most=_LAST, default=_LAST)
        searches = inside and bool(text)
        rows = queries.find_calls(
            ask,
            text="" if searches else text,
            run=run,
            outcome=outcome,
            before=before,
            most=_MOST_SEARCHED if searches else queries.ON_PAGE + 1,
        )

        def shown() -> dict[str, Any]:
            told = None
            found: Sequence[Mapping[str, Any]] = rows
            if searches:
                found, searched, whole = bodies.matching(
                    self._home, rows, text, most=queries.ON_PAGE
                )
                told = (searched, whole and len(rows) < _MOST_SEARCHED)
            return {
                "text": text,
                "run": run,
                "inside": inside,
                "outcome": outcome,
                "told": told,
                "address": addresses(asked),
                **_paged(found, before),
            }

        return shown

    def call(self, request: Request, ask: Ask) -> Callable[[], dict[str, Any]]:
        """Show a call with its request and its answer."""
        idx = number({"idx": [request.path_params["idx"]]}, "idx", least=0, most=_LAST, default=0)
        found = queries.read_call(ask, idx)
        if found is None:
            raise HTTPException(404, f"Entry {idx} of the ledger is no call.")
        return lambda: {
            "heading": f"Call in entry {idx}",
            "call": found,
            "request_text": bodies.shown(self._home, found["request"]),
            "response_text": bodies.shown(self._home, found["response"]),
        }

    def sql(self, request: Request, ask: Ask) -> Callable[[], dict[str, Any]]:
        """Answer a statement."""
        statement = one(parameters(request, "q", most=console.MOST_SQL), "q")
        described = queries.describe_tables(ask)

        def shown() -> dict[str, Any]:
            answer, problem, rests_on = None, None, {}
            began = time.monotonic()
            if statement:
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
                "recipes": recipes(),
                **rests_on,
            }

        return shown

    def ledger(self, _: Request, ask: Ask) -> dict[str, Any]:
        """Tell what was verified, and how to verify it elsewhere."""
        return {**queries.describe_ledger(ask), "home": str(self._home.path)}

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
