"""A fence around changed code: what it may import, and what it may not reach for.

Candidates are tested and measured in processes that they run in, so code that rewrites those
processes could pass for better code. The fence refuses the plain ways to do so: modules outside the
manifest's list, special names, building code from text, catching what ends a process, assigning to
what was imported. Only problems that the file did not have before count.

Not covered: Python cannot be fenced by reading it. Objects that pass through containers and
arguments, and methods that change what was imported, are not followed. What holds without this
fence is that the scorer, the base's tests and the record lie outside the candidate's process.
Source: Python language reference, "Data model".
Trust: both versions are hostile; nothing of them is run.
I/O: none.
"""

import ast
import io
import re
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from judge.gauntlet.repository.manifest import Manifest

MAX_BYTES = 2**20


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPECIAL = _words(  # what stands between the underscores of names that plain code defines or reads
    "all call contains doc enter exit future getitem init iter len main name next post_init repr"
    " slots str version"
)
_FORBIDDEN = _words(
    "BaseException GeneratorExit KeyboardInterrupt SystemExit attrgetter breakpoint compile delattr"
    " eval exec exit globals help input locals methodcaller open quit setattr vars"
)
_REACHING = _words(  # attributes that lead from any object to the interpreter's inside
    "CodeType ForwardRef Formatter FunctionType LambdaType ModuleType ag_code ag_frame bltns"
    " builtins convert_ cr_code cr_frame ctypes eval evaluate exec f_back f_builtins f_code"
    " f_globals f_locals func_globals get_field get_type_hints gi_code gi_frame global_enum"
    " importlib make_dataclass mro os simple_enum singledispatch singledispatchmethod subprocess"
    " sys tb_frame update_wrapper wraps"
)
_READS = ("getattr", "hasattr")
_UNSEEN = re.compile(  # in which the ends of lines are that Python does not take for ends
    "[\x0b\x0c\x1c-\x1e\x85\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def check_code(
    path: str, before: bytes | None, after: bytes, manifest: Manifest
) -> tuple[str, ...]:
    """Return the problems that a changed Python file has and did not have before."""
    had = Counter(text for _, text in _problems(path, before, manifest)) if before else Counter()
    found = []
    for line, text in _problems(path, after, manifest):
        if had[text]:
            had[text] -= 1
        else:
            found.append(f"{path}:{line}: {text}")
    return (*found, *_too_long(path, before, after, manifest))


def _too_long(path: str, before: bytes | None, after: bytes, manifest: Manifest) -> tuple[str, ...]:
    bound, lines = manifest.lint.max.file_lines, after.count(b"\n")
    if bound is None or lines <= max(bound, (before or b"").count(b"\n")):
        return ()
    return (f"{path}: has {lines} lines; the maximum is {bound}",)


def _problems(path: str, source: bytes, manifest: Manifest) -> list[tuple[int, str]]:
    """The problems of one version, each with its line."""
    if len(source) > MAX_BYTES:
        return [(1, f"has more than {MAX_BYTES} bytes")]
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, filename=path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [(1, f"is not valid Python: {str(error)[:200]}")]
    if encoding != "utf-8":
        return [(1, f"is written in {encoding}; write it in UTF-8")]
    found = [
        (text.count("\n", 0, mark.start()) + 1, f"contains the invisible character {mark[0]!r}")
        for mark in _UNSEEN.finditer(text)
    ]
    try:
        walk = _Walk(path, manifest, _imported(tree), modules=_imported(tree, modules=True))
        return sorted(found + list(walk.problems(tree)))
    except RecursionError:
        return [(1, "is nested too deeply")]


def _imported(tree: ast.AST, *, modules: bool = False) -> frozenset[str]:
    """Every name that an import binds anywhere in the file, or those that are surely modules."""
    kinds = ast.Import if modules else ast.Import | ast.ImportFrom
    return frozenset(
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for alias in node.names
    )


@dataclass(frozen=True)
class _Walk:
    """One walk over one file."""

    path: str
    manifest: Manifest
    imported: frozenset[str]
    modules: frozenset[str]
    dotted: set[int] = field(default_factory=set)  # ids of names that stand before a dot
    called: set[int] = field(default_factory=set)  # ids of names that are called where they stand

    def problems(self, tree: ast.AST) -> Iterator[tuple[int, str]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):  # breadth first: before the name that it calls
                self.called.add(id(node.func))
            elif isinstance(node, ast.Attribute):
                self.dotted.add(id(node.value))
            for problem in self._of(node):
                yield getattr(node, "lineno", 1), problem

    def _of(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from self._import(alias.name)
                    yield from _name(alias.asname or "")
            case ast.ImportFrom():
                yield from self._import_from(node)
            case ast.Name():
                yield from self._plain_name(node)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Call():
                yield from self._call(node)
            case ast.ExceptHandler() if node.type is None:
                yield "catches every exception: name the exceptions"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield from _name(node.name)
            case ast.arg():
                yield from _name(node.arg)
            case ast.keyword():
                yield from _name(node.arg or "")
            case ast.MatchClass():
                for attribute in node.kwd_attrs:
                    yield from _attribute_name(attribute)
            case ast.Subscript() if not isinstance(node.ctx, ast.Load):
                yield from self._assigned(node)
            case _:
                return

    def _import(self, module: str) -> Iterator[str]:
        if not self._allowed(module):
            yield f"imports {module}, which is not in the list of allowed modules"

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
            yield from _attribute_name(alias.name)
            yield from _name(alias.asname or "")

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folders = self.path.split("/")[: -node.level]
        return ".".join([*folders, *([node.module] if node.module else [])])

    def _allowed(self, module: str) -> bool:
        return module == "__future__" or any(
            module == name or (name.endswith(".*") and f"{module}.".startswith(name[:-1]))
            for name in self.manifest.code.imports
        )

    def _is_module_of_others(self, name: str, whole: str) -> bool:
        """Whether a name in a module is the standard library's, which came there by an import."""
        return (
            name.lstrip("_") in sys.stdlib_module_names
            and not self._allowed(name.lstrip("_"))
            and whole not in self.manifest.code.imports
        )

    def _plain_name(self, node: ast.Name) -> Iterator[str]:
        if node.id in _FORBIDDEN:
            yield f"uses {node.id}"
        elif node.id in _READS and id(node) not in self.called:
            yield f"uses {node.id} without calling it directly"
        elif node.id in self.modules and id(node) not in self.dotted:
            yield f"uses the module {node.id} as a value, not only its attributes"
        yield from _name(node.id)

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        yield from _attribute_name(node.attr)
        if _root(node) in self.imported and self._is_module_of_others(node.attr, ast.unparse(node)):
            yield f"accesses the module {node.attr} through {ast.unparse(node)[:100]}"
        if not isinstance(node.ctx, ast.Load):
            yield from self._assigned(node)

    def _assigned(self, node: ast.Attribute | ast.Subscript) -> Iterator[str]:
        if _root(node) in self.imported:
            yield f"assigns to {ast.unparse(node)[:100]}, in what it imported"

    def _call(self, node: ast.Call) -> Iterator[str]:
        if not isinstance(node.func, ast.Name) or node.func.id not in _READS:
            return
        named = node.args[1] if len(node.args) > 1 else None
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            yield from _attribute_name(named.value)
        else:
            yield f"calls {node.func.id} with a name that is computed at run time"


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _name(name: str) -> Iterator[str]:
    special = name.startswith("__") and name.endswith("__") and name.strip("_")
    if special and name[2:-2] not in _SPECIAL:
        yield f"uses the special name {name}"


def _attribute_name(name: str) -> Iterator[str]:
    yield from _name(name)
    if name.lstrip("_") in _REACHING:  # modules are often imported as `_sys`
        yield f"accesses .{name}"
