import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.subtitles import TX3G_DESCRIPTION, read_cue, write_cue


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
        ("ass", b"0,0,Default,,0,0,0,,{\\bord2\\b1}Bold", "<b>Bold"),
        ("text", b"plain\0", "plain"),
    ],
)
def test_words_and_lines_survive(codec: str, payload: bytes, text: str) -> None:
    """Each codec's words, line breaks and emphasis are read; its styles are not."""
    assert read_cue(codec, payload) == text


def test_each_target_is_written_in_its_own_way() -> None:
    """mov_text is counted and plain, SubRip keeps emphasis, WebVTT also escapes."""
    assert write_cue("mov_text", "<i>A</i> & B") == b"\x00\x05A & B"
    assert write_cue("subrip", "<i>A</i> & B") == b"<i>A</i> & B"
    assert write_cue("webvtt", "<i>A</i> & B <3") == b"<i>A</i> &amp; B &lt;3"


LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="<>&\\{}\0"), min_size=1)


@given(lines=st.lists(LINE.map(str.strip).filter(bool), min_size=1, max_size=4))
@pytest.mark.parametrize("codec", ["mov_text", "subrip", "webvtt"])
def test_text_comes_back_as_it_was_written(codec: str, lines: list[str]) -> None:
    """Writing a cue and reading it again gives the same text, in any script."""
    text = "\n".join(lines)

    assert read_cue(codec, write_cue(codec, text)) == text


@given(payload=st.binary(max_size=60), codec=st.sampled_from(["mov_text", "subrip", "webvtt", "ass", "text"]))
def test_no_payload_breaks_a_reader(payload: bytes, codec: str) -> None:
    """Damaged subtitles become odd text, never an error."""
    assert isinstance(read_cue(codec, payload), str)


def test_the_sample_description_names_a_font() -> None:
    """3GPP TS 26.245 5.16: 30 bytes of defaults, then the font table."""
    assert TX3G_DESCRIPTION[34:38] == b"ftab"
