"""The weight of code: what is counted, and that no file makes it costly."""

from judge.drift.evaluation import weigh

CODE = b'''"""Says what it is."""

# A comment.
LIMIT = 3 if True else 4


def choose(rows):
    """Return some."""
    found = [row for row in rows if row and row > 0]
    try:
        return found[:LIMIT]
    except TypeError:
        return None
    finally:
        del rows


class Other:
    async def choose(self, rows):
        while rows or self:
            if rows:
                return 1
            elif self:
                return 2
'''


def test_lines_functions_and_branches_are_counted() -> None:
    # choose(): 1, a comprehension with one condition 2, `and` 1, except 1, finally 1.
    # Other.choose(): 1, while 1, `or` 1, if 1, elif 1.
    assert weigh(CODE) == {"lines": 16, "functions": 2, "complexity": 6 + 5}


def test_what_is_no_python_has_lines_only() -> None:
    assert weigh(b"print 1\n\n# no\n") == {"lines": 1, "functions": 0, "complexity": 0}
    deep = b"x = " + b"(" * 5_000 + b")" * 5_000
    assert weigh(deep) == {"lines": 1, "functions": 0, "complexity": 0}


def test_nested_functions_cost_no_more_than_others() -> None:
    nested = "\n".join(" " * depth + f"def f{depth}():" for depth in range(60))
    found = weigh(f"{nested}\n{' ' * 60}pass\n".encode())
    assert found == {"lines": 61, "functions": 60, "complexity": 60}
