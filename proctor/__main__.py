"""`python -m proctor` is the same as `proctor`."""

from proctor.cli.start import main

main()
