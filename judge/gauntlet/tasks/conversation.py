"""A conversation with a candidate: one line of JSON each way, over a confined process.

Source: docs/reference/gauntlet.md, "How a candidate is run".
Trust: answers are the candidate's word, bounded in size and time, and read strictly.
I/O: the process.  Units: seconds, bytes.
"""

import json
from types import TracebackType
from typing import Any

from judge.confinement.supervised import Supervised
from judge.gauntlet.errors import CandidateError, GauntletError, NoAnswerError
from ledger.strict_json import read_json

MAX_MESSAGE = 8 * 2**20
_GRACE = 2.0  # s for a candidate to leave when nothing more is asked


class Conversation(Supervised):
    """A command that is asked and answers, one line of JSON each way, until the block is left."""

    def ask(self, message: object) -> Any:
        """Send one message and return the one answer; raise CandidateError where there is none."""
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(line) > MAX_MESSAGE:
            raise GauntletError(f"a message of {len(line)} bytes is too long to be sent")
        self._check_quiet()
        self.say(line)
        answer = self.line()
        if answer is None:
            raise NoAnswerError(f"there is no answer: {self.end().words}")
        try:
            return read_json(answer)
        except ValueError as error:
            raise CandidateError(f"the answer is malformed: {error}") from error

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        try:
            if kind is None:
                self.say_no_more()
                ended = self.end(grace=_GRACE)
                self._check_quiet()
                if ended.leftovers:
                    raise CandidateError(f"it left {ended.leftovers} processes behind")
        finally:
            super().__exit__(kind, error, trace)

    def _check_quiet(self) -> None:
        if self.unread():
            raise CandidateError("it printed more than the replies it was asked for")
