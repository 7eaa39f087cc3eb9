"""``verify`` calls a published output exact, also for sources on which job and ``verify`` once disagreed."""

import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.errors import InputUnreadable, Unsupported
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture

from ..fuzz.corpus import with_sound
from ..fuzz.mutations import boxes
from .local_jobs import moved, published, remuxed

pytestmark = pytest.mark.timeout(60)

ADTS, AC3 = b"\xff\xf1", b"\x0b\x77"
"""The first bytes of a frame of AAC in a transport stream, and of AC-3."""
CLUSTER = b"\x1f\x43\xb6\x75"
"""The element id of Matroska's clusters."""
SECOND = Clip(times=constant_times(25), options=(("preset", "ultrafast"),))


def is_video(packet: Any) -> bool:
    """Return whether a packet belongs to the video."""
    return bool(packet.stream.type == "video")


def cues(path: Path, begin: str = "00:00:00,000") -> Path:
    """Write one subtitle."""
    path.write_text(f"1\n{begin} --> 00:00:00,500\nHello\n")
    return path


def changed(path: Path, *places: tuple[int, bytes]) -> Path:
    """Overwrite bytes of a file."""
    data = bytearray(path.read_bytes())
    for at, new in places:
        data[at : at + len(new)] = new
    path.write_bytes(data)
    return path


def flipped(path: Path, at: int, bits: int) -> Path:
    """Flip bits of one byte of a file."""
    return changed(path, (at, bytes([path.read_bytes()[at] ^ bits])))


def first_sound_damaged(path: Path) -> Path:
    """Damage the first packet of sound so that it cannot be decoded."""
    return flipped(path, path.read_bytes().index(ADTS) + 7, 0xFF)


def last_sound_cut(path: Path) -> Path:
    """Shorten the last packet of sound."""
    data = path.read_bytes()
    path.write_bytes(data[: (data.rindex(ADTS) // 188 + 1) * 188])
    return path


def language_of_no_characters(path: Path) -> Path:
    """Write bits into ``mdhd`` that are no language."""
    data = path.read_bytes()
    return changed(path, *((box.place + 28, b"\xff\xff") for box in boxes(data) if box.kind == b"mdhd"))


def sound_without_a_clock(path: Path) -> Path:
    """Rename the last ``mdhd``, so the sound's timescale is missing."""
    return changed(path, (path.read_bytes().rindex(b"mdhd"), b"zzzz"))


def clock_steps_back(path: Path) -> Path:
    """Repeat the third quarter of a transport stream."""
    data, quarter = path.read_bytes(), len(path.read_bytes()) // 188 // 4 * 188
    path.write_bytes(data[: 3 * quarter] + data[2 * quarter :])
    return path


@pytest.mark.parametrize(
    ("source", "change", "output", "codes"),
    [
        ("film.ts", first_sound_damaged, "out.mkv", set()),
        ("film.ts", last_sound_cut, "out.mkv", set()),
        ("film.ts", clock_steps_back, "out.mkv", {"audio-disorder"}),
        ("film.mp4", language_of_no_characters, "out.mov", set()),
        ("film.mp4", sound_without_a_clock, "out.mov", set()),
        ("film.mp4", sound_without_a_clock, "out.mkv", set()),
    ],
)
def test_sound_with_odd_bytes(
    source: str, change: Callable[[Path], Path], output: str, codes: set[str], tmp_path: Path
) -> None:
    """Job and ``verify`` read damaged sound in the same way; the film begins with its first picture."""
    report, verdict = published(change(with_sound(tmp_path / source, {})), tmp_path / output)
    assert verdict.failures == ()
    assert codes <= {warning.code for warning in report.warnings}
    if change is sound_without_a_clock:
        with av.open(str(tmp_path / output)) as out:
            assert out.streams.video[0].start_time == 0


def test_a_damaged_subtitle_track(tmp_path: Path) -> None:
    """A subtitle track whose codec is unknown because of damage is left out with a warning."""
    both = [make_clip(tmp_path / "clip.mkv", SECOND), cues(tmp_path / "text.srt")]
    published(remuxed(both, tmp_path / "film.mkv"), tmp_path / "film.mp4")
    at = (tmp_path / "film.mp4").read_bytes().index(b"tx3g")
    report, verdict = published(changed(tmp_path / "film.mp4", (at, b"tx\xff\x01")), tmp_path / "out.mkv")
    assert verdict.failures == ()
    assert report.warnings


def test_tracks_that_begin_in_the_middle(tmp_path: Path) -> None:
    """Of three broadcasts in one file, only the second has sound; every picture is kept."""
    silent, heard = make_clip(tmp_path / "silent.ts", SECOND), with_sound(tmp_path / "heard.ts", {})
    source = tmp_path / "recording.ts"
    source.write_bytes(silent.read_bytes() + heard.read_bytes() + silent.read_bytes())
    report, verdict = published(source, tmp_path / "out.mkv")
    assert (report.frames, verdict.output_frames, verdict.failures) == (75, 75, ())


def test_a_video_that_begins_a_day_after_the_sound(tmp_path: Path) -> None:
    """Matroska can state so late a start; a transport stream's clock cannot, so the job is refused."""
    late = lambda packet: moved(packet, Fraction(26 * 3600) if is_video(packet) else Fraction(0))  # noqa: E731
    source = remuxed(with_sound(tmp_path / "film.mkv", {}), tmp_path / "late.mkv", late)
    with pytest.raises(Unsupported, match="26 hours before the video"):
        published(source, tmp_path / "out.ts")
    assert published(source, tmp_path / "out.mkv")[1].failures == ()
    assert published(source, tmp_path / "silent.ts", audio="none")[0].frames == 25


@pytest.mark.parametrize("empty", ["audio", "video"])
def test_a_track_without_packets_begins_nowhere(empty: str, tmp_path: Path) -> None:
    """FFmpeg gives an empty track the file's start, here a subtitle's; the output begins with its first picture."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=SECOND.times, options=(("bf", "0"),)))
    sound, text = with_sound(tmp_path / "sound.mkv", {}), cues(tmp_path / "cues.srt")
    source, late_s = tmp_path / "late.mkv", Fraction(67, 1000)
    unused = sound if empty == "audio" else make_clip(tmp_path / "unused.mkv", SECOND)
    own = [text, clip, unused]

    def keep(packet: Any) -> bool:
        kind = "subtitle" if packet.stream.type == "subtitle" else packet.stream.container.name
        return kind == "subtitle" or (kind == str(clip) and moved(packet, late_s))

    assert published(remuxed(own, source, keep), tmp_path / "out.mkv")[1].failures == ()
    with av.open(str(tmp_path / "out.mkv")) as out:
        assert out.streams.video[0].start_time == 0


def test_a_part_of_sound_whose_clock_steps_back(tmp_path: Path) -> None:
    """Packets behind the end of the part are left out; later packets inside it are kept."""
    report, verdict = published(
        clock_steps_back(with_sound(tmp_path / "film.ts", {})), tmp_path / "out.mkv", end_s=Fraction(3, 5)
    )
    assert "audio-disorder" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def middle_frame(path: Path) -> int:
    """Return the position of a frame of AC-3 in the middle of a file."""
    data = path.read_bytes()
    return data.index(AC3, len(data) // 2)


def test_sound_that_containers_divide_differently(tmp_path: Path) -> None:
    """If a header claims more bytes, mp4's packet is read together with the next one, and Matroska's alone."""
    film, output = with_sound(tmp_path / "film.mkv", {}, "ac3"), tmp_path / "out.mp4"
    flipped(film, middle_frame(film) + 4, 2)  # frmsizecod (ATSC A/52, 5.4.1.4): the next higher bit rate
    assert published(film, output)[1].failures == ()
    with av.open(str(film)) as before, av.open(str(output)) as after:
        source, copy = (sum(1 for packet in each.demux(audio=0) if packet.size) for each in (before, after))
    assert copy < source


@pytest.mark.parametrize(
    ("place", "encoder", "extension"), [("first", "ac3", "mp4"), ("middle", "eac3", "mp4"), ("middle", "ac3", "mov")]
)
def test_sound_without_its_header_is_left_out_of_mp4(place: str, encoder: str, extension: str, tmp_path: Path) -> None:
    """mp4 cannot hold a packet of AC-3 with a damaged header, so it is left out and reported."""
    film = with_sound(tmp_path / "film.mkv", {}, encoder)
    flipped(film, film.read_bytes().index(AC3) if place == "first" else middle_frame(film), 0x10)
    report, verdict = published(film, tmp_path / f"out.{extension}")
    damage = next(warning for warning in report.warnings if warning.code == "audio-damaged")
    assert damage.message.startswith("1 packets of audio track 1")
    assert verdict.failures == ()
    assert {check.name for check in verdict.checks if check.declared} >= {"audio.0.payload"}


def test_sound_that_mp4_cannot_hold_is_the_inputs_fault(tmp_path: Path) -> None:
    """FFmpeg refuses packets after a frame of E-AC-3 with three blocks; the error names track and time."""
    film = with_sound(tmp_path / "film.mkv", {}, "eac3")
    flipped(film, middle_frame(film) + 4, 0x10)  # numblkscod (ETSI TS 102 366, E.1.3.1.5)
    with pytest.raises(InputUnreadable, match=r"cannot hold audio track 1 \(eac3\) of .* at about 0\.\d s"):
        published(film, tmp_path / "out.mp4")
    assert published(film, tmp_path / "out.mkv")[1].failures == ()


@pytest.mark.parametrize("start_s", [None, Fraction(3, 10)])
def test_pictures_of_two_films_in_turn(start_s: Fraction | None, tmp_path: Path) -> None:
    """If a second film's clock starts within a second of the first, their pictures are sorted, and none is lost."""
    source, realtime = tmp_path / "both.webm", (("deadline", "realtime"),)
    clips = [
        make_clip(tmp_path / f"{n}.webm", Clip(times=times, encoder="libvpx", options=realtime))
        for n, times in enumerate((constant_times(25), tuple(range(13, 1313, 52))))
    ]
    source.write_bytes(b"".join(clip.read_bytes() for clip in clips))
    report, verdict = published(source, tmp_path / "out.mkv", start_s=start_s)
    assert (report.warnings, verdict.failures) == ((), ())
    assert verdict.source_frames == report.frames == (50 if start_s is None else 36)


def test_a_picture_shown_again_behind_a_reset_clock(tmp_path: Path) -> None:
    """The picture is shown at its own packet's time on the repaired clock, not at that of the packet with its data."""
    clip = Clip(
        times=constant_times(10, step=1, start=50),
        time_base=Fraction(1, 25),
        encoder="libvpx-vp9",
        options=(("deadline", "realtime"),),
    )
    source = make_clip(tmp_path / "film.ivf", clip)
    show_slot_0 = b"\x88"  # VP9's bitstream specification, 6.2: frame_marker 2, profile 0, show_existing_frame
    with source.open("ab") as film:
        film.write(struct.pack("<IQ", len(show_slot_0), 0) + show_slot_0)
    report, verdict = published(source, tmp_path / "out.mkv")
    assert [warning.code for warning in report.warnings] == ["clock-reset"]
    assert (report.frames, report.proof.last_pts_s, verdict.failures) == (11, "2/5", ())


def test_sound_that_is_nothing_but_priming(tmp_path: Path) -> None:
    """If no sample of a sound track is heard, the start of its packets does not matter."""
    film = with_sound(tmp_path / "film.mkv", {})
    source = remuxed(film, tmp_path / "silent.mkv", lambda packet: is_video(packet) or (packet.pts or 0) < 0)
    assert published(source, tmp_path / "out.mov")[1].failures == ()


def test_square_samples_beside_a_skew_display_matrix(tmp_path: Path) -> None:
    """The source's display matrix stretches square samples, and the output has the same matrix."""
    source = tmp_path / "film.mp4"
    published(make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(5))), source)
    assert b"pasp" in source.read_bytes()
    changed(source, (source.read_bytes().index(b"tkhd") + 44, struct.pack(">4I", 1 << 16, 1 << 16, 0, 0)))
    for name in ("out.mp4", "out.mkv"):
        assert published(source, tmp_path / name)[1].failures == ()


def test_hdr_values_of_a_single_picture(tmp_path: Path) -> None:
    """A decoder returns the only picture at its end; the HDR values in its bitstream are still found."""
    display = "mastering-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1):cll=1000,300"
    source = make_clip(tmp_path / "one.mkv", Clip(times=(0,), options=(("x264-params", display),)))
    _, verdict = published(source, tmp_path / "out.mkv")
    assert verdict.failures == ()
    assert "hdr.bitstream" in {check.name for check in verdict.checks}


def test_an_edit_list_that_leaves_every_picture_out(tmp_path: Path) -> None:
    """A film that presents nothing is refused for that reason."""
    source = make_clip(tmp_path / "film.mp4", Clip(times=constant_times(5)))
    place = source.read_bytes().index(b"elst") + len(b"elst")
    changed(source, (place + 12, struct.pack(">I", 10**6)))  # media time, after version, flags and count
    with pytest.raises(InputUnreadable, match=r"no picture of .* is visible: its edit list"):
        published(source, tmp_path / "out.mp4")


def h264(target: Path, fps: int, width: int, count: int, timecode: str = "") -> Path:
    """Write pictures with a stated rate and a timecode."""
    with av.open(str(target), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, 48, "yuv420p"
        if timecode:
            stream.metadata["timecode"] = timecode
        for number in range(count):
            container.mux(stream.encode(picture(number, width, 48)))
        container.mux(stream.encode(None))
    return target


def test_a_timecode_track_without_a_timecode(tmp_path: Path) -> None:
    """The loss of the empty track is reported as a timecode's, not as a data track's."""
    source = h264(tmp_path / "film.mov", 25, 64, 5, "01:00:00:00")
    place = source.read_bytes().rindex(b"stsz") + len(b"stsz")
    changed(source, (place + 4, bytes(8)))  # no sample size and no sample
    report, verdict = published(source, tmp_path / "out.mp4")
    assert "timecode-dropped" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def test_raw_pictures_are_counted_by_the_rate_at_the_beginning(tmp_path: Path) -> None:
    """Another film behind the first, with other size and rate, does not change the duration of pictures."""
    film = tmp_path / "film.h264"
    parts = h264(tmp_path / "a.h264", 50, 128, 60), h264(tmp_path / "b.h264", 25, 64, 60)
    film.write_bytes(b"".join(part.read_bytes() for part in parts))
    report, verdict = published(film, tmp_path / "out.mkv")
    assert (report.frames, report.proof.last_pts_s, verdict.failures) == (120, "119/50", ())


@pytest.mark.parametrize("number", [0, 5])
def test_a_time_at_the_end_of_all_clocks_is_refused(number: int, tmp_path: Path) -> None:
    """Times whose sum exceeds 64 bits are reported as the input's fault."""
    film = make_clip(tmp_path / "film.ivf", Clip(times=constant_times(9), encoder="libvpx-vp9"))
    data, at = film.read_bytes(), 32
    for _ in range(number):
        at += 12 + int.from_bytes(data[at : at + 4], "little")
    with pytest.raises(InputUnreadable, match="implausibly far apart"):
        published(changed(film, (at + 4, struct.pack("<q", (1 << 62) + 1))), tmp_path / "out.mkv")


@pytest.mark.parametrize(("start_s", "end_s", "frames"), [(None, Fraction(1, 2), 11), (Fraction(2, 5), None, 33)])
def test_a_part_counts_from_the_first_packet(
    start_s: Fraction | None, end_s: Fraction | None, frames: int, tmp_path: Path
) -> None:
    """Leading pictures that cannot be decoded still take their time."""
    clip = Clip(
        times=constant_times(50, step=1),
        time_base=Fraction(1, 25),
        encoder="mpeg2video",
        options=(("bf", "2"), ("b_strategy", "0")),
        keyframes=frozenset({0, 9, 18}),
    )
    numbers = iter(range(50))
    source = remuxed(make_clip(tmp_path / "whole.ts", clip), tmp_path / "open.ts", lambda _: next(numbers) >= 7)
    report, verdict = published(source, tmp_path / "out.mkv", start_s=start_s, end_s=end_s)
    assert (report.frames, verdict.failures) == (frames, ())


@pytest.mark.parametrize("extension", ["mkv", "mp4", "ts"])
def test_a_part_behind_the_end_of_the_sound(extension: str, tmp_path: Path) -> None:
    """If the part has no sound, an output without sound is exact, and an output that lost sound is not."""
    film, output = with_sound(tmp_path / "film.mkv", {}), tmp_path / f"out.{extension}"
    begins = lambda packet: is_video(packet) or (packet.pts or 0) * packet.time_base < Fraction(3, 10)  # noqa: E731
    source = remuxed(film, tmp_path / "short.mkv", begins)
    assert published(source, output, start_s=Fraction(1, 2))[1].failures == ()
    if extension != "mp4":
        assert "audio.0.payload" in {each.name for each in verify(film, output, start_s=Fraction(1, 2)).failures}


def test_a_part_that_begins_among_repeated_pictures(tmp_path: Path) -> None:
    """If the first cluster is there four times, pictures of equal time are spread, and the part has its own."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(25), options=(("bf", "0"),)))
    film = remuxed(clip, tmp_path / "film.mkv", options={"cluster_time_limit": "300"})
    data = film.read_bytes()
    first = data.index(CLUSTER)
    second = data.index(CLUSTER, first + 1)
    film.write_bytes(data[:second] + 3 * data[first:second] + data[second:])
    assert published(film, tmp_path / "out.mp4", start_s=Fraction(3, 10))[1].failures == ()


def test_a_part_without_the_sound_that_is_encoded(tmp_path: Path) -> None:
    """mp4 keeps no empty track, whether encoded or copied; a warning says so."""
    ends = lambda packet: is_video(packet) or (packet.pts or 0) * packet.time_base > Fraction(1, 2)  # noqa: E731
    source = remuxed(with_sound(tmp_path / "film.mkv", {}, "pcm_s16le"), tmp_path / "late.mkv", ends)
    report, verdict = published(source, tmp_path / "out.mp4", end_s=Fraction(3, 10), audio="aac")
    assert "audio-dropped" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()
