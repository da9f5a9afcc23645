"""Opens the tuner of a model's advice for `proctor run --tune` and `proctor tune`.

I/O: reads the keys of models from the environment; opens the log.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from ledger.application import LedgerApplication
from policies.asking.ask import open_client
from policies.asking.settings import ModelSettings
from proctor.home import Home
from proctor.improvement.tuning import Tuner, Writer
from proctor.output.terminal import warn
from proctor.runs.policies import OPENAI, PolicyChoice
from proctor.runs.run_settings import read_pairs


@contextmanager
def tuning(
    home: Home,
    log: LedgerApplication,
    settings: ModelSettings,
    writer: Sequence[str],
    *,
    say: Callable[[str], None],
) -> Iterator[Tuner]:
    """Give the tuner of a model's advice; its clients are closed."""
    with ExitStack() as clients:
        writes = None
        if writer:
            wanted = ModelSettings.from_dict(read_pairs(writer))
            writes = Writer(wanted, clients.enter_context(closing(open_client(wanted))))
        client = clients.enter_context(closing(open_client(settings)))
        yield Tuner(home, log, settings, client, writes, say=say)


@contextmanager
def tuner_for(home: Home, sets: Sequence[str], writer: Sequence[str]) -> Iterator[Tuner]:
    """Give the tuner of the model that settings name, over the home's ledger."""
    settings = PolicyChoice.read(OPENAI, sets).settings
    assert settings is not None, "read() has seen to it"
    with (
        home.open_log() as log,
        tuning(home, log, settings, writer, say=warn) as tuner,
    ):
        yield tuner
