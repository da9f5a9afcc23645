"""What went wrong in a command, as one line and an exit code.

The only place that knows which extra of pyproject.toml brings which third-party package, and which
packages are our own.

I/O: prints to standard error, and with --json to standard output.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from proctor.cli.remedies import pasteable
from proctor.errors import EXIT_FOUND, EXIT_USAGE, ProctorError, roots

# Third-party package -> what people call it, and the extra that installs it.
EXTRAS: Mapping[str, tuple[str, str]] = {
    "httpcore2": ("httpcore2", "llm"),
    "httpx2": ("httpx2", "llm"),
    "jinja2": ("Jinja2", "report"),
    "mlflow": ("MLflow", "mlflow"),
    "obstore": ("obstore", "s3"),
    "openai": ("openai", "llm"),
    "psycopg": ("psycopg", "postgres"),
    "pyarrow": ("pyarrow", "arrow"),
    "ray": ("Ray", "ray"),
    "safetensors": ("safetensors", "train"),
    "scipy": ("SciPy", "train"),
    "starlette": ("Starlette", "serve"),
    "tensorboardX": ("tensorboardX", "tensorboard"),
    "torch": ("PyTorch", "train"),
    "torchvision": ("torchvision", "train"),
    "uvicorn": ("uvicorn", "serve"),
    "vl_convert": ("vl-convert", "report"),
    "waitress": ("waitress", "witness"),
}
_HOUSE = Path(__file__).resolve().parents[2]  # the folder of all our packages
_ADVICE = "install Proctor in an environment of its own"
_UsageError = typer.BadParameter.__mro__[1]  # what typer raises for a wrong command line
_OURS = ("aggregates", "judge", "ledger", "monitor", "policies", "projections")


class MissingPackageError(ProctorError):
    """A command needs a package that an extra installs."""


class ShadowedError(ProctorError):
    """A package of ours is hidden, or was overwritten, by one of another distribution."""


def verify_own_packages() -> None:
    """Raise ShadowedError if Python would import another package of the name of one of ours."""
    for name in _OURS:
        spec = find_spec(name)
        if spec is None:
            raise ShadowedError(f"the package `{name}` is missing: install Proctor again")
        places = [Path(place).resolve() for place in spec.submodule_search_locations or ()]
        if _HOUSE / name not in places:
            raise ShadowedError(
                f"the package `{name}` in {places[0] if places else spec.origin} is not "
                f"Proctor's, which is in {_HOUSE / name}; {_ADVICE}"
            )


def require_extra(extra: str) -> None:
    """Raise ModuleNotFoundError if a package of an extra is missing.

    For a command that would need it late, or only in the processes that it starts.
    """
    for package, (_, brought_by) in EXTRAS.items():
        if brought_by == extra and find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def report(error: Exception, *, command: str, as_json: bool) -> int:
    """Print what went wrong and return the exit code; raises what nobody has foreseen."""
    if isinstance(error, _UsageError):
        usage: Any = error  # typer does not name the class
        _explain_usage(usage)
        kind, message, code = "UsageError", usage.format_message(), EXIT_USAGE
        tell = usage.show  # with how the command is used
    else:
        known, code = _explained(error, command)
        kind, message = type(known).__name__, pasteable(str(known))
        tell = partial(_tell, message)
    if as_json:
        # Not before it is needed: it takes a while to import.
        from proctor.output.terminal import print_json  # noqa: PLC0415

        print_json({"error": kind, "message": message, "exit_code": code})
    tell()
    return code


def _explain_usage(error: Any) -> None:
    """Say how a setting is written that was given as an option, or words without quotes."""
    if "unexpected extra argument" in getattr(error, "message", ""):
        error.message += "; put an argument that contains spaces into quotes"
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    takes = error.ctx.command.params if name and error.ctx is not None else ()
    if not any(each.name == "settings" for each in takes):
        return
    from monitor.config import RunConfig  # noqa: PLC0415 - only this needs it

    if name in {each.name for each in fields(RunConfig)}:
        told = _written(error.option_name, sys.argv) or "VALUE"
        error.message = f"{error.option_name} is a setting and no option; write {name}={told}"
        error.possibilities = None


def _written(option: str, arguments: Sequence[str]) -> str | None:
    """Return the value that an option was given; None if there is none."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else next(iter(arguments[at + 1 : at + 2]), None)
    return None


def _tell(message: str) -> None:
    from proctor.output.terminal import error_console, words  # noqa: PLC0415 - likewise

    error_console.print(f"[bold]error:[/] {words(message)}")


def _explained(error: Exception, command: str) -> tuple[Exception, int]:
    """Return the error that people are told, and the exit code; raises what is unknown."""
    if isinstance(error, ProctorError):  # first: the other roots may be what is missing
        return error, EXIT_USAGE
    if isinstance(error, ImportError):
        return _explained_import(error, command), EXIT_USAGE
    from ledger.errors import PassphraseError, VerificationError  # noqa: PLC0415 - seldom needed

    if isinstance(error, VerificationError):
        return error, EXIT_FOUND
    if isinstance(error, PassphraseError):
        from proctor.home import PASSPHRASE  # noqa: PLC0415

        advice = f"{error} (passphrases are read from {PASSPHRASE} in the environment)"
        return PassphraseError(advice), EXIT_USAGE
    if isinstance(error, roots()):
        return error, EXIT_USAGE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return ProctorError(f"{where}{error.strerror or error}"), EXIT_USAGE
    if isinstance(error, typer.Abort):  # what typer makes of input that ends
        return ProctorError("standard input ended before it was answered"), EXIT_USAGE
    if isinstance(error, MemoryError):
        return ProctorError(f"this machine has not enough memory for that: {error}"), EXIT_USAGE
    raise error


def _install(extra: str) -> str:
    """Return the command that installs an extra: Proctor is installed from its folder."""
    place = _HOUSE if (_HOUSE / "pyproject.toml").exists() else "/path/to/proctor"
    return f"pip install '{place}[{extra}]'"


def _explained_import(error: ImportError, command: str) -> ProctorError:
    """Name the extra that brings a missing package; raises the error itself if it is a bug."""
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS and isinstance(error, ModuleNotFoundError):
        title, extra = EXTRAS[package]
        called = f"proctor {command}".strip()
        return MissingPackageError(f"{called} needs {title}: {_install(extra)}")
    if package in _OURS:
        spec = find_spec(package)
        places = list(spec.submodule_search_locations or ()) if spec else []
        return ShadowedError(
            f"{error}: another distribution has overwritten Proctor's package `{package}` in "
            f"{', '.join(places)}; {_ADVICE}"
        )
    raise error
