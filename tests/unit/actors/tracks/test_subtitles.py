import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.subtitles import plain_cue, read_cue, write_cue


@pytest.mark.parametrize(
    ("codec", "payload", "text"),
    [
        ("mov_text", b"\x00\x05Hello\x00\x00\x00\x0cstyl", "Hello"),
        ("mov_text", b"\x00\x06\xfe\xff\x00H\x00i", "Hi"),
        ("mov_text", b"\x00\x00", ""),
        ("subrip", b"<font color='red'><I>A</I></font>\r\nB\r\n", "<i>A</i>\nB"),
        ("webvtt", b"<v Ann><c.loud>Fish &amp; <b>chips</b></c>", "Fish & <b>chips</b>"),
        ("ass", b"0,0,Default,,0,0,0,,{\\i1\\fs20}One{\\i0}, two\\Nthree\\hfour", "<i>One</i>, two\nthree four"),
        ("ass", b"0,0,Default,,0,0,0,,{\\p1}m 0 0 l 10 10{\\p0}", ""),
        ("ass", b"0,0,Default,,0,0,0,,{\\p1}m 0 0{\\p0}Word", "Word"),
        ("ass", b"0,0,Default,,0,0,0,,{\\bord2\\b1}Bold", "<b>Bold"),
        ("text", b"plain\0", "plain"),
    ],
)
def test_words_and_lines_survive(codec: str, payload: bytes, text: str) -> None:
    """Each codec's words, line breaks and emphasis are read, but not its styles."""
    assert write_cue("subrip", read_cue(codec, payload)).decode() == text


@pytest.mark.parametrize(
    ("codec", "written", "words"),
    [
        ("subrip", "{\\an8}Top", "Top"),
        ("subrip", "{\\pos(10,20)\\c&H0000FF&}A{\\i1}B{\\i0}", "AB"),
        ("subrip", "{\\t(0,500,\\clip(0,0,10,10))\\fnArial Black}C", "C"),
        ("subrip", "a<br/>b", "a\nb"),
        ("subrip", "<font face=\"A B\" size=12>red</font> <b style='x'>b</b>", "red b"),
        ("subrip", "if a < 5 > b then", "if a < 5 > b then"),
        ("subrip", "I <3 you, a <b 5>", "I <3 you, a <b 5>"),
        ("subrip", "{note} kept & -- <MUSIC> --", "{note} kept & -- <MUSIC> --"),
        ("subrip", "{\\o/} {\\never} &amp;", "{\\o/} {\\never} &amp;"),
        ("webvtt", "<00:00:01.000>One <i.a.b>two</i> <rt>x</rt><lang en>y</lang>", "One two xy"),
        ("webvtt", "a &lt; 5 &amp;amp; {\\an8} <MUSIC> < 5", "a < 5 &amp; {\\an8} <MUSIC> < 5"),
        ("webvtt", "&lt;i&gt;literal&lt;/i&gt;", "<i>literal</i>"),
        ("mov_text", "\0\x13<i>&amp;</i>{\\an8}", "<i>&amp;</i>{\\an8}"),
        ("ass", "0,0,D,,0,0,0,,{comment}<i>\\{\\} {open <b>", "<i>{} {open <b>"),
        ("text", "<i>{\\an8}&lt;", "<i>{\\an8}&lt;"),
    ],
)
@pytest.mark.parametrize("target", ["mov_text", "subrip", "webvtt"])
def test_what_each_format_names_is_a_tag_and_all_else_is_words(
    codec: str, written: str, words: str, target: str
) -> None:
    """Tags of the formats' table are never shown as words, and words never count as tags."""
    payload = write_cue(target, read_cue(codec, written.encode()))

    assert plain_cue(read_cue(target, payload)) == words


def test_each_target_is_written_in_its_own_way() -> None:
    """mov_text has a length and no emphasis; SubRip breaks up brackets that are no tags, WebVTT escapes them."""
    text = read_cue("subrip", b"<i>A</i> & B <3")
    assert write_cue("mov_text", text) == b"\x00\x08A & B <3"
    assert write_cue("subrip", text) == b"<i>A</i> & B <3"
    assert write_cue("webvtt", text) == b"<i>A</i> &amp; B &lt;3"
    assert write_cue("subrip", read_cue("text", b"<i> {\\an8}")).decode() == "<\u2060i> {\u2060\\an8}"


def test_a_cue_of_more_bytes_than_mov_text_counts_ends_with_a_whole_letter() -> None:
    """A mov_text packet holds at most 65,535 bytes."""
    payload = write_cue("mov_text", "\u20ac" * 30_000)
    assert read_cue("mov_text", payload) == "\u20ac" * (65_535 // 3)


LETTER = st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"], exclude_characters="\u2060")
MARKUP = st.sampled_from(
    [
        *("<", ">", "&", "{", "}", "\\", "/", "<i>", "</b>", "<font", 'color="a"', "=", "{\\an8}", "{\\", "\\N", "\\h"),
        *("&lt;", "&amp;", "&#39;", "-->", "<c.x>", "<v ", "<00:00:01.000>", "5", "b", " ", "{\\pos(1,2)}", "<br>"),
        *("\\p1", "(", ")"),
    ]
)
LINE = st.lists(MARKUP | LETTER, min_size=1, max_size=12).map("".join).map(str.strip).filter(bool)


@given(lines=st.lists(LINE, min_size=1, max_size=4))
@pytest.mark.parametrize("source", ["mov_text", "text", "webvtt", "ass", "subrip"])
@pytest.mark.parametrize("target", ["mov_text", "subrip", "webvtt"])
def test_text_comes_back_as_it_was_written(source: str, target: str, lines: list[str]) -> None:
    """Words that look like markup pass every conversion unchanged, in any script."""
    text = "\n".join(lines)
    written = {"text": str.encode, "ass": _ass_event}.get(source, partial(write_cue, source))(text)

    assert plain_cue(read_cue(target, write_cue(target, read_cue(source, written)))).replace("\u2060", "") == text


def _ass_event(text: str) -> bytes:
    """Return an event that shows this text; an invisible letter follows each backslash that would begin an escape."""
    parted = re.sub(r"\\(?=[Nnh{}]|$)", "\\\\\u2060", text, flags=re.MULTILINE)
    return b"0,0,Default,,0,0,0,," + re.sub("[{}]", r"\\\g<0>", parted).replace("\n", "\\N").encode()


@given(parts=st.lists(st.tuples(st.sampled_from(["", "i", "b", "u"]), LETTER.filter(str.isalnum)), min_size=1))
@pytest.mark.parametrize("target", ["subrip", "webvtt"])
def test_emphasis_survives(target: str, parts: list[tuple[str, str]]) -> None:
    """Italic, bold and underline survive in the formats that have them."""
    subrip = "".join(f"<{tag}>{letter}</{tag}>" if tag else letter for tag, letter in parts)

    text = read_cue("subrip", subrip.encode())
    assert read_cue(target, write_cue(target, text)) == text
    assert write_cue("subrip", text).decode() == subrip


@pytest.mark.parametrize("codec", ["subrip", "webvtt", "ass"])
@pytest.mark.parametrize("piece", ["<b ", "{\\t()", "{\\fn ", "<b a=b ", "<v ", "{", "<", "\\t(()", "<i.a"])
def test_hostile_text_is_read_in_time_that_grows_with_its_length(codec: str, piece: str) -> None:
    """No payload makes a reader try its tags again and again, which would take longer than any test may."""
    assert read_cue(codec, (piece * 20_000).encode()) or codec == "ass"


@given(payload=st.binary(max_size=60), codec=st.sampled_from(["mov_text", "subrip", "webvtt", "ass", "text"]))
def test_no_payload_breaks_a_reader(payload: bytes, codec: str) -> None:
    """Damaged subtitles may give strange text, but never an error."""
    assert isinstance(read_cue(codec, payload), str)
