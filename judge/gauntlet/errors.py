"""Errors of the gauntlet; one root, so that callers catch one thing."""

from judge.errors import JudgeError


class GauntletError(JudgeError):
    """A change cannot be judged; the sentence says what, where, and what to do."""


class ManifestError(GauntletError):
    """The manifest of tiers says something that no manifest can say."""


class RepositoryError(GauntletError):
    """The repository is not as it has to be, or git refuses."""


class MovedError(RepositoryError):
    """The branch is not where it was: somebody else has moved it."""


class DiffError(GauntletError):
    """The diff is no diff, or does not apply to its base."""


class TierError(GauntletError):
    """A change reaches for what it must not touch, or says what it touches wrongly."""

    def __init__(self, message: str, *, halts_line: bool = False) -> None:
        super().__init__(message)
        self.halts_line = halts_line


class DeclarationError(TierError):
    """A change that is allowed says wrongly what it touches: it can be declared again."""


class TaskError(GauntletError):
    """A reference task is not as it has to be."""


class CandidateError(GauntletError):
    """A candidate left, hung, or said what is no answer; the candidate's problem, not ours."""


class NoAnswerError(CandidateError):
    """A candidate gave no answer at all: it left, hung, or ran out of time or memory."""
