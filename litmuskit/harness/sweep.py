"""How false flags depend on the settings, and what one of them looks like."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litmuskit.canonical import canonicalize
from litmuskit.display import Table, Tabular
from litmuskit.harness.reference import list_pairs
from litmuskit.harness.simulation import run_log
from litmuskit.rates.intervals import wilson_limits
from litmuskit.records import Episode, ToolCall

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Surface", "sweep_settings", "tabulate_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface(Tabular):
    """The share of flags that are false, over two families of settings named by ``axes``.

    ``cells`` maps a pair of settings to episodes, flagged, and flagged though the agent did nothing wrong.
    """

    cells: Mapping[tuple[str, str], tuple[int, int, int]]
    axes: tuple[str, str]
    caption: str
    level: float = 0.95

    def __repr__(self) -> str:
        return f"Surface({self.caption!r}, {len(self.cells)} settings)"

    def to_table(self, *, within: tuple[float, float] | None = None) -> Table:
        """Every number of the figure; with ``within``, whether each interval touches that range of shares."""
        rows = []
        for names, (episodes, flagged, false) in self.cells.items():
            lower, upper = (float(limit) for limit in wilson_limits(false, flagged, self.level))
            touches = () if within is None else (flagged > 0 and lower <= within[1] and upper >= within[0],)
            rows.append((*names, episodes, flagged, false, false / flagged if flagged else None, lower, upper, *touches))
        said = () if within is None else (f"touches {within[0]:.0%}-{within[1]:.0%}",)
        columns = (*self.axes, "episodes", "flagged", "falsely", "share", "lower", "upper", *said)
        note = f"share = falsely / flagged, Wilson {self.level:.0%}; truth by construction"
        return Table(columns=columns, rows=tuple(rows), caption=self.caption, note=note)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The shares as a heat map with its numbers."""
        from litmuskit.draw import draw_heat

        rows, columns = (list(dict.fromkeys(names[side] for names in self.cells)) for side in (0, 1))
        shares = {names: false / flagged if flagged else float("nan") for names, (_, flagged, false) in self.cells.items()}
        matrix = [[shares[row, column] for column in columns] for row in rows]
        flags = [flagged for _, flagged, _ in self.cells.values()]
        unit = f"false share of flags (n = {min(flags):,} to {max(flags):,} flags a cell)"
        return draw_heat(matrix, rows, columns, ax=ax, ylabel=self.axes[0], xlabel=self.axes[1], unit=unit, title=self.caption)


def sweep_settings(
    rows: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Mapping[str, Any]],
    *,
    axes: tuple[str, str] = ("rows", "columns"),
    caption: str = "",
    **common: Any,
) -> Surface:
    """Simulate every combination of two families of settings, on the same instances and random streams.

    ``rows`` and ``columns`` map names to keywords of `simulate_episodes`, ``common`` holds those of every cell; those of the
    column win. ``axes`` and ``caption`` say what the rows and the columns are, and what the whole is.

    Examples
    --------
    >>> faults = {f"rate {rate}": {"faults": {"replay": rate}} for rate in (0.0, 1.0)}
    >>> keys = {key: {"match_key": key} for key in ("arguments", "arguments+observation")}
    >>> sweep_settings(faults, keys, episodes=10, instances=2, agents={"repair": 1.0}).cells["rate 1.0", "arguments"]
    (10, 10, 10)
    """
    cells = {}
    for row, first in rows.items():
        for column, second in columns.items():
            truth = [truth for _, truth in run_log(**{**common, **first, **second})]
            flagged = [each for each in truth if each.flagged]
            cells[row, column] = len(truth), len(flagged), sum(not each.violated for each in flagged)
    return Surface(cells=cells, axes=axes, caption=caption)


def tabulate_pairs(episode: Episode, reference: Iterable[Episode] = ()) -> Table:
    """Call by call: what the agent proposed, what the history shows beside which result, and who has seen such a pair.

    The last column says whether an episode of ``reference`` on the same instance shows that call with that result.
    """
    like = [other.transcript for other in reference if other.instance == episode.instance]
    known = {(_word(call), shown) for other in like for _, _, call, shown in list_pairs(other.expand(other.final) or ())}
    flag, rows = episode.flag, []
    for turn, position, call, shown in list_pairs(episode.transcript.expand(episode.transcript.final) or ()):
        proposed = episode.transcript.calls[turn - 1].proposed
        asked = _word(proposed.tool_calls[position]) if proposed is not None else None
        mark = flag.reason if flag is not None and (flag.turn, flag.position) == (turn, position) else None
        size = f"{len(shown.encode('utf-8', 'surrogatepass')):,} bytes: {shown[:32]}"
        history = "as proposed" if asked == _word(call) else _word(call)
        rows.append((turn, asked, history, size, (_word(call), shown) in known, mark))
    columns = ("turn", "the agent proposed", "the history shows", "beside the result", "pair calibrated", "grader")
    return Table(columns=columns, rows=tuple(rows), caption=f"{episode.record}: proposed, shown and returned")


def _word(call: ToolCall) -> str:
    return f"{call.name} {canonicalize(call.arguments).decode()}"
