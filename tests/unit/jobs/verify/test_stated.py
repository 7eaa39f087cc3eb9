"""What boxes and elements state, read from handmade bytes, and the checks on it."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from struct import pack
from typing import cast

import pytest

from codecfleet.jobs.verify.container_checks import Containers, ExpectedTimes, check_containers, check_crop
from codecfleet.jobs.verify.stated.boxes import read_boxes
from codecfleet.jobs.verify.stated.ebml import read_elements
from codecfleet.jobs.verify.stated.facts import FileBytes, Spread, StatedCrop, StatedFile, StatedKind, StatedTrack
from codecfleet.jobs.verify.subtitles import moved_timecode

SECOND = Fraction(1)
NO_CROP = StatedCrop()
ONE_SHAPE = (SECOND, SECOND)


def box(kind: bytes, *parts: bytes) -> bytes:
    """Return a box of ISO BMFF."""
    payload = b"".join(parts)
    return pack(">I4s", 8 + len(payload), kind) + payload


def element(number: int, payload: bytes | int | str) -> bytes:
    """Return an element of EBML, its size in 8 bytes."""
    if isinstance(payload, int):
        payload = payload.to_bytes(8)
    data = payload.encode() if isinstance(payload, str) else payload
    return number.to_bytes((number.bit_length() + 7) // 8) + (len(data) | 1 << 56).to_bytes(8) + data


def movie(
    *,
    durations: Sequence[tuple[int, int]] = ((50, 40),),
    offsets: Sequence[tuple[int, int]] = (),
    media_ticks: int = 2000,
    edit: tuple[int, int] = (2000, 0),
    entry: bytes = b"",
    language: bytes = b"",
    sizes: Sequence[int] = (),
    at: int = 0,
) -> bytes:
    """Return an mp4 file with one video track of 320x240, in ticks of a millisecond."""
    runs = b"".join(pack(">II", *run) for run in durations)
    shifts = b"".join(pack(">Ii", *run) for run in offsets)
    visual = bytes(24) + pack(">2H", 320, 240) + bytes(50)
    table = box(b"stsd", bytes(4), pack(">I", 1), box(b"avc1", visual, entry))
    table += box(b"stts", bytes(4), pack(">I", len(durations)), runs)
    table += box(b"ctts", bytes(4), pack(">I", len(offsets)), shifts) if offsets else b""
    if sizes:
        table += box(b"stsz", bytes(8), pack(">I", len(sizes)), *(pack(">I", each) for each in sizes))
        table += box(b"stsc", bytes(4), pack(">4I", 1, 1, len(sizes), 1)) + box(b"stco", bytes(4), pack(">2I", 1, at))
    media = box(b"mdhd", bytes(12), pack(">II", 1000, media_ticks), bytes(4)) + language
    media += box(b"hdlr", bytes(8), b"vide", bytes(12)) + box(b"minf", box(b"stbl", table))
    header = box(b"tkhd", bytes(12), pack(">I", 1), bytes(4), pack(">I", edit[0]), bytes(60))
    edits = box(b"edts", box(b"elst", bytes(4), pack(">IIiI", 1, *edit, 1 << 16)))
    track = box(b"trak", header, edits, box(b"mdia", media))
    return box(b"ftyp", b"isom") + box(b"moov", box(b"mvhd", bytes(12), pack(">II", 1000, edit[0])), track)


def matroska(*, blocks: bytes = b"", entry: bytes = b"", video: bytes = b"", duration_ms: float = 80.0) -> bytes:
    """Return a Matroska file with one video track of these blocks, 40 ms each."""
    track = element(0xD7, 1) + element(0x83, 1) + element(0x23E383, 40_000_000) + element(0xE0, video) + entry
    info = element(0x2AD7B1, 1_000_000) + element(0x4489, pack(">d", duration_ms))
    cluster = element(0x1F43B675, element(0xE7, 0) + (blocks or simple(0) + simple(40)))
    segment = element(0x1549A966, info) + element(0x1654AE6B, element(0xAE, track)) + cluster
    return element(0x1A45DFA3, b"") + element(0x18538067, segment)


def simple(time_ms: int) -> bytes:
    """Return a SimpleBlock of track 1."""
    return element(0xA3, b"\x81" + time_ms.to_bytes(2) + b"\x80payload")


def group(time_ms: int, *more: bytes) -> bytes:
    """Return a BlockGroup of track 1."""
    return element(0xA0, element(0xA1, b"\x81" + time_ms.to_bytes(2) + b"\x00payload") + b"".join(more))


def read_mp4(data: bytes) -> StatedFile:
    """Return what an mp4 file states."""
    return cast("StatedFile", read_boxes(FileBytes(BytesIO(data))))


def read_mkv(data: bytes) -> StatedFile:
    """Return what a Matroska file states."""
    return cast("StatedFile", read_elements(FileBytes(BytesIO(data))))


def spread_of(file: StatedFile) -> Spread:
    """Return the times of the samples of the only track."""
    return cast("Spread", file.tracks[0].spread)


def failed(source: StatedFile | None, output: StatedFile | None, showing: ExpectedTimes | None = None) -> list[str]:
    """Return the container checks that fail."""
    times_s = [Fraction(n, 25) for n in range(50)]
    shown = showing or ExpectedTimes(times_s=times_s, last_s=None, nominal_s=Fraction(1, 25))
    files = Containers(source=source, output=output, video_track=0)
    return [one.name for one in check_containers(files, shown) if one.failed]


@pytest.mark.parametrize(
    ("output", "checks"),
    [
        (read_mp4(movie()), []),
        # two samples with one tick
        (read_mp4(movie(durations=((2, 1), (48, 40)))), ["stream.durations", "times.rate"]),
        (read_mp4(movie(media_ticks=2500, edit=(2000, 0))), ["stream.durations"]),  # PCM after a gap that is left out
        (read_mkv(matroska(duration_ms=700)), ["stream.durations"]),  # hidden sound must not lengthen the file
        (StatedFile(tracks=(StatedTrack(kind=StatedKind.VIDEO, alpha=True),)), []),
    ],
)
def test_headers_and_samples_that_contradict_each_other_are_found(output: StatedFile, checks: list[str]) -> None:
    """A header whose duration the samples do not fill, and decoding times pushed together, fail.

    So does alpha that only the source's side blocks have.
    """
    assert failed(None, output) == checks
    alpha = StatedFile(tracks=(StatedTrack(kind=StatedKind.VIDEO, alpha=True),))
    assert ("metadata.alpha" in failed(alpha, output)) is not output.tracks[0].alpha


@pytest.mark.parametrize(("end_ms", "last_ms"), [(2000, 40), (990, 30), (1000, 40), (1001, 1)])
def test_the_last_picture_is_the_last_one_before_the_edit_list_ends(end_ms: int, last_ms: int) -> None:
    """Samples after the end of the edit list are not shown, and one that begins before it may be cut short."""
    spread = spread_of(read_mp4(movie(edit=(end_ms, 0))))
    assert spread.last_s == Fraction(last_ms, 1000)


@pytest.mark.parametrize("count", [49, 0x9FAA1BA6])
def test_tables_that_contradict_each_other_say_nothing_of_time(count: int) -> None:
    """If tables do not give every sample a time, no time is guessed, and an output with such tables fails."""
    damaged = read_mp4(movie(offsets=((count, 40),)))
    assert damaged.tracks[0].spread is None
    assert failed(read_mp4(movie()), damaged) == ["stream.durations"]
    assert failed(damaged, read_mp4(movie())) == []


def test_the_last_picture_ends_with_its_edit_where_pictures_are_reordered() -> None:
    """If pictures are reordered, the last one shown ends with the edit list, not with the last sample decoded."""
    shifts = ((1, 40), (1, 120), (1, 0), (1, 0))
    reordered = movie(durations=((4, 40),), offsets=shifts, edit=(1040, 40), media_ticks=160)
    assert spread_of(read_mp4(reordered)).last_s == Fraction(1080 - 160, 1000)
    plain = movie(durations=((3, 40), (1, 5000)), edit=(5120, 0), media_ticks=5120)
    assert spread_of(read_mp4(plain)).last_s == 5


def test_a_last_picture_that_is_too_short_is_found() -> None:
    """A last picture that is shown for a frame instead of 5 s fails its check."""
    slides = read_mp4(movie(durations=((3, 1000), (1, 5000)), edit=(8000, 0), media_ticks=8000))
    cut = read_mp4(movie(durations=((3, 1000), (1, 33)), edit=(3033, 0), media_ticks=3033))
    showing = ExpectedTimes(times_s=[Fraction(n) for n in range(4)], last_s=5 * SECOND, nominal_s=Fraction(1, 30))
    assert failed(slides, slides, showing) == []
    assert failed(slides, cut, showing) == ["times.last"]


def test_missing_bytes_are_counted() -> None:
    """In a file that was cut short the missing bytes are counted, and its check fails."""
    whole = movie() + box(b"mdat", bytes(1000))
    assert read_mp4(whole).missing_bytes == 0
    assert read_mp4(whole[:-300]).missing_bytes == 300
    assert failed(read_mp4(whole[:-300]), read_mp4(whole)) == ["source.whole"]
    assert failed(read_mp4(whole), read_mp4(whole[:-300])) == ["stream.whole"]
    assert read_mkv(matroska()[:-3]).missing_bytes == 3


def test_only_what_the_film_needs_is_missing() -> None:
    """A box that states too much but holds every sample, and damage after the last one, do not count as missing."""
    begin = len(movie(sizes=[300, 400])) + 8
    whole = movie(sizes=[300, 400], at=begin) + box(b"mdat", bytes(1000))
    assert [read_mp4(whole[:-cut]).missing_bytes for cut in (300, 301)] == [0, 301]
    lying = whole[: begin - 8] + pack(">I4sQ", 1, b"mdat", 1 << 36) + whole[begin + 8 :]
    assert read_mp4(lying).missing_bytes == 0
    assert read_mp4(lying[:-301]).missing_bytes > 0
    assert read_mp4(whole + pack(">I", 1 << 30) + b"????").missing_bytes == 0
    assert read_mkv(matroska() + element(0xEF, 1)[:-1]).missing_bytes == 0
    claims_more = matroska().replace(b"\x1f\x43\xb6\x75\x01\0", b"\x10\x43\xa7\x70\x01\x7f")
    assert read_mkv(claims_more).missing_bytes == 0


def test_fragments_are_samples_too() -> None:
    """Durations come from ``trun``, otherwise ``tfhd``, otherwise ``trex``; ``tfdt`` states the start.

    Without fragments, 50 samples of 40 ms are 2 s.
    """
    tick_s = Fraction(1, 25)
    assert spread_of(read_mp4(movie())) == Spread(
        samples=50, shortest_s=tick_s, total_s=2 * SECOND, end_s=2 * SECOND, last_s=tick_s
    )
    empty = movie(durations=(), media_ticks=0)
    defaults = box(b"mvex", box(b"trex", bytes(4), pack(">5I", 1, 1, 40, 0, 0)))
    at = empty.index(b"moov") - 4
    length = int.from_bytes(empty[at : at + 4])
    head = empty[:at] + pack(">I", length + len(defaults)) + empty[at + 4 :] + defaults
    header = box(b"tfhd", pack(">II", 0, 1))
    first = box(b"traf", header, box(b"tfdt", bytes(8)), box(b"trun", bytes(4), pack(">I", 3)))
    run = box(b"trun", pack(">II", 0x100, 2), pack(">II", 40, 500))
    second = box(b"traf", header, box(b"tfdt", pack(">I", 1 << 24), pack(">Q", 120)), run)
    spread = spread_of(read_mp4(head + box(b"moof", first) + box(b"moof", second)))
    assert (spread.samples, spread.total_s, spread.shortest_s) == (5, Fraction(66, 100), tick_s)
    assert spread.end_s == Fraction(66, 100)


def test_crop_and_field_order_of_an_mp4_are_read() -> None:
    """``clap`` leaves 320x180 of the middle, and ``fiel`` names the field shown first."""
    aperture = box(b"clap", pack(">8i", 320, 1, 180, 1, 0, 1, 0, 1))
    assert read_mp4(movie(entry=aperture)).tracks[0].crop == StatedCrop(0, 30, 0, 30)
    for fields, top_first in (
        (b"\2\1", True),
        (b"\2\x09", True),
        (b"\2\6", False),
        (b"\2\x0e", False),
        (b"\1\0", None),
    ):
        assert read_mp4(movie(entry=box(b"fiel", fields))).tracks[0].top_field_first is top_first


def test_crop_alpha_and_durations_of_a_matroska_are_read() -> None:
    """PixelCrop, alpha planes beside blocks, and the last block's duration are read."""
    cropped = matroska(video=element(0x54AA, 30) + element(0x54BB, 20))
    assert read_mkv(cropped).tracks[0].crop == StatedCrop(0, 20, 0, 30)
    addition = element(0x75A1, element(0xA6, element(0xEE, 1) + element(0xA5, b"alpha")))
    assert read_mkv(matroska(blocks=group(0, addition))).tracks[0].alpha
    last = read_mkv(matroska(blocks=simple(0) + group(40, element(0x9B, 5000)), duration_ms=5040))
    assert spread_of(last).last_s == 5
    assert last.disagreements == ()
    assert read_mkv(matroska()).disagreements == ()


@pytest.mark.parametrize(("header_ms", "agrees"), [(40.0, True), (65.0, False)])
def test_what_is_not_heard_does_not_count(header_ms: float, *, agrees: bool) -> None:
    """An encoder's delay before the first sample and the padding after the last one do not count."""
    delay = element(0x56AA, 21_333_333)
    padding = element(0x75A2, (3_000_000).to_bytes(4))
    blocks = simple(0) + simple(21) + group(43, element(0x9B, 21), padding)
    file = read_mkv(matroska(blocks=blocks, entry=delay, duration_ms=header_ms))
    assert (not file.disagreements) is agrees


def test_clusters_and_segments_of_unknown_size_are_read() -> None:
    """In live Matroska, which states no sizes, a cluster ends where another begins."""
    whole = matroska()
    unknown = (1 << 56) - 1 | 1 << 56
    for number in (b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"):
        at = whole.index(number) + 4
        whole = whole[:at] + unknown.to_bytes(8) + whole[at + 8 :]
    more = b"\x1f\x43\xb6\x75" + unknown.to_bytes(8) + element(0xE7, 80) + simple(0)
    file = read_mkv(whole + more)
    assert spread_of(file).samples == 3
    assert file.missing_bytes == 0


def test_languages_are_named_by_bcp_47() -> None:
    """Languages are read by BCP 47, from Matroska's LanguageBCP47 and mp4's ``elng``."""
    spoken = read_mkv(matroska(entry=element(0x22B59D, "pt-BR")))
    assert spoken.tracks[0].language_tag == "pt-BR"
    assert read_mp4(movie(language=box(b"elng", bytes(4), b"zh-Hans\0"))).tracks[0].language_tag == "zh-Hans"
    audio = replace(spoken.tracks[0], kind=StatedKind.AUDIO)
    files = Containers(source=StatedFile(tracks=(audio, audio)), output=StatedFile(tracks=(audio,)), video_track=0)
    assert files.language_tags(None) == {"audio-0": ("pt-BR", "pt-BR"), "audio-1": ("pt-BR", "")}


@pytest.mark.parametrize(
    ("wanted", "found", "kept", "shapes", "is_good"),
    [
        (StatedCrop(0, 30, 0, 30), NO_CROP, None, (Fraction(16, 9), Fraction(4, 3)), False),
        (StatedCrop(0, 30, 0, 30), StatedCrop(0, 30, 0, 30), None, (Fraction(16, 9), Fraction(4, 3)), True),
        (StatedCrop(0, 30, 0, 30), NO_CROP, None, (Fraction(16, 9), Fraction(16, 9)), True),
        (StatedCrop(0, 30, 0, 30), NO_CROP, (0, 30, 320, 180), (Fraction(16, 9), Fraction(4, 3)), True),
        (StatedCrop(0, 30, 0, 30), NO_CROP, (0, 0, 320, 240), (Fraction(16, 9), Fraction(4, 3)), False),
        (NO_CROP, StatedCrop(0, 30, 0, 30), None, ONE_SHAPE, False),
    ],
)
def test_what_a_container_crops_stays_hidden(
    *, wanted: StatedCrop, found: StatedCrop, kept: tuple[int, ...] | None, shapes: tuple[Fraction, ...], is_good: bool
) -> None:
    """The part that a container crops is cropped in the output or hidden again, and nothing else is."""
    assert [one.passed for one in check_crop(wanted, found, kept, shapes)] == [is_good]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timecode", "by_s", "rate", "counted", "moved"),
    [
        ("10:00:00:00", Fraction(2), Fraction(25), None, "10:00:02:00"),
        ("00:00:59:29", Fraction(1001, 30_000), Fraction(30_000, 1001), None, "00:01:00:00"),
        ("00:00:59;29", Fraction(1001, 30_000), Fraction(30_000, 1001), None, "00:01:00;02"),
        ("00:09:59;29", Fraction(1001, 30_000), Fraction(30_000, 1001), None, "00:10:00;00"),
        ("00:00:59;59", Fraction(1001, 60_000), Fraction(60_000, 1001), None, "00:01:00;04"),
        ("23:59:59:24", Fraction(1, 25), Fraction(25), None, "00:00:00:00"),
        ("10:00:00:12", Fraction(1, 50), Fraction(50), Fraction(25), "10:00:00:25"),
    ],
)
def test_a_timecode_moves_on_with_the_pictures(
    timecode: str, by_s: Fraction, rate: Fraction, counted: Fraction | None, moved: str
) -> None:
    """Drop-frame counting skips 2 numbers in each minute that 10 does not divide, 4 at 59.94."""
    assert moved_timecode(timecode, by_s, rate, counted) == moved


def test_damaged_headers_end_the_reading() -> None:
    """Damaged headers give nothing, or what came before the damage."""
    assert read_boxes(FileBytes(BytesIO(b"\0\0\0\x04ftyp"))) is None
    assert read_elements(FileBytes(BytesIO(b"RIFF" + bytes(100)))) is None
    for cut in range(0, len(movie()), 7):
        read_boxes(FileBytes(BytesIO(movie()[:cut])))
    for cut in range(0, len(matroska()), 5):
        read_elements(FileBytes(BytesIO(matroska()[:cut])))
