"""Attacks on the gate by operators' words, on the line itself, and by mere luck."""

import base64
import json
import time
from collections.abc import Callable
from functools import partial

from gate_attacks import Grounds, Told, answer, attack, put
from gate_attacks_code import armed, thrifty
from gate_attacks_diffs import better, edited
from gauntlet_lines import (
    COMPONENT,
    SELECTION,
    SETTINGS,
    UNSORTED,
    WEEK,
    Line,
    digest_of,
    judged,
    submit,
    to_the_last_step,
)

from aggregates.errors import InvariantError
from aggregates.improvement.proposal import Proposal
from judge.approvals import make_approval, sign
from judge.errors import JudgeError
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller
from judge.gauntlet.measurement import measure
from judge.gauntlet.promotion import INTENT
from proctor.sample.demo import unified
from proctor.sample.init import git

__all__: list[str] = []

MANIFEST = "judge/tiers.toml"
WITHOUT = "tier 1 without an operator"
Word = Callable[[Line, Controller, Proposal], str]


def _tier_1(line: Line) -> bytes:
    """Return a change of tier 1 that is better."""
    return line.diff(
        COMPONENT,
        lambda text: text.replace(
            "return select(score_documents(documents, query, settings), cap=cap)",
            "scored = score_documents(documents, query, settings)\n"
            "    return select([row for row in scored if row[0] > 0], cap=cap)",
        ),
    )


def _refused(act: Callable[[], object], otherwise: str = "it counts") -> Told:
    try:
        act()
    except (JudgeError, InvariantError) as error:
        return Told("refused", str(error))
    return Told("taken", otherwise)


def _word(name: str, word: Word, because: str, *, wants: str = WITHOUT) -> None:
    """Register a word that does not count, on a proposal of tier 1 that waits for one."""

    @attack(name, "word", wants=wants, ends="refused", because=because, ground="plain")
    def carry_out(grounds: Grounds) -> Told:
        line = grounds.plain.line
        with line.controller() as controller:
            wanted = submit(controller, _tier_1(line), {COMPONENT: 1})
            told = _refused(
                lambda: reviews.record_review(controller.place, word(line, controller, wanted))
            )
            found = controller.carry_on(wanted.id)
            assert (found.outcome, found.branch, found.results) == (None, None, {})
            return told


_word(
    "sign with a key that is not an operator's",
    lambda line, c, found: line.word(c, "approve", found, key=line.stranger),
    "not signed by an operator whose key is in force",
)
for _name in ("diff", "base", "base_tree", "ledger", "text_shown", "manifest", "reference_set"):
    _word(
        f"use an approval of another {_name}",
        lambda line, c, found, name=_name: line.word(  # type: ignore[misc]
            c, "approve", found, **{name: "0" * (40 if "base" in name else 64)}
        ),
        f"is for a different {_name}",
        wants="make later changes count as approved",
    )
_word(
    "use an approval of another proposal",
    lambda line, c, found: _other(line, c),
    "is for a different diff",
    wants="use one approval twice",
)
_word(
    "use an approval after its time",
    lambda line, c, found: line.word(c, "approve", found, expires=line.now),
    "this approval expired",
    wants="use an outdated decision",
)
_word(
    "use an approval without end",
    lambda line, c, found: line.word(c, "approve", found, expires=line.now + 60 * WEEK),
    "is valid for more than 366 days",
    wants="an approval that never expires",
)
_word(
    "use the answer to a halt as an approval",
    lambda line, c, found: line.word(c, "resume", found),
    "'resume' does not apply to a proposal",
)
_word(
    "write another time into a signed approval",
    lambda line, c, found: _edited(line.word(c, "approve", found, expires=line.now)),
    "this approval is not valid",
    wants="an approval that has expired",
)
_word(
    "invent an approval",
    lambda line, c, found: "{}",
    "this is not an approval",
)
_word(
    "use an approval of another line",
    lambda line, c, found: sign(
        make_approval(
            "approve",
            line="another",
            proposal=str(found.id),
            subjects=c.place.subjects(found),
            expires=line.now + WEEK,
        ),
        line.operator,
    ),
    "is for a different line",
    wants="use one approval twice",
)


def _other(line: Line, controller: Controller) -> str:
    """Return an approval of a harmless change, as if it were of the one that waits."""
    harmless = submit(controller, edited(COMPONENT)(line), {COMPONENT: 1})
    waiting = next(each for each in controller.queue() if each.diff != harmless.diff)
    return sign(
        make_approval(
            "approve",
            line=str(line.id),
            proposal=str(controller.queue()[-2].id),
            subjects=controller.place.subjects(harmless),
            expires=line.now + WEEK,
        ),
        line.operator,
    ) if waiting else ""  # fmt: skip


def _edited(envelope: str) -> str:
    """Return an envelope whose content is another, with the signature that it had."""
    whole = json.loads(envelope)
    statement = json.loads(base64.b64decode(whole["payload"]))
    statement["predicate"]["expires"] += WEEK
    payload = json.dumps(statement, sort_keys=True).encode()
    return json.dumps({**whole, "payload": base64.b64encode(payload).decode()})


@attack(
    "continue without an approval",
    "word",
    wants=WITHOUT,
    ends="waits",
    because="an operator must approve it",
)
def _(grounds: Grounds) -> Told:
    line = grounds.plain.line
    return put(line, _tier_1(line), {COMPONENT: 1})


@attack(
    "bring an old approval after a rejection",
    "word",
    wants="overrule an operator who changed their mind",
    ends="refused",
    because="an operator",
)
def _(grounds: Grounds) -> Told:
    line = grounds.plain.line
    with line.controller() as controller:
        wanted = submit(controller, _tier_1(line), {COMPONENT: 1})
        approved = line.word(controller, "approve", wanted)
        reviews.record_review(controller.place, line.word(controller, "reject", wanted))
        told = _refused(lambda: reviews.record_review(controller.place, approved))
        assert controller.carry_on(wanted.id).outcome == "rejected"
        return told


def _later(name: str, *, wants: str, because: str, happens: Callable[[Line], None]) -> None:
    """Register what happens to an approval between the first look at it and the second."""

    @attack(name, "word", wants=wants, ends="waits", because=because, slow=happens is _expired)
    def carry_out(grounds: Grounds) -> Told:
        line = grounds.fresh("plain").line
        with line.controller() as controller:
            wanted = submit(controller, _tier_1(line), {COMPONENT: 1})
            reviews.record_review(controller.place, line.word(controller, "approve", wanted))
            to_the_last_step(line, controller, wanted)
            happens(line)
            before = line.head()
            found = controller.carry_on(wanted.id)
            assert (found.verdict, line.head()) == ("better", before)
            return answer(controller.waits(found), found)


def _revoked(line: Line) -> None:
    line.revoke_operator()


def _expired(line: Line) -> None:
    line.now += WEEK


_later(
    "use an approval whose key was revoked while it was judged",
    wants="use a stolen key",
    because="not signed by an operator whose key is in force",
    happens=_revoked,
)
_later(
    "use an approval that expired while it was judged",
    wants="use an outdated decision",
    because="this approval expired",
    happens=_expired,
)


# The line


def _halted(
    name: str, word: Callable[[Line, Controller, Proposal, Proposal], str], because: str
) -> None:
    @attack(
        name,
        "line",
        wants="continue a halted line without an operator",
        ends="refused",
        because=because,
    )
    def carry_out(grounds: Grounds) -> Told:
        line = grounds.plain.line
        with line.controller() as controller:
            honest = submit(controller, better(line))
            bad = submit(controller, edited(MANIFEST)(line), {MANIFEST: 2})
            told = _refused(
                lambda: reviews.resume(controller.place, word(line, controller, bad, honest))
            )
            assert "the line is halted" in str(controller.waits(controller.carry_on(honest.id)))
            reviews.resume(controller.place, line.word(controller, "resume", bad))
            reviews.record_review(controller.place, line.word(controller, "revise", honest))
            assert controller.carry_on(honest.id).outcome == "withdrawn"
            return told


_halted(
    "answer a halt with a key that is not an operator's",
    lambda line, c, bad, _: line.word(c, "resume", bad, key=line.stranger),
    "not signed by an operator whose key is in force",
)
_halted(
    "answer a halt with the answer to another",
    lambda line, c, bad, honest: line.word(c, "resume", honest),
    "is for a different proposal",
)
_halted(
    "answer a halt with an approval",
    lambda line, c, bad, _: line.word(c, "approve", bad),
    "is for a different kind",
)
_halted(
    "answer a halt with an answer that has expired",
    lambda line, c, bad, _: line.word(c, "resume", bad, expires=line.now),
    "approval expired",
)


@attack(
    "move the branch while a proposal is judged",
    "line",
    wants="pass off an unjudged commit as the judged one",
    ends="waits",
    because="not at its checkpoint",
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    with line.controller() as controller:
        wanted = submit(controller, better(line))
        moved: list[str] = []

        def move(_proposal: str, what: str) -> None:
            if what.startswith("evaluated"):
                git(line.repo, "update-ref", "refs/heads/main", line.commit("README.md", "Mine.\n"))
                moved.append(line.head())

        object.__setattr__(controller.place, "tell", move)
        found = controller.carry_on(wanted.id)
        assert (found.verdict, line.head()) == ("better", moved[0])
        return answer(controller.waits(found), found)


@attack(
    "move the branch to a candidate that waits for its approval",
    "line",
    wants="make the gate record a promotion",
    ends="waits",
    because="not at its checkpoint",
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    with line.controller() as controller:
        wanted = submit(controller, _tier_1(line), {COMPONENT: 1})
        reviews.record_review(controller.place, line.word(controller, "approve", wanted))
        to_the_last_step(line, controller, wanted)
        assert not (controller.place.folder / INTENT).exists()
        line.revoke_operator()
        candidate = str(controller.place.proposal(wanted.id).commit)
        git(line.repo, "update-ref", "refs/heads/main", candidate)
        found = controller.carry_on(wanted.id)
        return answer(controller.waits(found), found)


@attack(
    "move the branch to another history",
    "line",
    wants="begin a line anew, wherever the branch is, without an operator or an alarm",
    ends="refused",
    because="it was moved to another history",
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    tree = git(line.repo, "rev-parse", "main^{tree}").strip()
    root = git(line.repo, "commit-tree", "-m", "Root", tree).strip()
    merged = git(line.repo, "commit-tree", "-m", "On", "-p", root, "-p", line.head(), tree).strip()
    told = Told("", "")
    for other in (root, merged):
        git(line.repo, "update-ref", "refs/heads/main", other)
        with line.controller() as controller:
            told = _refused(partial(measure, controller.place, hidden=None))
            assert told.ends == "refused"
    return told


@attack(
    "be judged on an outdated base",
    "line",
    wants="two changes, each harmless alone",
    ends="superseded",
    because="the line moved to",
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    with line.controller() as controller:
        other = submit(controller, line.diff(SELECTION, lambda text: f"{thrifty(text)}\n"))
        assert judged(controller, better(line)).outcome == "promoted"
        head = line.head()
        found = controller.carry_on(other.id)
        assert line.head() == head
        # nor is what was promoted promoted again
        first = controller.records.proposals()[-1]
        assert controller.carry_on(first).outcome == "promoted"
        again = judged(controller, unified(SELECTION, UNSORTED, thrifty(UNSORTED)))
        assert (again.outcome, line.head()) == ("rejected", head)
        return answer(None, found)


@attack(
    "propose the same change in another form",
    "line",
    wants="a second attempt with the same change",
    ends="rejected",
    because="was already judged",
)
def _(grounds: Grounds) -> Told:
    line = grounds.plain.line
    with line.controller() as controller:
        diff = line.diff(SELECTION, UNSORTED)  # what its tests reject may be tried again
        judged(controller, diff)
    header = f"diff --git a/{SELECTION} b/{SELECTION}\n"
    return put(line, header.encode() + diff, {SELECTION: 2})


@attack(
    "take the id of another proposal",
    "line",
    wants="use the approval or verdict of another proposal",
    ends="refused",
    because="not found on this line",
)
def _(grounds: Grounds) -> Told:
    line = grounds.plain.line
    with line.controller() as controller:
        first = submit(controller, edited(SETTINGS)(line), {SETTINGS: 2})
        other = submit(controller, better(line), proposal_id=first.id)
        assert (other.id, other.diff) == (first.id, first.diff)  # what is there stays
        reviews.record_review(controller.place, line.word(controller, "revise", first))
        controller.carry_on(first.id)
        return _refused(lambda: submit(controller, better(line), proposal_id=line.id))


@attack(
    "write a rationale that git refuses",
    "line",
    wants="block all other proposals",
    ends="rejected",
    because="no task is shown to be better",
)
def _(grounds: Grounds) -> Told:
    line = grounds.plain.line
    with line.controller() as controller:
        found = controller.submit(
            line.diff(SETTINGS, lambda text: f"# spoken of by git\n{text}"),
            declared={SETTINGS: 2},
            rationale="a\0b\x1b[2K\n\nProposal: another",
            trigger="operator_request",
            proposer="a test",
        )
        return answer(None, controller.carry_on(found.id))


# Valleys


def _valley(
    name: str, word: Callable[[Line, Controller, str], str], because: str, *, wants: str
) -> None:
    @attack(name, "line", wants=wants, ends="refused", because=because)
    def carry_out(grounds: Grounds) -> Told:
        line = grounds.plain.line
        with line.controller() as controller:
            step = digest_of(line.diff(SELECTION, UNSORTED))
            return _refused(lambda: controller.open_valley(word(line, controller, step)))


def _signed(line: Line, controller: Controller, step: str, **other: str) -> str:
    subjects = json.loads(base64.b64decode(json.loads(line.valley(controller, step))["payload"]))
    named = {each["name"]: next(iter(each["digest"].values())) for each in subjects["subject"]}
    del named["step-1"]
    payload = make_approval(
        "valley",
        line=str(line.id),
        subjects={**named, **other},
        steps=(step,),
        expires=line.now + WEEK,
    )
    return sign(payload, line.operator if other else line.stranger)


_valley(
    "open a valley with a key that is not an operator's",
    _signed,
    "not signed by an operator whose key is in force",
    wants="suspend the comparison",
)
_valley(
    "open a valley that was signed for another checkpoint",
    lambda line, c, step: _signed(line, c, step, base="0" * 40),
    "is for a different base",
    wants="suspend the comparison at a checkpoint where it was not allowed",
)
_valley(
    "open a valley whose time is over",
    lambda line, c, step: line.valley(c, step, days=0),
    "approval expired",
    wants="suspend the comparison",
)


@attack(
    "take a valley's steps in another order, and open it twice",
    "line",
    wants="take a step without the earlier ones, repeatedly",
    ends="refused",
    because="was already opened",
    slow=True,
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    with line.controller() as controller:
        down = line.diff(SELECTION, UNSORTED)
        late = line.diff(SETTINGS, lambda text: text + "\n")
        envelope = line.valley(controller, digest_of(down), digest_of(late))
        controller.open_valley(envelope)
        start = line.head()
        out = submit(controller, late, {SETTINGS: 2})
        assert "is not its next step" in str(controller.waits(out))
        assert judged(controller, down).verdict == "worse"
        assert controller.carry_on(out.id).outcome == "superseded"
        last = judged(controller, late, {SETTINGS: 2})  # of the base that it has now
        assert last.outcome == "rejected"
        assert (line.head(), controller.line.valley) == (start, None)
        again = json.dumps(json.loads(envelope), indent=1)  # the same signature
        return _refused(lambda: controller.open_valley(again))


@attack(
    "take a valley's step after its operator's key was revoked",
    "line",
    wants="a step that is worse, with a stolen key",
    ends="superseded",
    because="the line moved to",
    slow=True,
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("plain").line
    start, down = line.head(), line.diff(SELECTION, UNSORTED)
    up = line.diff(SETTINGS, lambda text: text + "\n")
    with line.controller() as controller:
        controller.open_valley(line.valley(controller, digest_of(down), digest_of(up)))
        assert judged(controller, down).outcome == "promoted"
        step = submit(controller, up, {SETTINGS: 2})
    line.revoke_operator()
    with line.controller() as controller:
        found = controller.carry_on(step.id)
        assert (line.head(), controller.line.valley) == (start, None)
        return answer(None, found)


# Luck


@attack(
    "be better once by chance",
    "chance",
    wants="one good answer out of many tries",
    ends="rejected",
    because="its answers differ from one time to the next",
    ground="unfenced",
    slow=True,
)
def _(grounds: Grounds) -> Told:
    line = grounds.fresh("unfenced").line
    luck_ends = time.time() + 45
    lucky = f"import time\ndef found():\n    return time.time() < {luck_ends}\n"

    def wait(_proposal: str, what: str) -> None:
        if what.startswith("benchmark"):  # the first answers are given
            time.sleep(max(0.0, luck_ends - time.time()))

    with line.controller() as controller:
        object.__setattr__(controller.place, "tell", wait)
        found = judged(controller, line.diff(SELECTION, lambda text: armed(text, lucky)))
        return answer(None, found)
