"""Tests one checkpoint: its files, unchanged, in a confined process.

A command reports the result by its exit status, as with `git bisect run`: 0 good, 125 cannot be
tested, otherwise bad; a command that cannot be started gives no result. Alternatively the
checkpoint answers tasks of one reference set, and is bad if it fails one. Where verdicts are sure,
a deterministic task is asked as often as the gate asks it, and its answers have to be alike.

Source: git-bisect(1), "Bisect run".
Trust: a checkpoint's code is a candidate's; what it prints is bounded and only kept.
I/O: the workplace, processes, a folder that is passed in.  Units: seconds, bytes.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from aggregates.canonical import digest
from aggregates.improvement.line import Checkpoint
from judge.bisection.search import Verdict
from judge.confinement.interpreter import PYTHON
from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import discarded, run
from judge.errors import BisectionError
from judge.gauntlet.measurement import recorded
from judge.gauntlet.tasks.benchmark import TaskResult, export, run_task
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace

CANNOT_TEST = 125
CANNOT_START = (126, 127)
MAX_FILE = 2**20
_KEPT = 65_536  # bytes of what was printed
_FILES, _REPEAT = "{files}", "{repeat}"  # in a command: the given files, from 0 how often before
_KNOWN = (PYTHON, _FILES, _REPEAT)
_PLACEHOLDER = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}")  # ${NAME} is a shell's
_NAME = re.compile(r"[\w.-]+")
# A name, and not what a pattern or a name with another placeholder begins with.
_BELOW_FILES = re.compile(r"\{files\}/+(?=[\w.-]*\w)([\w.-]++)(?![*?\[{])")


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A command as oracle."""

    argv: tuple[str, ...]
    files: dict[str, str]  # name -> SHA-256 of the content
    seconds: float
    memory_bytes: int


class Tasks(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tasks", omit_defaults=True
):
    """Tasks of the reference set in one commit, asked as that commit's manifest says."""

    tasks: tuple[str, ...]
    commit: str
    reference_set: str  # SHA-256
    measured: bool  # the good commit answers them and the bad one does not, which was seen
    revealed_by: str | None = None  # the proposal or alarm that showed the bad one's failure
    asked: int = 1  # times in each probe; all answers have to be alike


Oracle = Command | Tasks


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A verdict, and what it rests on."""

    verdict: Verdict
    evidence: Mapping[str, Any]


def command_oracle(
    place: Workplace,
    command: str,
    *,
    commit: str,
    files: Sequence[Path] = (),
    seconds: float | None = None,
) -> Command:
    """Return a command as oracle; its limits are those of the tests in `commit` by default.

    The command is split as a shell does, and no shell sees it. Files are stored, and lie in
    `{files}` for every probe.
    """
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise BisectionError(f"{command!r} is not a valid command: {error}") from error
    if not argv:
        raise BisectionError("the command is empty")
    if len({path.name for path in files}) < len(files):
        raise BisectionError("two files have the same name: give them different names")
    verify_command(argv, files={path.name for path in files})
    stored = {}
    for path in files:
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            raise BisectionError(f"{path} is not a file of at most {MAX_FILE} bytes")
        stored[path.name] = place.blobs.put(path.read_bytes())
    tests = place.manifest(commit).tests
    return Command(
        argv=argv,
        files=stored,
        seconds=float(tests.seconds if seconds is None else seconds),
        memory_bytes=tests.memory_bytes,
    )


def verify_command(argv: Sequence[str], *, files: Collection[str]) -> None:
    """Raise BisectionError where a command names what no probe will have.

    An interpreter that does not find its script fails at every checkpoint, as if all were bad.
    """
    for part in argv:
        for name in _PLACEHOLDER.findall(part):
            if name not in _KNOWN:
                raise BisectionError(
                    f"the command contains the unknown placeholder {name}; known are "
                    f"{', '.join(_KNOWN)}. To use other braces, put them in a file"
                )
        for found in _BELOW_FILES.finditer(part):
            named = part[found.start(1) :]
            if not any(named.startswith(n) and not _NAME.match(named, len(n)) for n in files):
                raise BisectionError(
                    f"the command names {found[0]}, which is not given: add --file {found[1]}, "
                    "otherwise every checkpoint would be judged bad"
                )


def tasks_oracle(
    place: Workplace, *, good: str, bad: str, folder: Path, tasks: Sequence[str] = ()
) -> Tasks:
    """Return tasks of the bad commit's reference set as oracle.

    Without names they are the deterministic ones that the good commit answers and the bad one does
    not, each as often as the gate asks: others may differ by chance.
    """
    whole = place.reference_set(bad)
    names = tuple(whole.task(name).task_id for name in tasks)
    measured = not names
    if measured:
        before, after = (_successes(place, commit, bad, folder) for commit in (good, bad))
        lost = [task for task in whole.tasks if task.task_id in before - after]
        times = place.settings.confirmed
        with (
            _asking(place, good, bad, folder, times=times) as old,
            _asking(place, bad, bad, folder, times=times) as new,
        ):
            names = tuple(
                task.task_id
                for task in lost
                if all(each.success for each in old(task))
                and not any(each.success for each in new(task))
            )
    if not names:
        raise BisectionError(
            f"the reference set has no deterministic task that {good[:12]} always answers and "
            f"{bad[:12]} never does; name tasks, or a command whose exit status differs"
        )
    return Tasks(tasks=names, commit=bad, reference_set=whole.sha256, measured=measured)


def with_repeats(place: Workplace, oracle: Oracle, *, error: float) -> Oracle:
    """Return an oracle that asks a deterministic task as often as the gate, if verdicts are sure.

    Raises BisectionError for stochastic tasks whose verdicts are called certain.
    """
    if not isinstance(oracle, Tasks):
        return oracle
    if error > 0.0:
        return msgspec.structs.replace(oracle, asked=1)
    whole = place.reference_set(oracle.commit)
    drawn = [name for name in oracle.tasks if whole.task(name).stochastic]
    if drawn:
        raise BisectionError(
            f"task {drawn[0]!r} is stochastic, so some verdicts are wrong: add --error with the "
            "expected share of wrong verdicts"
        )
    return msgspec.structs.replace(oracle, asked=place.settings.confirmed)


def oracle_of(told: Mapping[str, Any]) -> Oracle:
    """Return an oracle from what an event says of it; raises BisectionError."""
    try:
        return msgspec.convert(told, Command | Tasks)
    except msgspec.ValidationError as error:
        raise BisectionError(f"{told!r:.200} is not a recorded oracle: {error}") from error


def plain_oracle(oracle: Oracle) -> dict[str, Any]:
    """Return an oracle as events have it."""
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(oracle))
    return told


def key_of(told: Mapping[str, Any]) -> str:
    """Return what an oracle goes by: what is the same asks the same."""
    other = ("measured", "revealed_by")  # why it is asked
    return digest({name: value for name, value in told.items() if name not in other})


def probe(
    place: Workplace, oracle: Oracle, checkpoint: Checkpoint, *, repeat: int, folder: Path
) -> Probed:
    """Put one checkpoint to the test; raise JudgeError where nothing can be said of any."""
    repository = place.repository
    if not repository.holds(checkpoint.commit):
        repository.head(place.branch)  # raises if the repository is what is wrong
        reason = f"commit {checkpoint.commit} is not in the repository"
        return Probed(verdict="skip", evidence={"repeat": repeat, "reason": reason})
    if isinstance(oracle, Tasks):
        return _asked(place, oracle, checkpoint.commit, repeat, folder)
    with discarded(folder) as own:
        return _run(place, oracle, checkpoint.commit, repeat, own)


def _run(place: Workplace, oracle: Command, commit: str, repeat: int, folder: Path) -> Probed:
    tree, scratch, files = folder / "tree", folder / "scratch", folder / "files"
    for each in (tree, scratch, files):
        each.mkdir()
    place.repository.export(commit, tree)
    for name, content in oracle.files.items():
        path = files / PurePosixPath(name).name
        path.write_bytes(place.blobs.get(content))
        path.chmod(0o755)
    ended = run(
        [part.replace(_FILES, str(files)).replace(_REPEAT, str(repeat)) for part in oracle.argv],
        tree=tree,
        scratch=scratch,
        limits=ResourceLimits(seconds=oracle.seconds, memory_bytes=oracle.memory_bytes),
        readable=(files,),
    )
    said = ended.output[-_KEPT:] + ended.errors[-_KEPT:]
    if ended.status == "exited" and ended.code in CANNOT_START:
        raise BisectionError(
            f"at {commit[:12]} the command exited with status {ended.code}, which means that it "
            f"could not be started; exit with {CANNOT_TEST} if a checkpoint cannot be tested. Its "
            f"output:  {said[-500:].decode(errors='replace').strip()}"
        )
    evidence = {
        "repeat": repeat,
        "status": ended.status,
        "code": ended.code,
        "reason": ended.words,
        "output": place.blobs.put(said),
        "isolation": list(ended.isolation),
    }
    verdicts: dict[int, Verdict] = {0: "good", CANNOT_TEST: "skip"}
    verdict = verdicts.get(ended.code, "bad") if ended.status == "exited" else "bad"
    return Probed(verdict=verdict, evidence=evidence)


def _asked(place: Workplace, oracle: Tasks, commit: str, repeat: int, folder: Path) -> Probed:
    whole = place.reference_set(oracle.commit)
    reason = "all tasks are answered"
    with _asking(place, commit, oracle.commit, folder, times=oracle.asked, first=repeat) as ask:
        for name in oracle.tasks:
            results = list(ask(whole.task(name)))
            failed = [each for each in results if not each.success]
            if failed and len(failed) < len(results):
                raise BisectionError(
                    f"task {name!r} is declared deterministic, but at {commit[:12]} "
                    f"{len(failed)} of {len(results)} answers failed: add --error, with which "
                    "verdicts may be wrong, or declare the task stochastic"
                )
            if failed:
                reason = f"{name}: {failed[0].problem or 'it is not answered'}"
                break
    told = {"repeat": repeat, "reason": reason, "isolation": list(results[0].isolation)}
    return Probed(verdict="bad" if failed else "good", evidence=told)


def _successes(place: Workplace, commit: str, asked_as: str, folder: Path) -> set[str]:
    """Return the deterministic tasks of the set in `asked_as` that a commit answers once."""
    whole = place.reference_set(asked_as)
    exact = {task.task_id: task for task in whole.tasks if not task.stochastic}
    results = recorded(place, commit=commit, tasks=whole)
    if results is None:
        with _asking(place, commit, asked_as, folder) as ask:
            results = [each for task in exact.values() for each in ask(task)]
    return {result.task_id for result in results if result.success and result.task_id in exact}


@contextmanager
def _asking(
    place: Workplace, commit: str, asked_as: str, folder: Path, *, times: int = 1, first: int = 0
) -> Iterator[Callable[[Task], Iterator[TaskResult]]]:
    """Give what asks a commit a task so many times, as the manifest of `asked_as` says."""
    manifest = place.manifest(asked_as)
    with discarded(folder) as own:
        tree = own / "tree"
        export(place.repository, commit, manifest, tree)

        def ask(task: Task) -> Iterator[TaskResult]:
            for number in range(times):
                yield run_task(
                    task,
                    tree,
                    manifest,
                    scorers=place.scorers,
                    arm="candidate",
                    scratch=own,
                    repeat=first * times + number,
                )

        yield ask
