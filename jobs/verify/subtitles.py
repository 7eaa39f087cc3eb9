"""What is said at a time: every subtitle's cue, in whatever form the container keeps it; chapters; the timecode."""

import html
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from av.container import InputContainer

from ...actors.decode.describe import nominal_frame_rate
from ...actors.media.opening import open_source
from .reference.timecode import moved_timecode
from .streams import Alignment, only, subtitle_tracks, video_tracks
from .verdict import Check, check, not_applicable

TIME_S = Fraction(1, 500)
"""Two roundings to a millisecond, one for each file."""
CHAPTER_S = Fraction(1, 500)
"""The same."""

_TEXT = frozenset({"mov_text", "subrip", "srt", "text", "ass", "ssa", "webvtt"})
_ASS_FIELDS = 8
_ASS_BLOCK = re.compile(r"(?<!\\)\{([^}]*)\}")
_ASS_ESCAPES = {"\\N": "\n", "\\n": "\n", "\\h": " ", "\\{": "{", "\\}": "}"}
_ASS_NAMES = (
    r"an?|b|be|blur|[ibus]|fn[^\\{}]*|fs|fsp|fsc[xy]|fr[xyz]?|fa[xy]|fe|[xy]?bord|[xy]?shad|[1-4]?[ac]|alpha"
    r"|k[fo]?|q|r|p|pbo|pos|move|org|fade?|t|i?clip"
)
_ASS_TAG = rf"\\(?:{_ASS_NAMES})(?:\([^{{}}<>]*\)|&H[0-9A-F]+&?|-?[\d.]*)\s*"
_VALUE = r"""(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"']+)"""
_SUBRIP_TAGS = re.compile(rf"</?(?:[bius]|font)(?:\s+[\w-]+\s*=\s*{_VALUE})*\s*>|\{{(?:{_ASS_TAG})+\}}", re.IGNORECASE)
_LINE_TAG = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WEBVTT_TAGS = re.compile(
    r"</?(?:[cbiu]|ruby|rt)(?:\.[^\s<>&.]+)*>|<(?:v|lang)(?:\.[^\s<>&.]+)*(?:\s[^<>]*)?>|</(?:v|lang)>|<[\d:]+\.\d{3}>"
)
_JOINER = "\u2060"
"""WORD JOINER, which is never shown: writers put it into words that would be a tag."""


@dataclass(frozen=True, slots=True)
class _Cue:
    time_s: Fraction
    content: str | int
    end_s: Fraction | None = None
    """None where the container does not say when it ends."""


def check_subtitles(source: str, output: str, alignment: Alignment) -> list[Check]:
    """Check that every subtitle track is there, with every cue.

    Raises:
        InputError: one of the files cannot be read.
    """
    with open_source(source) as container:
        # A cue that is on before anything is seen or heard begins with the output's clock.
        begin_s = min(Fraction(0), -alignment.output_zero_s)
        wanted = {
            index: [replace(cue, time_s=max(cue.time_s, begin_s)) for cue in cues]
            for index, cues in _read(container, alignment.source_zero_s).items()
        }
    if not wanted:
        return []
    if not alignment.output_holds_tracks:
        return [not_applicable("tracks.subtitles", "the container holds one video track")]
    with open_source(output) as container:
        found = _read(container, alignment.output_zero_s)
    checks = [check("tracks.subtitles", len(wanted), len(found))]
    kept = [(number, cues) for number, (index, cues) in enumerate(wanted.items()) if index not in alignment.dropped]
    for (number, left), right in zip(kept, found.values(), strict=False):
        checks.append(_check_cues(f"subtitles.{number}", left, right, trimmed=alignment.trimmed))
    return checks


def _check_cues(name: str, left: list[_Cue], right: list[_Cue], *, trimmed: bool) -> Check:
    if trimmed:
        return not_applicable(name, "a part was asked for")
    pairs = enumerate(zip(left, right, strict=False))
    wrong = next((n for n, (a, b) in pairs if not _is_same(a, b)), None)
    differs = "" if wrong is None else f", cue {wrong} differs: {left[wrong]} became {right[wrong]}"
    found = f"{len(right)} cues{differs}"
    return check(name, f"{len(left)} cues", found, passed=wrong is None and len(left) == len(right))


def _is_same(before: _Cue, after: _Cue) -> bool:
    near = abs(before.time_s - after.time_s) <= TIME_S
    ends = before.end_s is None or after.end_s is None or abs(before.end_s - after.end_s) <= TIME_S
    return before.content == after.content and near and ends


def _read(container: InputContainer, zero_s: Fraction) -> dict[int, list[_Cue]]:
    streams = subtitle_tracks(container)
    cues: dict[int, list[_Cue]] = {stream.index: [] for stream in streams}
    for packet in only(container, *streams):
        codec, payload = packet.stream.codec_context.codec.canonical_name, bytes(packet)
        content = plain_text(codec, payload) if codec in _TEXT else zlib.crc32(payload)
        if packet.pts is not None and content not in ("", None):
            base = Fraction(packet.time_base or 1)
            time_s = packet.pts * base - zero_s
            end_s = time_s + packet.duration * base if packet.duration and isinstance(content, str) else None
            cues[packet.stream.index].append(_Cue(time_s, content, end_s))
    return cues


def plain_text(codec: str, payload: bytes) -> str:
    """Return a cue's words, without its format's own markup: one format's cue can be held against another's."""
    if codec == "mov_text":
        # A 16-bit length, the text, then boxes of style (3GPP TS 26.245, 5.17).
        payload = payload[2 : 2 + int.from_bytes(payload[:2], "big")]
    encoding = "utf-16" if codec == "mov_text" and payload[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8"
    text = _WORDS.get(codec, _plain)(payload.decode(encoding, "replace")).replace("\r", "").replace(_JOINER, "")
    return "\n".join(line.strip() for line in text.strip("\0").splitlines() if line.strip())


def _plain(text: str) -> str:
    return text


def _ass_words(text: str) -> str:
    """Return the words of an ASS event: neither what is in braces nor a drawing's coordinates are read."""
    found, drawing = [], False
    for place, part in enumerate(_ASS_BLOCK.split(text.split(",", _ASS_FIELDS)[-1])):
        if place % 2:
            levels = re.findall(r"\\p(\d+)", part)
            drawing = bool(int(levels[-1])) if levels else drawing
        elif not drawing:
            found.append(part)
    return re.sub(r"\\[Nnh{}]", lambda escape: _ASS_ESCAPES[escape[0]], "".join(found))


def _webvtt_words(text: str) -> str:
    return html.unescape(_WEBVTT_TAGS.sub("", text))


def _subrip_words(text: str) -> str:
    """Return the words of a SubRip event: only its own tags, and those of ASS, are none."""
    return _SUBRIP_TAGS.sub("", _LINE_TAG.sub("\n", text))


_WORDS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("ass", "ssa"), _ass_words),
    **dict.fromkeys(("subrip", "srt"), _subrip_words),
    "webvtt": _webvtt_words,
}
"""What a text format shows; others have no markup in the text."""


def check_chapters(left: InputContainer, right: InputContainer, alignment: Alignment) -> Check:
    """Check that every chapter is there, with its title and its times."""
    before = _chapters(left, alignment.source_zero_s)
    after = _chapters(right, alignment.output_zero_s)
    if alignment.output_is_isobmff:
        # Its chapters lie end to end: one without a title fills what is between two.
        starts = [begin_s for begin_s, _, _ in before]
        after = [each for each in after if each[1] or any(abs(each[0] - begin_s) <= CHAPTER_S for begin_s in starts)]
    nowhere = "a transport stream has no place for chapters" if before and alignment.output_is_ts else ""
    # A chapter that would begin before the output does begins with it. Only Matroska says when each ends.
    same = len(before) == len(after) and all(
        a[1] == b[1]
        and (abs(a[0] - b[0]) <= CHAPTER_S or a[0] + alignment.output_zero_s < 0)
        and (not alignment.output_is_matroska or abs(a[2] - b[2]) <= CHAPTER_S)
        for a, b in zip(before, after, strict=True)
    )
    texts = ["; ".join(f"{float(start):.3f} s {title}" for start, title, _ in chapters) for chapters in (before, after)]
    unless = "a part was asked for" if alignment.trimmed else nowhere
    return check("metadata.chapters", *texts, passed=same, unless=unless)


def _chapters(container: InputContainer, zero_s: Fraction) -> list[tuple[Fraction, str, Fraction]]:
    """Return when each chapter begins, its title, and when it ends."""
    found = []
    for chapter in container.chapters():
        begin_s, end_s = (chapter[each] * Fraction(chapter["time_base"] or 1) - zero_s for each in ("start", "end"))
        found.append((begin_s, chapter["metadata"].get("title", ""), end_s))
    return found


def check_timecode(left: InputContainer, right: InputContainer, alignment: Alignment) -> Iterator[Check]:
    """Check the timecode of the output's first picture, if the source has one."""
    if (timecode := _timecode(left)) is None:
        return
    video = video_tracks(left)[0]
    rate = nominal_frame_rate(video.guessed_rate, video.average_rate, video.base_rate)
    counted = None if alignment.files is None else alignment.files.timecode_rate
    wanted, found = moved_timecode(timecode, alignment.begin_s, rate, counted), _timecode(right)
    # Unmoved, it may go on to count each second picture.
    kept = {wanted, timecode} if not alignment.begin_s else {wanted}
    nowhere = "a transport stream has no place for it" if alignment.output_is_ts else ""
    yield check("metadata.timecode", wanted, found, passed=found in kept, unless=nowhere)


def _timecode(container: InputContainer) -> str | None:
    # Matroska writes its keys in capitals.
    places = (container.metadata, *(stream.metadata for stream in container.streams))
    return next((value for tags in places for key, value in tags.items() if key.lower() == "timecode"), None)
