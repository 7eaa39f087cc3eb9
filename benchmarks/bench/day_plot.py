"""A day's nodes as a small picture: a stepped line for each group."""

from collections.abc import Sequence
from typing import Final

from .demand_day import Day

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 260, 44, 30, 26
COLOURS: Final = ("#0b6e99", "#c4551a", "#5b8c2a", "#8a4fa3", "#666666")


def plot(day: Day, groups: Sequence[str], title: str, hours: int = 26, step_s: float = 300.0) -> str:
    """Return an SVG of the number of wanted nodes of each group that had nodes."""
    shown = [group for group in groups if any(counts[group] for _, counts in day.counts)]
    most = max((counts[group] for _, counts in day.counts for group in shown), default=1) or 1
    lines = [_axes(hours, most), f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for number, group in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        points = _points(_sampled(day, group, hours, step_s), hours, most)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        lines.append(f'<text x="{WIDTH - 90}" y="{TOP + 16 + 16 * number}" fill="{colour}">{group}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="DejaVu Sans, sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *lines, "</svg>"]) + "\n"


def _sampled(day: Day, group: str, hours: int, step_s: float) -> list[tuple[float, int]]:
    """Return (hours, nodes) pairs; nodes is the maximum within each step, so that no peak is lost."""
    samples, at, before = [], 0, 0
    for step in range(int(hours * 3600 / step_s) + 1):
        found = [before]
        while at < len(day.counts) and day.counts[at][0] <= step * step_s:
            before = day.counts[at][1][group]
            found.append(before)
            at += 1
        samples.append((step * step_s / 3600, max(found)))
    return samples


def _points(samples: Sequence[tuple[float, int]], hours: int, most: int) -> str:
    places, before = [], None
    for hour, nodes in samples:
        if nodes == before:
            continue
        x = _x(hour, hours)
        if before is not None:
            places.append(f"{x:.0f},{_y(before, most):.0f}")
        places.append(f"{x:.0f},{_y(nodes, most):.0f}")
        before = nodes
    return " ".join([*places, f"{_x(hours, hours):.0f},{_y(before or 0, most):.0f}"])


def _x(hour: float, hours: int) -> float:
    return LEFT + (WIDTH - LEFT - 10) * hour / hours


def _y(nodes: float, most: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * nodes / most


def _axes(hours: int, most: int) -> str:
    base = HEIGHT - BOTTOM
    marks = [f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - 10}" y2="{base}" stroke="#333333"/>']
    marks += [
        f'<text x="{_x(hour, hours):.0f}" y="{base + 18}" text-anchor="middle">{hour} h</text>'
        for hour in range(0, hours + 1, 4)
    ]
    for part in (0, most / 2, most):
        y = _y(part, most)
        marks.append(f'<line x1="{LEFT}" y1="{y:.0f}" x2="{WIDTH - 10}" y2="{y:.0f}" stroke="#dddddd"/>')
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{part:.0f}</text>')
    return "\n".join(marks)
