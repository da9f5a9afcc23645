"""How much Python there is in a file, and how complex it is: lines, functions, branches.

Counted on the syntax tree, in a time and a memory that grow with the file and no faster. The code
may be a proposer's: whatever weighs it here must not be what the code can exhaust.

Source: McCabe 1976, "A complexity measure" (IEEE Transactions on Software Engineering SE-2).
Trust: the code is hostile; nothing of it is run.
I/O: none.
"""

import ast
import warnings

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.AsyncFor,
    ast.ExceptHandler,
    ast.For,
    ast.If,
    ast.IfExp,
    ast.While,
    ast.comprehension,
    ast.match_case,
)


def weigh(content: bytes) -> dict[str, int]:
    """Return the lines of code, the functions, and their cyclomatic complexities together.

    Of a file that is no Python, or nested too deeply, only the lines are counted.
    """
    lines = {
        number
        for number, line in enumerate(content.splitlines(), start=1)
        if line.strip() and not line.strip().startswith(b"#")
    }
    functions = branches = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            waiting: list[tuple[ast.AST, bool]] = [(ast.parse(content), False)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        waiting = []
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            functions, inside = functions + 1, True
        if inside:
            branches += _branches_of(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a comment
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return {"lines": len(lines), "functions": functions, "complexity": functions + branches}


def _branches_of(node: ast.AST) -> int:
    match node:
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=conditions):
            return 1 + len(conditions)
        case ast.Try(finalbody=[_, *_]):
            return 1
    return int(isinstance(node, _BRANCHES))
