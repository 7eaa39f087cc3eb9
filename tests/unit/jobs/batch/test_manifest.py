"""Lists of inputs in three formats, read line by line, with the line in each error."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.settings import Codec
from codecfleet.errors import UsageError
from codecfleet.jobs.batch.listed.manifest import ManifestFormat, ManifestRow, override_fields, read_manifest

CSV, JSONL, PLAIN = ManifestFormat.CSV, ManifestFormat.JSONL, ManifestFormat.PLAIN


def rows(text: str, form: ManifestFormat) -> list[ManifestRow]:
    """Return the rows of a text."""
    return list(read_manifest(text.splitlines(keepends=True), form, "list"))


def test_a_plain_list_has_a_name_a_line() -> None:
    """Spaces belong to names; empty lines and comments are left out."""
    found = rows("a.mkv\n\n# no\n b c.mkv\r\n", PLAIN)
    assert [(row.source, row.place) for row in found] == [("a.mkv", "list:1"), (" b c.mkv", "list:4")]


def test_columns_and_keys_are_those_of_a_spec_file() -> None:
    """Options in CSV and JSONL mean the same; an empty cell sets nothing."""
    header = "source,quality,output,encoder_options,audio_tracks,strict"
    csv = f'{header}\na.mkv,20,x/a.mp4,tune=film bf=3,0 2,true\n"b,c.mkv",,,,,\n'
    lines = [
        {
            "source": "a.mkv",
            "quality": 20,
            "output": "x/a.mp4",
            "encoder_options": {"tune": "film", "bf": 3},
            "audio_tracks": [0, 2],
            "strict": True,
        },
        {"source": "b,c.mkv", "quality": None},
    ]
    found, same = rows(csv, CSV), rows("\n".join(map(json.dumps, lines)), JSONL)
    assert [(row.source, row.output) for row in found] == [("a.mkv", "x/a.mp4"), ("b,c.mkv", "")]
    wanted = {
        "quality": 20,
        "encoder_options": (("tune", "film"), ("bf", "3")),
        "audio_tracks": (0, 2),
        "strict": True,
    }
    for each in (found, same):
        assert [override_fields(row.overrides) for row in each] == [wanted, {}]


def test_numbers_of_json_stay_exact() -> None:
    """A decimal number in JSON reaches the parsers as written."""
    (row,) = rows('{"source": "a", "end": 1001.0000000000001, "codec": "h265"}', JSONL)
    fields = override_fields(row.overrides)
    assert str(fields["end_s"]) == "10010000000000001/10000000000000"
    assert Codec(fields["codec"]) is Codec.HEVC


@pytest.mark.parametrize(
    ("text", "form", "place"),
    [
        ("name,quality\na,1\n", CSV, "list:1"),
        ("source,qualty\na,1\n", CSV, "list:1"),
        ("source,source\na,b\n", CSV, "list:1"),
        ("source;quality\na;1\n", CSV, "list:1: the cells of 'source;quality' are not separated by commas"),
        ("source\na\nb,c\n", CSV, "list:3"),
        ('source\n"a\n', CSV, "list:2"),
        ("source,output\n,b\n", CSV, "list:2"),
        ('{"source": "a"}\nnot json\n', JSONL, "list:2"),
        ("[1]\n", JSONL, "list:1"),
        ('{"source": 3}\n', JSONL, "list:1"),
        ('{"source": "a", "bitrat": "4M"}\n', JSONL, "list:1"),
        ('{"quality": 3}\n', JSONL, "list:1"),
    ],
)
def test_an_error_names_its_line(text: str, form: ManifestFormat, place: str) -> None:
    """Every mistake in a list is reported with its file and line."""
    with pytest.raises(UsageError, match=f"^{place}"):
        rows(text, form)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)))
def test_jsonl_holds_any_name(names: list[str]) -> None:
    """Names in JSONL come back unchanged, even with line ends in them."""
    kept = [name for name in names if name.strip()]
    text = "\n".join(json.dumps({"source": name}) for name in kept)
    assert [row.source for row in rows(text, JSONL)] == kept


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a.mkv\r\n", ManifestFormat.PLAIN),
        ("source,quality\r\na.mkv,\r\n", ManifestFormat.CSV),
        ('{"source": "a.mkv"}\r\n', ManifestFormat.JSONL),
    ],
)
def test_a_byte_order_mark_is_not_part_of_a_name(text: str, form: ManifestFormat) -> None:
    """Windows programs write one."""
    lines = f"\ufeff{text}".splitlines(keepends=True)
    assert [row.source for row in read_manifest(lines, form, "list")] == ["a.mkv"]


def test_lists_are_streamed() -> None:
    """The first row comes before the second line is read."""

    def lines() -> Iterator[str]:
        yield "a.mkv\n"
        raise AssertionError("read too far")

    assert next(read_manifest(lines(), PLAIN, "list")).source == "a.mkv"
