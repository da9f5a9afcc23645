"""The mutation operators: plausible mistakes for each node of the syntax tree.

Error messages, assertions, annotations, decorators and documentation are not mutated.

Source: DeMillo, Lipton & Sayward 1978, "Hints on test data selection"; the choice is close to
Offutt et al. 1996, "An experimental determination of sufficient mutant operators".
I/O: none.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Place", "changes_at", "places_of"]

_FLIPS: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SWAPPED = {"all": "any", "any": "all", "max": "min", "min": "max"}
_UNWRAPPED = {"abs", "frozenset", "list", "reversed", "round", "set", "tuple"}
_CLEANING = {"casefold", "copy", "lower", "lstrip", "rstrip", "strip", "upper"}
_LOOKING_UP = {"get", "pop", "setdefault"}
_DELETED = (ast.AugAssign, ast.Break, ast.Continue, ast.Delete, ast.Expr, ast.Raise)
_UNTOUCHED = {"annotation", "decorator_list", "returns", "type_params"}
_MAX_TOLD = 100  # characters of each side of a description


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node, and where in the tree it hangs."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None  # in a list of nodes
    function: str  # qualified; "" at the top of the module
    key: bool  # what stands here is looked up or compared
    line: int
    column: int

    def replaced(self, tree: ast.Module, new: ast.AST) -> str:
        """Return the module's code with another node in this place."""
        self._put(new)
        try:
            return ast.unparse(ast.fix_missing_locations(tree))
        finally:
            self._put(self.node)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def places_of(tree: ast.Module) -> list[Place]:
    """Return all places that may be mutated, in the order of their lines and columns."""
    return sorted(_walk(tree, "", key=False), key=lambda place: (place.line, place.column))


def changes_at(place: Place) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield (kind, other node, description) for what could stand there instead."""
    for kind, new in _changes(place):
        yield kind, new, f"{_told(place.node)} -> {_told(new)}"


def _walk(parent: ast.AST, function: str, *, key: bool) -> Iterator[Place]:
    for field, value in ast.iter_fields(parent):
        if field in _UNTOUCHED or (isinstance(parent, ast.Raise) and field in {"exc", "cause"}):
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or _is_left_alone(child, parent, field):
                continue
            looked_up = _is_key(parent, field, index) or (
                key and isinstance(parent, ast.List | ast.Set | ast.Tuple)
            )
            if isinstance(child, ast.expr | ast.stmt):
                yield Place(
                    node=child,
                    parent=parent,
                    field=field,
                    index=index,
                    function=function,
                    key=looked_up,
                    line=child.lineno,
                    column=child.col_offset,
                )
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}" if function else child.name
            yield from _walk(child, inside, key=looked_up)


def _is_left_alone(node: ast.AST, parent: ast.AST, field: str) -> bool:
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If):  # what is there for type checkers and for programs only
        return any(name in ast.unparse(node.test) for name in ("TYPE_CHECKING", "__name__"))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return "__all__" in ast.unparse(node).partition("=")[0]
    named = isinstance(parent, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return (
        named
        and field == "body"
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
    )  # documentation


def _is_key(parent: ast.AST, field: str, index: int | None) -> bool:
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return field == "args" and index == 0 and parent.func.attr in _LOOKING_UP
    return (
        isinstance(parent, ast.Compare | ast.MatchValue)
        or (isinstance(parent, ast.Subscript) and field == "slice")
        or (isinstance(parent, ast.Dict) and field == "keys")
    )


def _changes(place: Place) -> Iterator[tuple[str, ast.AST]]:
    node, parent = place.node, place.parent
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            for other in _FLIPS[type(op)]:
                ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", ast.BoolOp(other_op, node.values)
        for at in range(len(node.values)):
            rest = [*node.values[:at], *node.values[at + 1 :]]
            yield "and/or", ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not | ast.USub):
            yield "sign", node.operand
    elif isinstance(node, ast.BinOp):
        text = any(_is_text(side) for side in (node.left, node.right))
        if type(node.op) in _ARITHMETIC and not text:
            yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Constant):
        yield from _constants(node, place)
    if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
        if place.field == "test" and isinstance(parent, ast.If | ast.IfExp):
            yield "condition", ast.Constant(True)
        if place.field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While):
            yield "condition", ast.Constant(False)
        if place.field == "ifs":
            yield "condition", ast.Constant(True)


def _statements(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        other = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", ast.AugAssign(node.target, other, node.value)
    if isinstance(node, ast.Return) and node.value is not None:
        yield "return", ast.Return(ast.Constant(None))  # where it is None, nothing is changed
    stored = isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )
    bare = isinstance(node, ast.Return) and node.value is None
    if stored or bare or isinstance(node, _DELETED):
        yield "statement", ast.Pass()


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    single = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)
    if name == "sorted" and single:
        yield "call", ast.Call(ast.Name("list"), node.args, [])
    if name in _SWAPPED:
        yield "call", ast.Call(ast.Name(_SWAPPED[name]), node.args, node.keywords)
    if name in _UNWRAPPED and single and not node.keywords:
        yield "call", node.args[0]
    if method in _CLEANING and isinstance(node.func, ast.Attribute):
        yield "call", node.func.value
    if name in {"max", "min", "sorted"} or method == "sort":
        for at, keyword in enumerate(node.keywords):
            if keyword.arg in {"key", "reverse"}:
                rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
                yield "call", ast.Call(node.func, node.args, rest)


def _constants(node: ast.Constant, place: Place) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
        yield "constant", ast.Constant(value - 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 2 if value else 1.0)
        yield "constant", ast.Constant(value / 2 if value else -1.0)
    elif isinstance(value, str) and place.key:
        yield "key", ast.Constant(f"{value}_")


def _is_text(node: ast.AST) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)


def _told(node: ast.AST) -> str:
    text = "nothing" if isinstance(node, ast.Pass) else " ".join(ast.unparse(node).split())
    return text if len(text) <= _MAX_TOLD else f"{text[: _MAX_TOLD - 3]}..."
