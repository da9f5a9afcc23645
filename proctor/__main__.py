"""`python -m proctor` is the same as `proctor`."""

from proctor.cli import main

main()
