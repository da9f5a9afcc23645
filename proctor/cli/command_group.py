"""How every command prints its result and exits.

A command of a CommandGroup returns an Output, or yields several. A command that yields keeps its
files open while an Output is printed. This module adds `--json`, shows progress, prints each Output
as text or as JSON, and exits with the documented code. A parameter of type Home, or of a dataclass
of options, becomes the options that it is made of; one that the command has itself is shared.
`head: Annotated[Path, "Help."]` declares the option --head, and `Takes("FILE")` beside it what it
takes, or `Argument("FILE")` that it is an argument; `typer.Option` says what needs more.

Each command says what it prints with `--json`, by types, or by names where it loads them only when
it runs: `--json-schema` is made of it, and the reference page of the shapes.

I/O: prints to standard output.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from proctor.cli.lazy import LazyGroup
from proctor.cli.options import HOME, Argument, HomeOption, JsonOption, Takes, VkeyOption
from proctor.cli.remedies import pasteable
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.inputs import read_vkey_file
from proctor.output.paging import paged
from proctor.output.progress import showing
from proctor.output.terminal import console, error_console, is_text, print_json, print_words, words

_JSON = "as_json"
_SCHEMA = "json_schema"
_NONE: Mapping[str, str] = {}
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Output:
    """The result of a command."""

    value: Any  # printed as one JSON document with --json; or a function that returns it
    tell: Callable[[], None] | str  # prints it as text, or is the text
    found: bool = False  # something was found that the exit code reports
    note: str = ""  # printed after the text; with --json, to standard error

    def print(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print_json(self.value() if callable(self.value) else self.value)
        elif isinstance(self.tell, str):
            print_words(pasteable(self.tell))
        else:
            self.tell()
        if self.note:
            (error_console if as_json else console).print(words(pasteable(self.note)))
        sys.stdout.flush()


class CommandGroup(typer.Typer):
    """Commands that return an Output; give `name` if they are subcommands of that name.

    `lazy`: further subcommands, as in LazyGroup.
    """

    def __init__(
        self,
        name: str | None = None,
        help: str | None = None,  # noqa: A002 - Typer's
        lazy: Mapping[str, str] = _NONE,
    ) -> None:
        super().__init__(
            name=name,
            help=help,
            cls=type("_Group", (LazyGroup,), {"lazy": lazy}),
            no_args_is_help=True,
            rich_markup_mode=None,
            context_settings={"max_content_width": 100},
        )

    def command(
        self,
        *names: Any,
        long: bool = False,
        prints: Any = None,
        continues: str = "",
        **settings: Any,
    ) -> Callable[[Command], Command]:
        """Register a command as Typer does; what a `long` one prints goes through a pager.

        `prints`: the shapes of its JSON, as in `Sealed | list[Recalled]`, or as their names:
        `"runs.Trained | proctor.cli.data.Why"`, of which the first is in proctor/runs/shapes.py.
        `continues`: the option with which the same command goes on where it was interrupted, or
        `always`.
        """
        register = super().command(*names, **settings)

        def add(function: Command) -> Command:
            register(_answering(function, long=long, prints=prints, continues=continues))
            return function

        return add


def _answering(
    command: Callable[..., Any], *, long: bool, prints: Any = None, continues: str = ""
) -> Callable[..., None]:
    """Return the function that Typer calls: it runs the command and prints its Output."""
    signature = inspect.signature(command, eval_str=True)
    own = dict(signature.parameters)
    made = {name: own.pop(name).annotation for name in [*own] if _is_made(own[name].annotation)}
    kinds = sorted(made.values(), key=lambda kind: kind is Home)  # whose options come last
    options = [each for kind in kinds for each in _options(kind) if each.name not in own]
    asks = own.pop(_JSON, None) is not None  # a parameter of the command itself

    @wraps(command)
    def call(*, as_json: bool = False, **given: Any) -> None:
        given.pop(_SCHEMA, None)  # which has its own end
        for name, value in given.items():
            _verify_text(name, value)
        arguments = {name: _make(kind, given) for name, kind in made.items()}
        arguments |= {name: given[name] for name in own}
        if asks:
            arguments[_JSON] = as_json
        with showing(wanted=not as_json):
            done = command(**arguments)
        code = EXIT_HELD
        with paged() if long else nullcontext():
            for output in (done,) if isinstance(done, Output) else done or ():
                output.print(as_json=as_json)
                code = EXIT_FOUND if output.found else code
        raise typer.Exit(code)

    parameters = [_keyword(p.name, p.annotation, p.default) for p in (*own.values(), *options)]
    if asks or signature.return_annotation is not None:
        parameters.append(_keyword(_JSON, JsonOption, False))
    if prints is not None:
        parameters.append(_keyword(_SCHEMA, _SchemaOption, False))
        vars(call).update(prints=prints, continues=continues)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _print_schema(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        from proctor.output.schemas import document, shapes  # noqa: PLC0415 - loads DuckDB

        found = document(ctx.command_path, shapes(vars(ctx.command.callback)["prints"]))
        with paged():
            print(json.dumps(found, indent=1))
        raise typer.Exit


_SchemaOption = Annotated[
    bool,
    typer.Option(
        "--json-schema",
        callback=_print_schema,
        is_eager=True,
        help="Print the JSON Schema of that document and exit.",
    ),
]


def _verify_text(name: str, value: Any) -> None:
    """Raise ProctorError for words that are not UTF-8; file names may be any bytes."""
    if isinstance(value, list | tuple):
        for each in value:
            _verify_text(name, each)
    elif isinstance(value, str) and not is_text(value):
        raise ProctorError(f"{name.replace('_', '-')}: {value!a} is not text in UTF-8")


def _is_made(kind: Any) -> bool:
    return kind is Home or (isinstance(kind, type) and is_dataclass(kind))


def _options(kind: type) -> Iterator[inspect.Parameter]:
    """Yield the options that something is made of, in the order of its fields."""
    if kind is Home:
        yield _keyword("home", HomeOption, HOME)
        yield _keyword("vkey", VkeyOption, None)
        return
    for field in inspect.signature(kind, eval_str=True).parameters.values():
        yield from _options(field.annotation) if _is_made(field.annotation) else (field,)


def _make(kind: type, given: dict[str, Any]) -> Any:
    if kind is Home:
        home = Home(given["home"], vkey=read_vkey_file(given["vkey"]))
        home.verify_key()  # at once; what a command reads and writes later is compared as well
        return home
    fields = inspect.signature(kind, eval_str=True).parameters.values()
    return kind(
        **{
            each.name: _make(each.annotation, given)
            if _is_made(each.annotation)
            else given[each.name]
            for each in fields
        }
    )


def _declared(name: str, kind: Any) -> Any:
    """Return the annotation of a parameter; one with a text is an option, or an argument."""
    match getattr(kind, "__metadata__", ()):
        case (str(text), Argument(metavar, least, most, completed)):
            taken = typer.Argument(
                metavar=metavar, help=text, min=least, max=most, autocompletion=completed
            )
        case (str(text), *rest):
            takes = rest[0] if rest else Takes()
            taken = typer.Option(
                takes.option or f"--{name.replace('_', '-')}",
                help=text,
                metavar=takes.name,
                min=takes.least,
                max=takes.most,
                exists=takes.folder,
                file_okay=not takes.folder,
            )
        case _:
            return kind
    return Annotated[kind.__origin__, taken]


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    declared = _declared(name, kind)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared
    )
