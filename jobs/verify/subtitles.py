"""Checks chapters, the timecode, and subtitles in every format that containers use."""

import html
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

from av.container import InputContainer

from ...actors.decode.describe import nominal_frame_rate
from ...actors.media.opening import open_source
from .streams import Alignment, only, subtitle_tracks, video_tracks
from .verdict import Check, check, not_applicable

TIME_S = Fraction(1, 500)  # the sum of two roundings to a millisecond, one for each file
_TIMECODE_NUMBERS = 4  # hours, minutes, seconds, frames
_RATES_A_DROP = 15  # drop-frame counting leaves out 2 numbers a minute at 30 frames a second, and 4 at 60

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
_JOINER = "\u2060"  # WORD JOINER, an invisible character that writers insert into text that looks like a tag


@dataclass(frozen=True, slots=True)
class _Cue:
    time_s: Fraction
    content: str | int
    end_s: Fraction | None = None  # the cue's end; None if the container does not state it


def check_subtitles(source: str, output: str, alignment: Alignment) -> list[Check]:
    """Check that the output has every subtitle track, with every cue."""
    with open_source(source) as container:
        # A cue before all pictures and sound starts at the output's time 0.
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
        return not_applicable(name, "a part was requested")
    pairs = enumerate(zip(left, right, strict=False))
    wrong = next((n for n, (a, b) in pairs if a.content != b.content or not _is_near(a, b)), None)
    differs = "" if wrong is None else f", cue {wrong} differs: {left[wrong]} became {right[wrong]}"
    found = f"{len(right)} cues{differs}"
    return check(name, f"{len(left)} cues", found, passed=wrong is None and len(left) == len(right))


def _is_near(before: _Cue, after: _Cue) -> bool:
    ends = before.end_s is None or after.end_s is None or abs(before.end_s - after.end_s) <= TIME_S
    return ends and abs(before.time_s - after.time_s) <= TIME_S


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
    """Return a cue's text without the markup of its format, for comparing it with a cue in another format."""
    if codec == "mov_text":
        # The payload is a 16-bit length, the text, and then boxes with styles (3GPP TS 26.245, 5.17).
        payload = payload[2 : 2 + int.from_bytes(payload[:2], "big")]
    encoding = "utf-16" if codec == "mov_text" and payload[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8"
    text = _WORDS.get(codec, str)(payload.decode(encoding, "replace")).replace("\r", "").replace(_JOINER, "")
    return "\n".join(line.strip() for line in text.strip("\0").splitlines() if line.strip())


def _ass_words(text: str) -> str:
    """Return the text of an ASS event, without the blocks in braces and without the coordinates of drawings."""
    found, drawing = [], False
    for place, part in enumerate(_ASS_BLOCK.split(text.split(",", _ASS_FIELDS)[-1])):
        if place % 2:
            levels = re.findall(r"\\p(\d+)", part)
            drawing = bool(int(levels[-1])) if levels else drawing
        elif not drawing:
            found.append(part)
    return re.sub(r"\\[Nnh{}]", lambda escape: _ASS_ESCAPES[escape[0]], "".join(found))


_WORDS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("ass", "ssa"), _ass_words),
    **dict.fromkeys(("subrip", "srt"), lambda text: _SUBRIP_TAGS.sub("", _LINE_TAG.sub("\n", text))),
    "webvtt": lambda text: html.unescape(_WEBVTT_TAGS.sub("", text)),
}  # the other formats have no markup


def check_chapters(left: InputContainer, right: InputContainer, alignment: Alignment) -> Check:
    """Check that the output has every chapter, with its title and times."""
    before = _chapters(left, alignment.source_zero_s)
    after = _chapters(right, alignment.output_zero_s)
    if alignment.output_is_isobmff:
        # mp4 chapters are contiguous, so a chapter without a title fills the gap between two chapters.
        starts = [begin_s for begin_s, _, _ in before]
        after = [each for each in after if each[1] or any(abs(each[0] - begin_s) <= TIME_S for begin_s in starts)]
    nowhere = "a transport stream has no place for chapters" if before and alignment.output_is_ts else ""
    # A chapter that begins before the output is moved to the output's start. Only Matroska states where chapters end.
    same = len(before) == len(after) and all(
        a[1] == b[1]
        and (abs(a[0] - b[0]) <= TIME_S or a[0] + alignment.output_zero_s < 0)
        and (not alignment.output_is_matroska or abs(a[2] - b[2]) <= TIME_S)
        for a, b in zip(before, after, strict=True)
    )
    texts = ["; ".join(f"{float(start):.3f} s {title}" for start, title, _ in chapters) for chapters in (before, after)]
    unless = "a part was requested" if alignment.trimmed else nowhere
    return check("metadata.chapters", *texts, passed=same, unless=unless)


def _chapters(container: InputContainer, zero_s: Fraction) -> list[tuple[Fraction, str, Fraction]]:
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
    # If the output starts with the source, its timecode may keep counting only every second picture.
    kept = {wanted, timecode} if not alignment.begin_s else {wanted}
    nowhere = "a transport stream has no place for it" if alignment.output_is_ts else ""
    yield check("metadata.timecode", wanted, found, passed=found in kept, unless=nowhere)


def _timecode(container: InputContainer) -> str | None:
    # Matroska uses upper-case keys.
    places = (container.metadata, *(stream.metadata for stream in container.streams))
    return next((value for tags in places for key, value in tags.items() if key.lower() == "timecode"), None)


def moved_timecode(timecode: str, by_s: Fraction, rate: Fraction, counted: Fraction | None = None) -> str:
    """Return the timecode (SMPTE ST 12-1) ``by_s`` after another, at ``rate`` pictures per second.

    ``counted`` is the rate of the given timecode if it does not count every picture. Drop-frame timecodes, with ";" or
    "." before the frames, skip numbers in each minute that is not divisible by 10.
    """
    numbers = [int(each) for each in re.findall(r"\d+", timecode)]
    if len(numbers) != _TIMECODE_NUMBERS:
        return timecode
    hours, minutes, seconds, frames = numbers
    mark, given, wanted = timecode[-3], round(counted or rate), round(rate)
    factor = wanted // given if given and wanted % given == 0 else 1
    dropped = given // _RATES_A_DROP if mark in ";." else 0
    minutes += 60 * hours
    count = (60 * minutes + seconds) * given + frames - dropped * (minutes - minutes // 10)
    pictures = floor(by_s * rate + Fraction(1, 2))
    return _written(count * factor + pictures, given * factor, dropped * factor, mark)


def _written(count: int, base: int, dropped: int, mark: str) -> str:
    """Return the timecode of the picture ``count`` pictures after midnight, at ``base`` pictures per second.

    ``dropped`` numbers are skipped in each minute that is not divisible by 10; ``mark`` stands before the frames.
    """
    ten_minutes = 600 * base - 9 * dropped
    tens, rest = divmod(count % (144 * ten_minutes), ten_minutes)
    if rest >= 60 * base:
        rest += dropped * (1 + (rest - 60 * base) // (60 * base - dropped))
    seconds, frames = divmod(600 * base * tens + rest, base)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{mark}{frames:02d}"
