"""The page that ``codecfleet batch --report`` writes: one file without scripts or external resources."""

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

from ...cluster.grouping import counted
from ..batch_text import failure_text
from ..text import bytes_text, clock_text
from .charts import area, bars, shortened, timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...jobs.batch.figures import Figures

_STYLE: Final = """
:root { --ink: #1d2733; --soft: #66727f; --line: #dfe4e8; --paper: #fff; --card: #f5f7f9; --main: #2f6db5;
  --after: #59a14f; --before: #b8c4d0; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #97a3af; --line: #36414c; --paper: #171c21;
  --card: #20272e; --main: #6ea8e6; --after: #7cc172; --before: #55626f; --bad: #e57368; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 24px 48px; max-width: 968px; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 36px 0 8px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 20px 0 0; }
.card { background: var(--card); border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 22px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
.bad b { color: var(--bad); }
svg { display: block; max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .name { text-anchor: end; fill: var(--soft); } svg .mid { text-anchor: middle;
  fill: var(--soft); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .area { fill: var(--main); fill-opacity: .35;
  stroke: var(--main); stroke-width: 1.5; }
.work, .use { fill: var(--main); } .fault { fill: var(--bad); }
.was { fill: var(--before); } .is { fill: var(--after); }
table { border-collapse: collapse; width: 100%; font-size: 13px; table-layout: fixed; }
td, th { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 500; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 4px 0 12px; }
"""


def batch_page(figures: "Figures") -> str:
    """Return the page of a batch's last run."""
    title = f"Batch into {figures.root}"
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>\n<p>{escape(_when(figures))}</p>",
        *_cards(figures),
        *_pace(figures),
        *_failures(figures),
        *_engines(figures),
        *_timeline(figures),
        *_sizes(figures),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _when(figures: "Figures") -> str:
    began = datetime.fromtimestamp(figures.began_s, tz=UTC)
    return f"Run {figures.run}, begun {began:%Y-%m-%d %H:%M:%S} UTC, took {clock_text(figures.wall_s)}"


def _cards(figures: "Figures") -> "Iterator[str]":
    done, failed = figures.done, figures.failed
    fps = figures.frames / figures.wall_s if figures.wall_s else 0.0
    earlier = f"done, {figures.skipped} by earlier runs" if figures.skipped else "done"
    cards = [
        (f"{done} of {figures.files}", earlier, ""),
        (str(failed), "failed", " bad" if failed else ""),
        (str(figures.files - done - failed), "not done yet", ""),
        (f"{fps:.1f}", "frames a second", ""),
    ]
    if figures.source_bytes:
        saved = figures.source_bytes - figures.output_bytes
        percent = f"{100 * abs(saved) / figures.source_bytes:.0f} %"
        cards.append((bytes_text(abs(saved)), f"saved, {percent}" if saved >= 0 else f"more, {percent}", ""))
    yield '<div class="cards">'
    for value, label, kind in cards:
        yield f'<div class="card{kind}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
    yield "</div>"


def _pace(figures: "Figures") -> "Iterator[str]":
    if any(figures.paces):
        yield "<h2>Frames a second over time</h2>"
        yield area(figures.paces, figures.wall_s, clock_text, "frames a second")


def _failures(figures: "Figures") -> "Iterator[str]":
    if not figures.failures:
        return
    yield "<h2>Failures by cause</h2>"
    yield bars(((error, [(files, "fault")], str(files)) for error, files in figures.failures), "failed files")
    rows = [(each.error, failure_text(each.source, each.message)) for each in figures.failed_files]
    yield from _table(("error", "file"), rows, widths=(22, 78))


def _engines(figures: "Figures") -> "Iterator[str]":
    if not figures.engines:
        return
    yield "<h2>Engines</h2>\n<p>Frames handled by each decoder and encoder in this run.</p>"
    yield bars(
        (
            (
                f"{each.engine} {each.does}",
                [(each.frames, "use")],
                f"{each.frames} in {counted(each.segments, 'segment')}, {clock_text(each.busy_s)} busy",
            )
            for each in figures.engines
        ),
        "frames by engine",
    )


def _timeline(figures: "Figures") -> "Iterator[str]":
    if not figures.lanes or figures.wall_s <= 0:
        return
    yield "<h2>Segments by worker</h2>\n<p>Each bar is a segment; a worker has a row for each concurrent segment."
    if any(not lane.station for lane in figures.lanes):
        yield "Segments that were too short to be seen on a worker are listed as <i>not seen</i>."
    yield "</p>"
    yield timeline(figures.lanes, figures.wall_s, clock_text)


def _sizes(figures: "Figures") -> "Iterator[str]":
    if not figures.largest:
        return
    before, after = bytes_text(figures.source_bytes), bytes_text(figures.output_bytes)
    yield "<h2>Sizes</h2>"
    yield f"<p>All finished files: {before} before, {after} after. The largest inputs:"
    yield '<span class="key" style="background: var(--before)"></span>before'
    yield '<span class="key" style="background: var(--after)"></span>after</p>'
    yield bars(
        (
            (
                each.source,
                [(each.source_bytes, "was"), (each.output_bytes, "is")],
                f"{bytes_text(each.source_bytes)} → {bytes_text(each.output_bytes)}",
            )
            for each in figures.largest
        ),
        "sizes before and after",
    )


def _table(head: tuple[str, ...], rows: "Iterable[tuple[str, ...]]", widths: tuple[int, ...]) -> "Iterator[str]":
    yield "<table><tr>"
    yield "".join(f'<th style="width: {width}%">{escape(name)}</th>' for name, width in zip(head, widths, strict=True))
    yield "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(shortened(cell, 400))}</td>" for cell in row) + "</tr>"
    yield "</table>"
