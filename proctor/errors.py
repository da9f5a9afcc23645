"""Errors of the front door, and the exit codes that the command line promises."""

EXIT_HELD = 0  # everything asked for held
EXIT_FOUND = 1  # something was found: a failed verification, a hard fail, a difference
EXIT_USAGE = 2  # wrong usage or input; nothing was changed
EXIT_INTERRUPTED = 130  # Ctrl-C; what was going on is closed as interrupted
EXIT_TERMINATED = 143  # SIGTERM, which is treated like Ctrl-C
EXIT_CLOSED = 141  # nobody reads the output any more, as in `proctor log | head -1`


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it ends all that Ctrl-C ends, and a prompt as well."""


class ProctorError(Exception):
    """Something that was asked for cannot be done; the message says where and what to do."""


def roots() -> tuple[type[Exception], ...]:
    """Return the root of each package's errors; each says what is wrong and what to do."""
    from aggregates.errors import AggregateError  # noqa: PLC0415 - only a failure needs these
    from judge.errors import JudgeError  # noqa: PLC0415
    from ledger.errors import LedgerError  # noqa: PLC0415
    from monitor.errors import MonitorError  # noqa: PLC0415
    from policies.errors import PolicyError  # noqa: PLC0415
    from projections.errors import ProjectionError  # noqa: PLC0415

    return (AggregateError, JudgeError, LedgerError, MonitorError, PolicyError, ProjectionError)
