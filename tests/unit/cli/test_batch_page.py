"""The page of a batch: one file that loads nothing, whatever names it shows."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.console.page import batch_page
from codecfleet.console.page.charts import shortened, ticks
from codecfleet.jobs.batch.figures import Bar, EngineShare, FailedFile, Figures, SizedFile, TimelineLane

FIGURES = Figures(
    root="/out",
    run=2,
    began_s=0.0,
    wall_s=90.0,
    files=6,
    done=3,
    skipped=1,
    failed=1,
    frames=900,
    source_bytes=4_000_000,
    output_bytes=1_000_000,
    paces=(0.0, 20.0, 10.0),
    failures=(("InputUnreadable", 2),),
    failed_files=(
        FailedFile("InputUnreadable", "/in/<b>.mkv", "it is & cannot be read"),
        FailedFile("InputUnreadable", "/in/c.mkv", "/in/c.mkv is empty"),
    ),
    engines=(EngineShare("nvdec", "decodes", 3, 900, 61.0),),
    lanes=(
        TimelineLane("node/gpu#0", (Bar(0, 40, 1.0, "/in/a.mkv, segment 0"),)),
        TimelineLane("", (Bar(50, 60, 0.5, "b"),)),
    ),
    largest=(SizedFile("/in/a.mkv", 3_000_000, 700_000),),
)
EMPTY = replace(
    FIGURES,
    wall_s=0.0,
    files=0,
    done=0,
    skipped=0,
    failed=0,
    frames=0,
    source_bytes=0,
    output_bytes=0,
    paces=(),
    failures=(),
    failed_files=(),
    engines=(),
    lanes=(),
    largest=(),
)


class Page(HTMLParser):
    """Takes a page apart: the text, the tags, and whether every opened tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.handle_data = self.words.append  # type: ignore[method-assign]
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag; ``attrs`` must not load anything."""
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onclick"}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        del attrs
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the tag opened last is closed first."""
        assert self.open.pop() == tag


def test_the_page_says_what_happened() -> None:
    """The page has counts, every failed file with its reason, engines, workers and sizes."""
    text = " ".join(" ".join(Page(batch_page(FIGURES)).words).split())
    for words in (
        "Batch into /out",
        "Run 2, begun 1970-01-01 00:00:00 UTC, took 1:30",
        "3 of 6",
        "done, 1 by earlier runs",
        "saved, 75 %",
        "/in/<b>.mkv: it is & cannot be read",
        "/in/c.mkv is empty",
        "900 in 3 segments, 1:01 busy",
        "node/gpu#0",
        "not seen",
        "3.0 MB → 700.0 kB",
    ):
        assert words in text


@pytest.mark.parametrize("figures", [FIGURES, EMPTY])
def test_the_page_loads_nothing_and_runs_nothing(figures: Figures) -> None:
    """The page has no script, picture or external style, and is well formed."""
    html = batch_page(figures)
    page = Page(html)
    assert page.open == []
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert not re.search(r"url\(|@import|https?://", html)


@given(st.text(max_size=80))
def test_any_name_is_text_and_nothing_else(name: str) -> None:
    """Any name is shown as text."""
    figures = replace(
        FIGURES,
        root=name,
        failures=((name, 1),),
        failed_files=(FailedFile(name, name, name),),
        engines=(EngineShare(name, "decodes", 1, 1, 1.0),),
        lanes=(TimelineLane(name, (Bar(0, 1, 1.0, name),)),),
        largest=(SizedFile(name, 1, 1),),
    )
    assert Page(batch_page(figures)).tags - {"i"} == Page(batch_page(FIGURES)).tags - {"i"}  # of "not seen"


@given(st.floats(1e-6, 1e12), st.integers(2, 12))
def test_ticks_are_round_and_few(most: float, about: int) -> None:
    """Ticks go evenly from 0 to the largest value, and are not many more than requested."""
    found = ticks(most, about)
    assert found[0] == 0
    assert found[-1] <= most * (1 + 1e-6)
    assert 1 <= len(found) <= about + 1


@given(st.text(max_size=100), st.integers(2, 50))
def test_a_long_name_keeps_its_end(name: str, characters: int) -> None:
    """A shortened name keeps its end, which differs between paths."""
    assert len(shortened(name, characters)) <= characters
    assert name.endswith(shortened(name, characters).removeprefix("…"))
