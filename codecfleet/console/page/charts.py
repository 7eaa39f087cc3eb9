"""Draws charts as inline SVG, by pure functions. The classes of elements select colours in the style of the page."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...jobs.batch.figures import TimelineLane

WIDTH: Final = 920
_LEFT: Final = 60
_RIGHT: Final = 16
_TOP: Final = 10
_BOTTOM: Final = 26
_PLOT_HEIGHT: Final = 180
_ROW_HEIGHT: Final = 22
_NAME_WIDTH: Final = 300
_NAME_CHARACTERS: Final = 42
_VALUE_WIDTH: Final = 300
_LANE_HEIGHT: Final = 16
_STEPS: Final = (1, 2, 5, 10)


def ticks(most: float, about: int = 5) -> list[float]:
    """Return approximately ``about`` round numbers from 0 up to ``most``, which must be positive."""
    rough = most / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))
    return [step * number for number in range(int(most / step * (1 + 1e-9)) + 1)]


def area(values: Sequence[float], wall_s: float, clock: Callable[[float], str], unit: str) -> str:
    """Return a chart of values, each for an equal part of ``wall_s``."""
    most = max(values)
    width, height = WIDTH - _LEFT - _RIGHT, _PLOT_HEIGHT
    marks = ticks(most)

    def y(value: float) -> float:
        return _TOP + height * (1 - value / most)

    step = width / len(values)
    points = [f"{_LEFT},{y(0):.1f}"]
    for number, value in enumerate(values):
        points += [f"{_LEFT + number * step:.1f},{y(value):.1f}", f"{_LEFT + (number + 1) * step:.1f},{y(value):.1f}"]
    points.append(f"{_LEFT + width},{y(0):.1f}")
    parts = [_rule(y(mark), f"{mark:g}") for mark in marks]
    parts += [f'<polygon class="area" points="{" ".join(points)}"/>']
    parts += _time_axis(wall_s, _TOP + height, clock)
    return _svg(_TOP + height + _BOTTOM, parts, f"{unit} over time")


def bars(rows: Iterable[tuple[str, Sequence[tuple[float, str]], str]], what: str) -> str:
    """Return horizontal bars. Each row has a name, the bars as (value, class) pairs, and a text after the bars."""
    listed = list(rows)
    most = max((value for _, values, _ in listed for value, _ in values), default=0) or 1
    width = WIDTH - _NAME_WIDTH - _VALUE_WIDTH
    parts = []
    for number, (name, values, text) in enumerate(listed):
        top = number * _ROW_HEIGHT
        thick = (_ROW_HEIGHT - 6) / len(values)
        parts.append(
            f'<text class="name" x="{_NAME_WIDTH - 8}" y="{top + 15}">'
            f"<title>{escape(name)}</title>{escape(shortened(name))}</text>"
        )
        parts += [
            f'<rect class="{kind}" x="{_NAME_WIDTH}" y="{top + 3 + index * thick:.1f}" '
            f'width="{max(1.0, width * value / most):.1f}" height="{thick - 0.5:.1f}"/>'
            for index, (value, kind) in enumerate(values)
        ]
        end = _NAME_WIDTH + width * max(value for value, _ in values) / most
        parts.append(f'<text x="{end + 8:.1f}" y="{top + 15}">{escape(text)}</text>')
    return _svg(len(listed) * _ROW_HEIGHT + 4, parts, what)


def timeline(rows: Sequence["TimelineLane"], wall_s: float, clock: Callable[[float], str]) -> str:
    """Return a row for each lane, with a bar for each segment. Only the first lane of a station has its name."""
    width = WIDTH - _NAME_WIDTH / 2 - _RIGHT
    left = _NAME_WIDTH / 2
    parts, before = [], None
    for number, lane in enumerate(rows):
        top = _TOP + number * _LANE_HEIGHT
        if lane.station != before:
            before = lane.station
            name = lane.station or "not seen"
            parts.append(f'<text class="name" x="{left - 8}" y="{top + 12}">{escape(shortened(name, 20))}</text>')
            parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{top}" y2="{top}"/>')
        parts += [
            f'<rect class="work" x="{left + width * bar.began_s / wall_s:.2f}" y="{top + 2}" '
            f'width="{max(0.8, width * (bar.ended_s - bar.began_s) / wall_s - 0.4):.2f}" height="{_LANE_HEIGHT - 3}" '
            f'fill-opacity="{max(0.1, bar.load):.2f}"><title>{escape(bar.label)}</title></rect>'
            for bar in lane.bars
        ]
    bottom = _TOP + len(rows) * _LANE_HEIGHT
    parts += _time_axis(wall_s, bottom, clock, left)
    return _svg(bottom + _BOTTOM, parts, "segments over time, by worker")


def shortened(name: str, characters: int = _NAME_CHARACTERS) -> str:
    """Return a name, or only the end of a long name, since paths differ at the end."""
    return name if len(name) <= characters else f"…{name[1 - characters :]}"


def _time_axis(wall_s: float, bottom: float, clock: Callable[[float], str], left: float = _LEFT) -> list[str]:
    width = WIDTH - left - _RIGHT
    parts = [f'<line class="axis" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>']
    for at_s in ticks(wall_s, 8):
        x = left + width * at_s / wall_s
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text class="mid" x="{x:.1f}" y="{bottom + 18}">{escape(clock(at_s))}</text>')
    return parts


def _rule(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="name" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(text)}</text>'


def _svg(height: float, parts: Iterable[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" role="img"'
    return "\n".join([f'{head} aria-label="{escape(label)}">', *parts, "</svg>"])
