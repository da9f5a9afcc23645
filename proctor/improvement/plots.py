"""Plots in the terminal, of what a line's checkpoints measured."""

from collections.abc import Mapping

from rich.text import Text

from proctor.output.terminal import console

_HEIGHT = 14  # rows


def plot(title: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    """Print a plot of lines: their values by number."""
    import plotext  # noqa: PLC0415 - only a plot needs it

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.title(title)
    plotext.plot_size(min(console.width, 76), _HEIGHT)
    for label, values in lines.items():
        plotext.plot(list(values), list(values.values()), label=label)
    numbers = list(next(iter(lines.values())))
    plotext.xticks(numbers[:: max(1, len(numbers) // 12)])
    console.print(Text.from_ansi(plotext.build()))
