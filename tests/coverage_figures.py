"""Print the line coverage of each package of the product, and of all, after `coverage combine`.

Not measured: submissions and candidates, which run confined; property tests, which run the same
lines many times over (tests/conftest.py).
"""

import os
from io import StringIO
from pathlib import Path

from coverage import Coverage

_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print one line for each package, then the total."""
    os.chdir(_ROOT)
    coverage = Coverage()
    coverage.load()
    packages = sorted(Path(file).parent.name for file in _ROOT.glob("*/__init__.py"))
    print("line coverage")
    for package in packages:
        print(
            f"  {package:<12} {coverage.report(include=[f'{package}/*'], file=StringIO()):5.1f} %"
        )
    print(f"  {'all':<12} {coverage.report(file=StringIO()):5.1f} %")


if __name__ == "__main__":
    main()
