"""Tasks that are answered with a diff: it is applied to the snapshot, and hidden tests are run.

The snapshot is one file of JSON, path by path, so that no tool takes it for code of the repository
that it lies in. The answer is {"diff": text}. Before it, the candidate may ask for a language model
with {"messages": [...], "schema": {...}}, if the task is one for a model: our process asks the
server that is configured for the line, since the candidate has no network, and hands its message
back as {"ask": "read", "rung": ..., "message": ...}. Without a server such a task is not asked.

Source: docs/reference/gauntlet.md, "Tasks from commits".
Trust: answers and what they make of the snapshot are hostile: the tests run confined, beside tests
that have to fail. The task is ours.
I/O: processes; folders below the bench's.  Units: seconds, bytes.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from judge.confinement.supervised import discarded
from judge.declared import read_declared
from judge.gauntlet.errors import CandidateError, DiffError, GauntletError, TaskError
from judge.gauntlet.repository.changes import EXECUTABLE, FILE
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import Manifest, TestCommand, Text, is_obeyed
from judge.gauntlet.testing.suite import SuiteResult, run_files

if TYPE_CHECKING:
    from judge.gauntlet.tasks.reference_set import Task
    from judge.gauntlet.tasks.scoring import Ask, Score

TESTED, BY_MODEL = "tests", "tests_by_model"  # scorers: answered by the candidate, or by a model
SNAPSHOT_FILE = "files.json"
MOST_REQUESTS = 4  # to the server, for one answer
_COMMAND = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={report}")
_ANSWER = {"ask": "answer"}


class Expected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the scorer knows: the tests, and which of their cases have to pass."""

    tests: dict[str, str]  # path -> text: what runs, and what of the tests' side it needs
    run: Annotated[tuple[str, ...], Meta(min_length=1)]  # of these paths, or cases in them
    fails: Annotated[tuple[str, ...], Meta(min_length=1)]  # cases that fail before the change
    keeps: tuple[str, ...] = ()  # cases that pass before it, too
    left_out: tuple[str, ...] = ()  # what does not run, as pytest names it
    seconds: Annotated[int, Meta(ge=1, le=600)] = 60
    memory_bytes: Annotated[int, Meta(ge=1, le=2**42)] = 4_000_000_000

    def __post_init__(self) -> None:
        if not {each.partition("::")[0] for each in self.run} <= self.tests.keys():
            raise ValueError("run: one of the tests is expected of each")
        if set(self.fails) & set(self.keeps):
            raise ValueError("fails and keeps: no case is expected in both")


class _Message(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


class _Request(Struct, frozen=True, forbid_unknown_fields=True):
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=32)]
    schema: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A server's answer to one request; what is None was not counted by the server."""

    rung: str
    message: Mapping[str, Any]
    prompt_tokens: int | None = None
    tokens: int | None = None  # of the answer
    limit: int | None = None  # of tokens that the answer may have


class Server(Protocol):
    """A language model that answers for both arms alike."""

    seconds: float  # the most that one request takes

    def ask(self, messages: list[dict[str, str]], schema: dict[str, Any], /, *, seed: int) -> Said:
        """Return the model's answer.

        Raises CandidateError where the request is at fault, GauntletError where the server is.
        """


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where hidden tests are run."""

    manifest: Manifest
    scratch: Path


@dataclass(frozen=True, kw_only=True)
class ByTests:
    """Stands among the scorers for tasks that need a bench; `by_model`: and a server."""

    by_model: bool = False
    server: Server | None = None

    @property
    def asked(self) -> bool:
        """Tell whether such tasks can be asked at all."""
        return self.server is not None or not self.by_model

    def seconds(self, task: "Task") -> float:
        """Return how long the candidate may have to wait for others."""
        tests = read_declared(dict(task.expected), Expected).seconds
        return tests + (0.0 if self.server is None else MOST_REQUESTS * self.server.seconds)

    def __call__(self, task: "Task", ask: "Ask") -> "Score":  # noqa: ARG002 - as all scorers
        """Raise GauntletError: such a task needs a bench."""
        raise GauntletError(f"task {task.task_id} was scored without a place to run its tests in")

    def score(self, task: "Task", ask: "Ask", *, bench: Bench) -> "Score":
        """Score an answer on a bench."""
        from judge.gauntlet.tasks.scoring import Score  # noqa: PLC0415 - it imports this module

        answers, answer = self._answer(task, ask)
        found = run_hidden(task, _diff_of(answer), bench)
        return Score(
            success=found.problem is None,
            validation_failures=0,
            metrics={"steps": float(len(answers)), **_use(answers)},
            problem=found.problem and _in_short(task, found),
        )

    def _answer(self, task: "Task", ask: "Ask") -> tuple[list[Said], Any]:
        """Return what the server answered to each request, and the candidate's answer."""
        answer, answers = ask(_ANSWER), list[Said]()
        for _ in range(MOST_REQUESTS):
            if not (isinstance(answer, dict) and answer.keys() == {"messages", "schema"}):
                break
            if self.server is None:
                raise CandidateError("it asks for a language model, and the task is not for one")
            messages, schema = _request_of(answer)
            said = self.server.ask(messages, schema, seed=task.seed % 2**31)
            answers.append(said)
            answer = ask({"ask": "read", "rung": said.rung, "message": said.message})
        return answers, answer


def _use(answers: Sequence[Said]) -> dict[str, float]:
    """Return the tokens of all requests, and the mean share of the limit that answers took."""
    found = {}
    for name in ("prompt_tokens", "tokens"):
        counts = [getattr(each, name) for each in answers]
        if counts and None not in counts:
            found[name] = float(sum(counts))
    limits = [each.limit for each in answers]
    if "tokens" in found and None not in limits:
        shares = [(each.tokens or 0) / (each.limit or 1) for each in answers]
        found["budget"] = sum(shares) / len(shares)
    return found


def snapshot_of(task: "Task") -> dict[str, str]:
    """Return the texts that a task shows, by path; raise TaskError where there are none."""
    try:
        files = json.loads(task.files[SNAPSHOT_FILE])
        return {str(path): str(text) for path, text in files.items()}
    except (KeyError, ValueError, AttributeError) as error:
        raise TaskError(
            f"task {task.task_id}: {SNAPSHOT_FILE} must be a JSON object of texts by path"
        ) from error


def run_hidden(task: "Task", diff: bytes | None, bench: Bench) -> SuiteResult:
    """Run a task's hidden tests on its snapshot, with a diff applied if one is given.

    Raises CandidateError for a diff that does not apply, or changes what it must not.
    """
    expected = read_declared(dict(task.expected), Expected)
    files = {path: text.encode() for path, text in snapshot_of(task).items()}
    with discarded(bench.scratch) as folder:
        repository, commit = Repository.of_files(folder / "repository", files)
        tree = repository.tree_of(commit)
        if diff is not None:
            try:
                tree = repository.candidate_tree(commit, diff)
                _check_changed(repository, commit, tree, expected)
            except DiffError as error:
                raise CandidateError(f"the diff of the answer is refused: {error}") from error
        repository.export(tree, folder / "tree")
        shutil.rmtree(folder / "repository")
        for path, text in expected.tests.items():
            place = folder / "tree" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return run_files(
            folder,
            bench.manifest,
            command=TestCommand(
                command=tuple(map(Text, _COMMAND)),
                paths=(),
                additions=(),
                seconds=expected.seconds,
                memory_bytes=expected.memory_bytes,
            ),
            files=expected.run,
            expected=dict.fromkeys((*expected.fails, *expected.keeps), "passed"),
            passed_over=expected.left_out,
        )


def _check_changed(repository: Repository, commit: str, tree: str, expected: Expected) -> None:
    tops = {path.partition("/")[0] for path in repository.paths(commit) if "/" in path}
    for change in repository.changes(repository.tree_of(commit), tree):
        if change.path in expected.tests or is_obeyed(change.path):
            raise DiffError(f"{change.path} is not for an answer to change")
        if change.new_mode not in (FILE, change.old_mode, None) or change.new_mode == EXECUTABLE:
            raise DiffError(f"{change.path} must be a plain file")
        if change.kind == "added" and change.path.partition("/")[0] not in tops:
            raise DiffError(f"{change.path} does not lie in a folder of the snapshot")


def _request_of(answer: Mapping[str, Any]) -> tuple[list[dict[str, str]], dict[str, Any]]:
    try:
        asked = read_declared(dict(answer), _Request)
    except ValueError as error:
        raise CandidateError("the request to a language model has another form") from error
    return [{"role": each.role, "content": each.content} for each in asked.messages], asked.schema


def _diff_of(answer: Any) -> bytes:
    if not isinstance(answer, dict) or answer.keys() != {"diff"}:
        raise CandidateError('the answer is not {"diff": text}')
    if not isinstance(answer["diff"], str):
        raise CandidateError("the diff of the answer is not text")
    return answer["diff"].encode(errors="surrogatepass")


def _in_short(task: "Task", found: SuiteResult) -> str:
    """Say how the tests ended, without a word of what they printed or are called."""
    expected = read_declared(dict(task.expected), Expected)
    whole = (*expected.fails, *expected.keeps)
    passed = sum(found.cases.get(case) == "passed" for case in whole)
    if passed == len(whole):
        return "the report of the hidden tests is not trusted, or they did not end well"
    return f"{passed} of {len(whole)} hidden cases pass"
