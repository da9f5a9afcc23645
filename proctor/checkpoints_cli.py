"""`proctor checkpoints`: the versions of the infrastructure, and what was made under each."""

from contextlib import suppress
from importlib import import_module

import typer

app = typer.Typer(
    name="checkpoints",
    help="Versions of the infrastructure: which stand, which were rolled back, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
for _part in ("proctor.checkpoints_drift_cli", "proctor.checkpoints_bisect_cli"):
    with suppress(ModuleNotFoundError):
        import_module(_part).register(app)
