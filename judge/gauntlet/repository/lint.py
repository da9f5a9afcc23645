"""A fence around changed code: what it may import, and what it may not reach for.

Candidates are tested and measured in processes that they run in, so code that rewrites those
processes could pass for better code. The fence refuses the plain ways to do so: modules outside the
manifest's list, special and private names, building code or classes from text, catching what ends a
process, assigning to what was imported, names that pytest obeys. Of what the allowed modules can
do, it refuses what turns text into code (`dataclass` other than as a class's innermost decorator,
`namedtuple` with computed names). Only problems that the file did not have before count.

Weights are no code, but they are checked here, too: size and form.

Not covered: Python cannot be fenced by reading it. Objects that pass through containers and
arguments, and methods that change what was imported, are not followed. What holds without this
fence is that the scorer, the base's tests and the record lie outside the candidate's process, and
that this process is confined.
Source: Python language reference, "Data model"; docs/reference/gauntlet.md, "The fence".
Trust: both versions are hostile; nothing of them is run.
I/O: none.
"""

import ast
import io
import re
import string
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

from aggregates.errors import WeightsError
from aggregates.weights import verify_canonical
from judge.gauntlet.repository.changes import PathChange, Verdict
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import Manifest

MAX_BYTES = 2**20


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_SPECIAL = words(  # what stands between the underscores of names that plain code defines or reads
    "all call contains doc enter exit future getitem init iter len main name next post_init repr"
    " slots str version"
)
_FORBIDDEN = words(
    "BaseException GeneratorExit KeyboardInterrupt SystemExit attrgetter breakpoint compile delattr"
    " eval exec exit globals help input locals methodcaller open quit setattr vars"
)
_REACHING = words(  # attributes that lead from any object to the interpreter's inside
    "CodeType ForwardRef Formatter FunctionType LambdaType ModuleType ag_code ag_frame attrgetter"
    " bltns builtins convert_ cr_code cr_frame ctypes defstruct delattr eval evaluate"
    " evaluate_forward_ref exec f_back f_builtins f_code f_globals f_locals force_setattr"
    " func_globals get_annotations get_field get_type_hints getattr_static gi_code gi_frame"
    " global_enum importlib make_dataclass methodcaller mro new_class os prepare_class"
    " resolve_bases setattr simple_enum singledispatch singledispatchmethod subprocess sys"
    " tb_frame tb_next update_wrapper wraps"
)
_READS = ("getattr", "hasattr")
_DATACLASS = "dataclass"  # executes the names of a class's fields
_MAKERS = words("NamedTuple NewType TypedDict namedtuple")  # of classes, from names
_ENUMS = words("Enum Flag IntEnum IntFlag ReprEnum StrEnum")
_OBEYED_BY_PYTEST = ("pytest_", "pytestmark")  # how names begin that it looks for in modules
_SINKS = frozenset((_DATACLASS, *_MAKERS, *_ENUMS))
_UNSEEN = re.compile(  # nothing that shows; or an end of a line that Python does not take for one
    "[\x0b\x0c\x1c-\x1e\x85\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def check_changed(
    repository: Repository,
    base: str,
    tree: str,
    changes: Sequence[PathChange],
    verdict: Verdict,
    *,
    manifest: Manifest,
) -> tuple[list[str], list[str]]:
    """Return the problems of a change, and the findings that an approval of it accepts.

    Those of tier 1 are for the operator: nothing of it runs before one has read and approved it.
    """
    added = {change.path for change in changes if change.kind == "added"}
    problems: list[str] = []
    accepted: list[str] = []
    for path in verdict.code:
        before = None if path in added else repository.read(base, path)
        form, fence = check_code(path, before, repository.read(tree, path), manifest)
        problems += form
        (accepted if verdict.tier == 1 else problems).extend(fence)
    for change in changes:
        if change.kind != "deleted" and manifest.weights and manifest.is_weights(change.path):
            data, most = repository.read(tree, change.path), manifest.weights.max_bytes
            try:
                if len(data) > most:
                    problems.append(f"{change.path}: has {len(data)} bytes; the maximum is {most}")
                else:
                    verify_canonical(data)
            except WeightsError as error:
                problems.append(f"{change.path}: {error}")
    return problems, accepted


def check_code(
    path: str, before: bytes | None, after: bytes, manifest: Manifest
) -> tuple[list[str], list[str]]:
    """Return the problems that a changed Python file has and did not have before.

    First those that no reader can be asked to accept, which are about what a reader sees: invisible
    characters, encodings, sizes, invalid Python. Then those of the fence.
    """
    found = []
    for known, now in zip(
        _problems(path, before, manifest) if before else ([], []),
        _problems(path, after, manifest),
        strict=True,
    ):
        had = Counter(text for _, text in known)
        new = []
        for line, text in now:
            if had[text]:
                had[text] -= 1
            else:
                new.append(f"{path}:{line}: {text}")
        found.append(new)
    form, fence = found
    bound, lines = manifest.lint.max.file_lines, after.count(b"\n")
    if bound is not None and lines > max(bound, (before or b"").count(b"\n")):
        form.append(f"{path}: has {lines} lines; the maximum is {bound}")
    return form, fence


def parsed(source: bytes) -> ast.Module | None:
    """Return the syntax tree of a file that is not run; None where this Python makes none of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


Problems = list[tuple[int, str]]
"""Each with its line."""


def _problems(path: str, source: bytes, manifest: Manifest) -> tuple[Problems, Problems]:
    """Return the problems of one version: of its form, and of the fence."""
    if len(source) > MAX_BYTES:
        return [(1, f"has more than {MAX_BYTES} bytes")], []
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, filename=path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [(1, f"is not valid Python: {str(error)[:200]}")], []
    if encoding != "utf-8":
        return [(1, f"is written in {encoding}; write it in UTF-8")], []
    form = [
        (number, f"contains the invisible character {mark!r}")
        for number, line in enumerate(text.split("\n"), start=1)
        for mark in _UNSEEN.findall(line)
    ]
    form += _looking_alike(text)
    try:
        return form, sorted(_Walk(path, manifest, tree).problems())
    except RecursionError:
        return form, [(1, "is nested too deeply")]


def _looking_alike(text: str) -> list[tuple[int, str]]:
    """Return the identifiers with letters that may look like other letters."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not token.string.isascii():
                found.append((token.start[0], f"uses the identifier {token.string!a}: use ASCII"))
    except (tokenize.TokenError, SyntaxError):
        return [(1, "cannot be read as Python's tokenizer does")]
    return found


def _top(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str | None:
    """Return the top-level package that something is imported from; None for a relative import."""
    if isinstance(node, ast.ImportFrom):
        return None if node.level else (node.module or "").split(".")[0]
    return alias.name.split(".")[0]


class _Walk:
    """One walk over one file."""

    def __init__(self, path: str, manifest: Manifest, tree: ast.AST) -> None:
        self._path = path
        self._package = path.split("/", maxsplit=1)[0]
        self._manifest = manifest
        self._tree = tree
        self._imported: set[str] = set()  # every name that an import binds anywhere in the file
        self._modules: set[str] = set()  # of these, what surely are modules
        self._others: set[str] = set()  # names from outside of the file's own package
        self._dotted: set[int] = set()  # ids of names that stand before a dot
        self._called: set[int] = set()  # ids of names that are called where they stand
        self._harmless: set[int] = set()  # ids of what may stand where it stands

    def _prepare(self) -> None:
        """Note what is imported, and where `dataclass` and `type` do no more than they say."""
        for node in ast.walk(self._tree):
            match node:
                case ast.Import() | ast.ImportFrom():
                    for alias in node.names:
                        name = alias.asname or alias.name.split(".")[0]
                        self._imported.add(name)
                        if isinstance(node, ast.Import):
                            self._modules.add(name)
                        if _top(node, alias) not in (self._package, None):
                            self._others.add(name)
                case ast.ClassDef(decorator_list=[*_, innermost]):
                    self._harmless.add(id(_plainly_called(innermost)))
                case ast.arg(annotation=ast.expr() as types) | ast.AnnAssign(annotation=types):
                    self._allow_types(types)
                case ast.FunctionDef(returns=ast.expr() as types):
                    self._allow_types(types)
                case ast.AsyncFunctionDef(returns=ast.expr() as types):
                    self._allow_types(types)
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, types]):
                    self._allow_types(types)
                case ast.Subscript(value=ast.Name(id="type")):
                    self._allow_types(node.value)
                case ast.Compare(left=left, comparators=comparators):
                    for each in (left, *comparators):
                        self._allow_types(each)
                case ast.MatchClass(cls=cls):
                    self._allow_types(cls)

    def _allow_types(self, node: ast.expr) -> None:
        """Let `type` itself stand for the type of classes."""
        found = (each for each in ast.walk(node) if isinstance(each, ast.Name))
        self._harmless.update(id(each) for each in found if each.id == "type")

    def problems(self) -> Iterator[tuple[int, str]]:
        self._prepare()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):  # breadth first: before the name that it calls
                self._called.add(id(node.func))
            elif isinstance(node, ast.Attribute):
                self._dotted.add(id(node.value))
            for problem in self._of(node):
                yield getattr(node, "lineno", 1), problem

    def _of(self, node: ast.AST) -> Iterator[str]:
        if not isinstance(node, ast.alias):
            for field in ("name", "arg", "rest"):  # what a node binds, or names an argument by
                yield from _name(getattr(node, field, None) or "")
        match node:
            case ast.Import():
                for alias in node.names:
                    if not self._allowed(alias.name):
                        yield f"imports {alias.name}, which is not in the list of allowed modules"
                    yield from _name(alias.asname or "")
            case ast.ImportFrom():
                yield from self._import_from(node)
            case ast.Name():
                yield from self._plain_name(node)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Call():
                yield from self._call(node)
            case ast.ExceptHandler():
                if node.type is None:
                    yield "catches every exception: name the exceptions"
            case ast.ClassDef():
                if any(keyword.arg in ("metaclass", None) for keyword in node.keywords):
                    yield "gives a class a metaclass"
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    yield from _name(name)
            case ast.Constant(value=str() as text):
                yield from _text(text)
            case ast.MatchClass():
                for attribute in node.kwd_attrs:
                    yield from _attribute_name(attribute)
            case ast.Subscript() if not isinstance(node.ctx, ast.Load):
                yield from self._assigned(node)
            case _:
                return

    def _import_from(self, node: ast.ImportFrom) -> Iterator[str]:
        module = self._absolute(node)
        for alias in node.names:
            whole = f"{module}.{alias.name}"
            if alias.name == "*":
                yield f"imports * from {module}: name the imports"
            elif self._is_module_of_others(alias.name, whole) or not (
                self._allowed(module) or self._allowed(whole)
            ):
                yield f"imports {whole}, which is not in the list of allowed modules"
            if alias.name in _FORBIDDEN and whole != "re.compile":
                yield f"imports {alias.name}"
            if _is_private(alias.name) and _top(node, alias) not in (self._package, None):
                yield f"imports the private name {whole}"
            if alias.asname not in (None, alias.name) and alias.name in _SINKS:
                yield f"imports {alias.name} under another name"
            yield from _attribute_name(alias.name)
            yield from _name(alias.asname or "")

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folders = self._path.split("/")[: -node.level]
        return ".".join([*folders, *([node.module] if node.module else [])])

    def _allowed(self, module: str) -> bool:
        return module == "__future__" or any(
            module == name or (name.endswith(".*") and f"{module}.".startswith(name[:-1]))
            for name in self._manifest.code.imports
        )

    def _is_module_of_others(self, name: str, whole: str) -> bool:
        """Whether a name in a module is the standard library's, which came there by an import."""
        return (
            name.lstrip("_") in sys.stdlib_module_names
            and not self._allowed(name.lstrip("_"))
            and whole not in self._manifest.code.imports
        )

    def _plain_name(self, node: ast.Name) -> Iterator[str]:
        if node.id in _FORBIDDEN:
            yield f"uses {node.id}"
        elif node.id in _READS and id(node) not in self._called:
            yield f"uses {node.id} without calling it directly"
        elif node.id in self._modules and id(node) not in self._dotted:
            yield f"uses the module {node.id} as a value, not only its attributes"
        yield from self._maker(node, node.id)
        yield from _name(node.id)

    def _maker(self, node: ast.expr, name: str) -> Iterator[str]:
        """Look at what makes classes, or code from their names."""
        if not isinstance(getattr(node, "ctx", None), ast.Load) or id(node) in self._harmless:
            return
        if name == _DATACLASS:
            yield "uses dataclass other than as the innermost decorator of a class"
        elif name == "type" and isinstance(node, ast.Name) and id(node) not in self._called:
            yield "uses type as a value"
        elif name == "namedtuple" and id(node) not in self._called:
            yield "uses namedtuple without calling it directly"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        yield from _attribute_name(node.attr)
        yield from self._maker(node, node.attr)
        root = _root(node)
        if root in self._others and _is_private(node.attr):
            yield f"accesses the private name {ast.unparse(node)[:100]}"
        if root in self._imported and self._is_module_of_others(node.attr, ast.unparse(node)):
            yield f"accesses the module {node.attr} through {ast.unparse(node)[:100]}"
        if not isinstance(node.ctx, ast.Load):
            yield from self._assigned(node)

    def _assigned(self, node: ast.Attribute | ast.Subscript) -> Iterator[str]:
        if _root(node) in self._imported:
            yield f"assigns to {ast.unparse(node)[:100]}, in what it imported"

    def _call(self, node: ast.Call) -> Iterator[str]:
        match node.func:
            case ast.Name(id=name) if name in _READS:
                named = node.args[1] if len(node.args) > 1 else None
                if isinstance(named, ast.Constant) and isinstance(named.value, str):
                    yield from _attribute_name(named.value)
                    if _is_private(named.value) and _root(node.args[0]) in self._others:
                        yield f"accesses the private name {named.value} by its name"
                    if named.value in _SINKS:
                        yield f"reads {named.value} by its name"
                else:
                    yield f"calls {name} with a name that is computed at run time"
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _MAKERS:
                parts: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
                if not all(map(_is_literal, parts)):
                    yield f"calls {name} with names that are computed at run time"
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _ENUMS:
                if len(node.args) + len(node.keywords) > 1:
                    yield f"makes a class by calling {name}: write a class statement"
            case ast.Name(id="type") if not _is_question(node):
                yield "makes a class by calling type: write a class statement"
            case ast.Call(func=ast.Name(id="type")) if _is_class_call(node):
                yield "makes a class by calling the type of another"
            case ast.Attribute(attr="format" | "format_map", value=pattern) if isinstance(
                pattern, ast.BinOp | ast.Call | ast.JoinedStr
            ):
                yield "formats a pattern that is computed at run time: use an f-string"


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _plainly_called(decorator: ast.expr) -> ast.expr:
    """Return what a decorator calls with nothing but named settings, or the decorator itself."""
    if not isinstance(decorator, ast.Call):
        return decorator
    plain = not decorator.args and all(keyword.arg for keyword in decorator.keywords)
    return decorator.func if plain else decorator


def _is_question(node: ast.Call) -> bool:
    """Whether this call of `type` asks for a value's type."""
    return len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) and not node.keywords


def _is_class_call(node: ast.Call) -> bool:
    spread = any(isinstance(each, ast.Starred) for each in node.args)
    return spread or len(node.args) == 3  # a name, bases, and a namespace


def _is_literal(node: ast.expr | ast.keyword) -> bool:
    """Whether names stand here as they are; types beside them may be anything."""
    match node:
        case ast.keyword():
            return node.arg is not None and (node.arg == "defaults" or _is_literal(node.value))
        case ast.Constant():
            return True
        case ast.Tuple(elts=[ast.Constant(), _]):
            return True  # a field and its type
        case ast.List() | ast.Tuple():
            return all(_is_literal(each) for each in node.elts)
        case ast.Dict():
            return all(isinstance(key, ast.Constant) for key in node.keys)
    return False


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _text(text: str) -> Iterator[str]:
    """Look at a text that may name what is special to Python: as a key, or in a pattern."""
    if text.isidentifier():
        yield from _special_name(text)
        return
    if "{" not in text or "." not in text:
        return
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name]
    except ValueError:
        return  # no pattern, or one that cannot be formatted
    for each in fields:
        for part in re.split(r"[.\[\]]", each)[1:]:
            yield from _special_name(part)
            if part in _REACHING:
                yield f"accesses .{part} in a pattern"


def _special_name(name: str) -> Iterator[str]:
    special = name.startswith("__") and name.endswith("__") and name.strip("_")
    if special and name[2:-2] not in _SPECIAL:
        yield f"uses the special name {name}"


def _name(name: str) -> Iterator[str]:
    yield from _special_name(name)
    if name.startswith(_OBEYED_BY_PYTEST):
        yield f"uses the name {name}, which pytest may obey"


def _attribute_name(name: str) -> Iterator[str]:
    yield from _name(name)
    if name.lstrip("_") in _REACHING:  # modules are often imported as `_sys`
        yield f"accesses .{name}"
