"""How a series looks: one colour, marker, line and hatch per series name, the same in every figure.

Colours are told apart with any colour vision (Okabe and Ito's palette, Tol's muted one for unknown series); in grey,
markers and lines still do it.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LineStyle = Literal["-"] | tuple[float, tuple[float, ...]]

SOLID: LineStyle = "-"
DASHED: LineStyle = (0.0, (5.0, 2.0))
DOTTED: LineStyle = (0.0, (1.2, 1.4))
DASH_DOT: LineStyle = (0.0, (6.0, 1.5, 1.2, 1.5))
DASH_DOT_DOT: LineStyle = (0.0, (4.0, 1.2, 1.2, 1.2, 1.2, 1.2))

GRID_COLOUR = "#d9d9d9"
TEXT_COLOUR = "#222222"
NOTE_COLOUR = "#555555"


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """How one series is drawn. Markers are such as can be drawn hollow; `hatch` is for bars."""

    colour: str
    marker: str
    line: LineStyle = SOLID
    hatch: str = ""


FIXED: dict[str, SeriesStyle] = {
    "FlowPrefill (operator)": SeriesStyle("#0072B2", "o"),
    "FlowPrefill (tile)": SeriesStyle("#56B4E9", "D", DASH_DOT, "///"),
    "FlowPrefill (half_layer)": SeriesStyle("#004466", "d", DASHED, "..."),
    "FlowPrefill (layer)": SeriesStyle("#004466", "v", DOTTED, "xx"),
    "DistServe": SeriesStyle("#D55E00", "s", DASHED, "\\\\\\"),
    "FlowPrefill (1P1D)": SeriesStyle("#CC79A7", "P", SOLID, "++"),
    "FlowPrefill (steps by deadline)": SeriesStyle("#009E73", "D", DASH_DOT, "//"),
    "DistServe (FCFS, 1P1D)": SeriesStyle("#E69F00", "X", DOTTED, "xx"),
    "EDF (operator)": SeriesStyle("#8A7000", "h", DASH_DOT_DOT, "++"),
    "SRPT (operator)": SeriesStyle("#777777", "8", DASHED, "oo"),
    "Restart (S-EDF)": SeriesStyle("#5B3A29", "*", DOTTED, "**"),
    "vLLM (FCFS)": SeriesStyle("#882255", "^", DASHED, "//"),
    "vLLM (priority)": SeriesStyle("#882255", "X", SOLID, "xx"),
    "vLLM + FlowPrefill (operator)": SeriesStyle("#56B4E9", "o", DASHED),
    "vLLM + FlowPrefill (half_layer)": SeriesStyle("#332288", "d", DASH_DOT),
    "vLLM + FlowPrefill (layer)": SeriesStyle("#332288", "v", DOTTED),
    "vLLM + S-EDF (chunk)": SeriesStyle("#009E73", "s", DASH_DOT),
    "SGLang (FCFS)": SeriesStyle("#44AA99", "v", DOTTED, ".."),
    "SGLang (priority)": SeriesStyle("#44AA99", "P", DASH_DOT, "++"),
    "External server": SeriesStyle("#000000", "p", SOLID, "--"),
}
"""Series by name; a bracket that only repeats the default is dropped first (see `_plain_name`)."""

CHUNKED_COLOURS = {"s_edf": "#009E73", "edf": "#E69F00", "fcfs": "#CC79A7", "srpt": "#777777"}
CHUNKED_MARKERS = {
    "s_edf": ("^", "<", ">", "v", "D"),
    "edf": ("P", "X", "d", "*", "h"),
    "fcfs": ("p", "h", "H", "d", "*"),
    "srpt": ("d", "*", "P", "X", "s"),
}
CHUNKED_LINES = (DASH_DOT, DASHED, DASH_DOT_DOT, DOTTED, SOLID)
CHUNKED_HATCHES = ("..", "--", "||", "oo", "xx")
CHUNK_SIZES = (256, 512, 1024, 2048, 8192)

FREE_COLOURS = ("#882255", "#44AA99", "#999933", "#332288", "#AA4499", "#117733", "#661100", "#6699CC")
FREE_MARKERS = ("*", "h", "8", "P", "X", "d", "p", "H")
FREE_LINES = (SOLID, DASHED, DASH_DOT, DOTTED, DASH_DOT_DOT)
FREE_HATCHES = ("xx", "oo", "++", "**", "//", "\\\\", "--", "||")
FREE_STYLES = len(FREE_COLOURS) * len(FREE_LINES)

SHOWN = {
    "fcfs": "FCFS",
    "edf": "EDF",
    "s_edf": "S-EDF",
    "srpt": "SRPT",
    "slo_aware": "SLO-aware",
    "half_layer": "half layer",
}
_SHOWN = re.compile(rf"\b({'|'.join(SHOWN)})\b")
_CHUNKED = re.compile(r"chunked(?: prefill)? (\d+) \(?(\w+)\)?", re.IGNORECASE)


def styles_of(series: Iterable[str]) -> dict[str, SeriesStyle]:
    """The style of every series, in drawing order.

    A series without a style of its own (a new policy) gets a free one chosen by its name, so that it keeps it from
    figure to figure; where two names choose the same, the later one in the alphabet takes the next free style.
    """
    names = ordered(series)
    known = {name: style for name in names if (style := _known(name)) is not None}
    taken: dict[int, str] = {}
    for name in sorted(set(names) - set(known)):
        wish = zlib.crc32(name.encode()) % FREE_STYLES
        slot = next((s % FREE_STYLES for s in range(wish, wish + FREE_STYLES) if s % FREE_STYLES not in taken), wish)
        taken[slot] = name
        known[name] = _free(slot)
    return {name: known[name] for name in names}


def as_written(name: str) -> str:
    """A name of a table as a figure writes it: settings by the names a reader knows, "(s_edf)" as "(S-EDF)"."""
    return _SHOWN.sub(lambda found: SHOWN[found[0]], name)


def ordered(series: Iterable[str]) -> list[str]:
    """Distinct series in the order of every legend: FlowPrefill, DistServe, chunked by order and size, the others."""
    return sorted(set(series), key=_place)


def _place(name: str) -> tuple[int, int, str]:
    chunked = _CHUNKED.fullmatch(name)
    if chunked:
        policies = list(CHUNKED_COLOURS)
        policy = chunked[2].lower()
        return (100 + (policies.index(policy) if policy in policies else len(policies)), int(chunked[1]), name)
    plain = _plain_name(name)
    if plain in FIXED:
        return (list(FIXED).index(plain), 0, name)
    return (200, 0, name)


def _plain_name(name: str) -> str:
    return "DistServe" if name.startswith("DistServe") and name not in FIXED else name


def _known(name: str) -> SeriesStyle | None:
    chunked = _CHUNKED.fullmatch(name)
    if not chunked:
        return FIXED.get(_plain_name(name))
    size, policy = int(chunked[1]), chunked[2].lower()
    if size not in CHUNK_SIZES or policy not in CHUNKED_COLOURS:
        return None
    place = CHUNK_SIZES.index(size)
    return SeriesStyle(
        CHUNKED_COLOURS[policy], CHUNKED_MARKERS[policy][place], CHUNKED_LINES[place], CHUNKED_HATCHES[place]
    )


def _free(slot: int) -> SeriesStyle:
    colour, line = slot % len(FREE_COLOURS), slot // len(FREE_COLOURS)
    shifted = (colour + line) % len(FREE_MARKERS)
    return SeriesStyle(FREE_COLOURS[colour], FREE_MARKERS[shifted], FREE_LINES[line], FREE_HATCHES[shifted])
