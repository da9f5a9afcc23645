"""`python -m proctor` is the same as `proctor`."""

from proctor.cli.main import main

main()
