"""Draw docs/images/autoscaling.svg: the nodes of a cluster during a batch, from the log of a real run.

UPDATE_DOCS=1 .venv/bin/pytest tests/integration/test_autoscaling.py && .venv/bin/python docs/images/autoscaling.py
"""

import json
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
LOG = HERE.parents[1] / "benchmarks" / "results" / "autoscaling.json"
WIDTH, HEIGHT = 920, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 60
STEP_S = 10
LABEL = "nodes over time"
STYLE = """
text { font: 13px sans-serif; fill: #57606a; } .rule { stroke: #d0d7de; } .axis { stroke: #57606a; }
.wanted { fill: none; stroke: #bf8700; stroke-width: 2; stroke-dasharray: 6 4; }
.there { fill: #0969da; fill-opacity: 0.25; stroke: #0969da; stroke-width: 2; }
.file { fill: #1a7f37; } .page { fill: #ffffff; }
"""


def drawing(log: dict[str, list[list[float]]]) -> str:
    """Return the picture of a log: ``nodes`` and ``wanted`` as [seconds, count], ``files`` as [seconds]."""
    last_s = max(at_s for rows in log.values() for at_s, *_ in rows) + 3
    most = max(count for name in ("nodes", "wanted") for _, count in log[name])
    across, up = (WIDTH - LEFT - RIGHT) / last_s, (HEIGHT - TOP - BOTTOM) / most

    def place(at_s: float, count: float) -> str:
        return f"{LEFT + at_s * across:.1f},{HEIGHT - BOTTOM - count * up:.1f}"

    def steps(rows: list[list[float]]) -> Iterator[str]:
        before = 0.0
        for at_s, count in [*rows, [last_s, rows[-1][1]]]:
            yield place(at_s, before)
            yield place(at_s, count)
            before = count

    bottom = HEIGHT - BOTTOM
    parts = [f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>']
    for count in range(int(most) + 1):
        y = bottom - count * up
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{count}</text>')
    for at_s in range(0, int(last_s) + 1, STEP_S):
        mark_x = LEFT + at_s * across
        parts.append(f'<line class="axis" x1="{mark_x:.1f}" x2="{mark_x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{mark_x:.1f}" y="{bottom + 20}" text-anchor="middle">{at_s} s</text>')
    there = " ".join((place(0, 0), *steps(log["nodes"]), place(last_s, 0)))
    parts.append(f'<polygon class="there" points="{there}"/>')
    parts.append(f'<polyline class="wanted" points="{" ".join(steps(log["wanted"]))}"/>')
    for (done_s,) in log["files"]:
        parts.append(f'<circle class="file" cx="{LEFT + done_s * across:.1f}" cy="{bottom - 7}" r="4"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{LABEL}">'
    return "".join((head, f"<style>{STYLE}</style>", *parts, *_legend(), "</svg>\n"))


def _legend() -> Iterator[str]:
    y = HEIGHT - 12
    yield f'<text x="{LEFT - 40}" y="22">nodes beside the head</text>'
    yield f'<rect class="there" x="{LEFT}" y="{y - 11}" width="24" height="12"/>'
    yield f'<text x="{LEFT + 32}" y="{y}">running</text>'
    yield f'<line class="wanted" x1="{LEFT + 110}" x2="{LEFT + 134}" y1="{y - 4}" y2="{y - 4}"/>'
    yield f'<text x="{LEFT + 142}" y="{y}">requested</text>'
    yield f'<circle class="file" cx="{LEFT + 252}" cy="{y - 4}" r="4"/>'
    yield f'<text x="{LEFT + 264}" y="{y}">a file is done</text>'


if __name__ == "__main__":
    (HERE / "autoscaling.svg").write_text(drawing(json.loads(LOG.read_text())))
