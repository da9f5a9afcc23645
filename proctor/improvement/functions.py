"""Finds a function by its module and name in the files of a branch, on their syntax trees.

Where only running the code could tell (star imports, `__getattr__`, names that are set by others,
files that this Python cannot parse), the function is taken to be there.

Trust: the files may be anybody's: they are parsed, and nothing of them is imported or run.
I/O: reads files of the commit, and looks for missing ones in the work tree.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aggregates.declared import closest
from judge.gauntlet.errors import RepositoryError
from judge.gauntlet.repository.failures import ROOTS, commit_it, is_own, not_committed
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.lint import parsed
from proctor.errors import ProctorError

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MOST = 2**20  # bytes of a file that is looked into
_MOST_STEPS = 100  # from module to module
_SHOWN = 8  # functions that an error names
_BUILT = (".pyx", ".so", ".pyd")  # ends of modules that are not Python
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_VALUES = (
    *(ast.Constant, ast.Dict, ast.DictComp, ast.JoinedStr, ast.List, ast.ListComp),
    *(ast.Set, ast.SetComp, ast.Tuple),
)


@dataclass(frozen=True)
class Functions:
    """The functions in a commit of a repository; `branch` is what people call it."""

    repository: Repository
    commit: str
    branch: str

    def find(self, function: str) -> str:
        """Return the file of the module in `module:name`; raise ProctorError if it is not there."""
        if not _FUNCTION.fullmatch(function):
            raise ProctorError(f"--function {function}: write it as package.module:name")
        module, _, name = function.partition(":")
        path = self._file_of(module) or self._file_of(module, _BUILT)
        wrong = self._no_module(module) if path is None else self._why_none(module, name, set())
        if path is None or wrong is not None:
            raise ProctorError(f"--function {function}: {wrong}")
        return path

    def _file_of(self, module: str, ends: Iterable[str] = (".py", "/__init__.py")) -> str | None:
        paths = self.repository.files(self.commit)
        start = module.replace(".", "/")
        places = (f"{root}{start}{end}" for root in ROOTS for end in ends)
        return next((each for each in places if each in paths), None)

    def _no_module(self, module: str) -> str:
        """Return in words that the branch has no module of a name."""
        if path := not_committed(self.repository, self.commit, module):
            where = f"not on branch {self.branch!r}"
            return f"{path} is in the work tree, but {where}: {commit_it(path)}"
        start = module.replace(".", "/")
        searched = ", ".join(f"{root}{start}{end}" for root in ROOTS for end in (".py", "/"))
        paths = self.repository.paths(self.commit)
        python = (path.removeprefix(ROOTS[0]) for path in paths if path.endswith(".py"))
        known = {each.removesuffix(".py").removesuffix("/__init__") for each in python}
        near = closest(module, [each.replace("/", ".") for each in known])
        return f"module {module} not found on branch {self.branch!r} (searched: {searched}); " + (
            f"did you mean {near}?" if near else "name a module that is on the branch"
        )

    def _why_none(self, module: str, name: str, seen: set[tuple[str, str]]) -> str | None:
        """Return why a module has no function of a name; None if it has, or may have."""
        path = self._file_of(module)
        if path is None or len(seen) == _MOST_STEPS:
            return None
        if (module, name) in seen:
            return f"{path} imports {name} from itself"
        seen.add((module, name))
        try:
            tree = parsed(self.repository.read(self.commit, path, most=_MOST))
        except RepositoryError:  # too large, or a link
            return None
        if tree is None or _is_dynamic(tree, name):
            return None
        package = module.split(".") if path.endswith("/__init__.py") else module.split(".")[:-1]
        reasons = [
            self._imported(found, package, path, seen)
            if isinstance(found, _Import)
            else found and f"{name} in {path} is {found}"
            for found in _bindings(tree, name)
        ]
        if reasons:
            return None if None in reasons else reasons[0]
        return f"{path} on branch {self.branch!r} has no function {name}{_instead(tree, name)}"

    def _imported(
        self, found: "_Import", package: list[str], path: str, seen: set[tuple[str, str]]
    ) -> str | None:
        """Return why what `from module import name` gives is no function."""
        above = len(package) - found.level + 1
        if found.level and above < 0:
            return None
        target = ".".join([*(package[:above] if found.level else ()), *found.module])
        module = f"{target}.{found.name}"
        if self._file_of(target) is not None:
            if (why := self._why_none(target, found.name, seen)) is None:
                return None
            return f"{found.name} in {path} is a module" if self._file_of(module) else why
        if self._file_of(module) is not None:
            return f"{found.name} in {path} is a module"
        own = is_own(self.repository.paths(self.commit), target)
        if not own or self._file_of(target, _BUILT) is not None:
            return None
        return f"{path} imports it, but: {self._no_module(target)}"


@dataclass(frozen=True)
class _Import:
    """`from` so many levels above and a module `import name`."""

    level: int
    module: tuple[str, ...]
    name: str


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module that run when it is imported, but for the bodies of classes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += reversed([*ast.iter_child_nodes(node)])


def _is_dynamic(tree: ast.Module, name: str) -> bool:
    """Tell whether a module may have the name without saying so."""
    return any(
        getattr(node, "name", "") in ("*", "__getattr__") for node in _outside_functions(tree)
    ) or any(
        (isinstance(node, ast.Global) and name in node.names)
        or getattr(node, "id", getattr(node, "attr", "")) in ("exec", "globals", "modules")
        for node in ast.walk(tree)
    )


def _bindings(tree: ast.Module, name: str) -> Iterator["_Import | str | None"]:
    """Yield what a module binds a name to: an import, what is no function, or None for the rest."""
    plain: set[ast.AST] = set()  # names whose value was told already
    for node in _outside_functions(tree):
        match node:
            case ast.AsyncFunctionDef(name=bound, decorator_list=[]) if bound == name:
                yield "a coroutine function, which a worker cannot call"
            case ast.ClassDef(name=bound, bases=[], keywords=[], decorator_list=[]) if (
                bound == name
            ):
                yield "a class, whose objects are no JSON"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                yield None
            case ast.Import(names=aliases):
                for each in aliases:
                    if name == (each.asname or each.name.partition(".")[0]):
                        yield "a module"
            case ast.ImportFrom(module=module, names=aliases, level=level):
                for each in aliases:
                    if name == (each.asname or each.name):
                        parts = tuple(module.split(".")) if module else ()
                        yield _Import(level, parts, each.name)
            case ast.Assign(targets=targets, value=value) if isinstance(value, _VALUES):
                plain |= {target for target in targets if isinstance(target, ast.Name)}
                if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                    yield "a value"
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                if value is None or isinstance(value, _VALUES):
                    plain.add(target)
                if target.id == name and isinstance(value, _VALUES):
                    yield "a value"
            case ast.Name(id=bound, ctx=ast.Store()) if bound == name and node not in plain:
                yield None
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name == name:
                yield None


def _instead(tree: ast.Module, name: str) -> str:
    """Return what a module has instead of a name, for an error."""
    functions = []
    for node in _outside_functions(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == name:
                    return f"; {name} is a method of {node.name}: name a function that calls it"
        elif isinstance(node, ast.FunctionDef):
            functions.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            functions += [each.asname or each.name for each in node.names]
    if near := closest(name, functions):
        return f"; did you mean {near}?"
    return f"; it has {', '.join(functions[:_SHOWN])}" if functions else ""
