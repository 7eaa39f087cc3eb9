"""What a job publishes, ``verify`` calls exact: sources that once parted the two."""

import struct
from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet.errors import InputUnreadable, Unsupported
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture

from ..fuzz.corpus import with_sound
from ..fuzz.mutations import boxes
from .published import published

pytestmark = pytest.mark.timeout(60)

ADTS = b"\xff\xf1"
"""How a frame of AAC begins in a transport stream."""
AC3 = b"\x0b\x77"
"""How a frame of AC-3 begins."""


def test_a_damaged_subtitle_track(tmp_path: Path) -> None:
    """A subtitle track whose codec the damage hides is left out with a warning, and verify says so."""
    text, film, mkv = tmp_path / "text.srt", tmp_path / "film.mp4", tmp_path / "film.mkv"
    text.write_text("1\n00:00:00,100 --> 00:00:00,500\nHello\n")
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(25), options=(("preset", "ultrafast"),)))
    with av.open(str(clip)) as pictures, av.open(str(text)) as cues, av.open(str(mkv), "w") as target:
        for before in (pictures, cues):
            target.add_stream_from_template(before.streams[0])
        for stream, before in zip(target.streams, (pictures, cues), strict=True):
            for packet in before.demux():
                if packet.size:
                    packet.stream = stream
                    target.mux(packet)
    published(mkv, film)
    damaged = tmp_path / "damaged.mp4"
    assert film.read_bytes().count(b"tx3g") == 1
    damaged.write_bytes(film.read_bytes().replace(b"tx3g", b"tx\xff\x01"))
    report, verdict = published(damaged, tmp_path / "out.mkv")
    assert verdict.failures == ()
    assert report.warnings


def test_tracks_that_begin_in_the_middle(tmp_path: Path) -> None:
    """A recording of three broadcasts, of which only the second has sound: every picture is there."""
    clip = Clip(times=constant_times(25), options=(("preset", "ultrafast"),))
    silent, heard = make_clip(tmp_path / "silent.ts", clip), with_sound(tmp_path / "heard.ts", {})
    source = tmp_path / "recording.ts"
    source.write_bytes(silent.read_bytes() + heard.read_bytes() + silent.read_bytes())
    report, verdict = published(source, tmp_path / "out.mkv")
    assert (report.frames, verdict.output_frames) == (75, 75)
    assert verdict.failures == ()


def test_a_video_that_begins_a_day_after_the_sound(tmp_path: Path) -> None:
    """What a transport stream's clock cannot state is refused; Matroska states it."""
    source = tmp_path / "late.mkv"
    with av.open(str(with_sound(tmp_path / "film.mkv", {}))) as before, av.open(str(source), "w") as after:
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and packet.pts is not None and packet.dts is not None:
                late = int(26 * 3600 / packet.time_base) if packet.stream.type == "video" else 0
                packet.pts, packet.dts, packet.stream = (
                    packet.pts + late,
                    packet.dts + late,
                    streams[packet.stream_index],
                )
                after.mux(packet)
    with pytest.raises(Unsupported, match="26 hours before the video"):
        published(source, tmp_path / "out.ts")
    assert published(source, tmp_path / "out.mkv")[1].failures == ()
    assert published(source, tmp_path / "silent.ts", audio="none")[0].frames == 25


def test_a_track_without_packets_begins_nowhere(tmp_path: Path) -> None:
    """FFmpeg gives it the file's beginning, a subtitle here; the output begins with its first picture."""
    film, cues = with_sound(tmp_path / "film.mkv", {}), tmp_path / "cues.srt"
    cues.write_text("1\n00:00:00,000 --> 00:00:00,500\nhello\n")
    source = tmp_path / "late.mkv"
    with av.open(str(film)) as before, av.open(str(cues)) as text, av.open(str(source), "w") as after:
        video, _, subtitle = (
            after.add_stream_from_template(each)
            for each in (before.streams.video[0], before.streams.audio[0], text.streams[0])
        )
        packets = [(packet, subtitle, 0) for packet in text.demux()] + [
            (packet, video, 67) for packet in before.demux(video=0)
        ]
        for packet, stream, late in packets:
            if packet.size and packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts, packet.stream = packet.pts + late, packet.dts + late, stream
                after.mux(packet)
    assert published(source, tmp_path / "out.mkv")[1].failures == ()


def test_a_part_of_sound_whose_clock_steps_back(tmp_path: Path) -> None:
    """Packets behind the end of the part are left out, and those that come back into it are there."""
    film = with_sound(tmp_path / "film.ts", {})
    data = film.read_bytes()
    packets = len(data) // 188
    film.write_bytes(data[: packets * 3 // 4 * 188] + data[packets // 3 * 188 :])
    report, verdict = published(film, tmp_path / "out.mkv", end_s=Fraction(3, 5))
    assert "audio-disorder" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def test_sound_that_containers_divide_differently(tmp_path: Path) -> None:
    """A packet whose header says that it is longer is read from mp4 as one with the next, from Matroska alone."""
    film, output = with_sound(tmp_path / "film.mkv", {}, "ac3"), tmp_path / "out.mp4"
    data = bytearray(film.read_bytes())
    data[data.index(AC3, len(data) // 2) + 4] ^= 2  # frmsizecod (ATSC A/52, 5.4.1.4): the next bit rate
    film.write_bytes(data)
    assert published(film, output)[1].failures == ()
    with av.open(str(film)) as before, av.open(str(output)) as after:
        source, copy = (sum(1 for packet in each.demux(audio=0) if packet.size) for each in (before, after))
    assert copy < source


@pytest.mark.parametrize("extension", ["mp4", "mov"])
@pytest.mark.parametrize("encoder", ["ac3", "eac3"])
@pytest.mark.parametrize("place", ["first", "middle"])
def test_sound_without_its_header_is_left_out_of_mp4(place: str, encoder: str, extension: str, tmp_path: Path) -> None:
    """mp4 holds no packet of AC-3 with a damaged header: it is left out, and the report says so."""
    film = with_sound(tmp_path / "film.mkv", {}, encoder)
    data = bytearray(film.read_bytes())
    data[data.index(AC3, 0 if place == "first" else len(data) // 2)] ^= 0x10
    film.write_bytes(data)
    report, verdict = published(film, tmp_path / f"out.{extension}")
    damage = next(warning for warning in report.warnings if warning.code == "audio-damaged")
    assert damage.message.startswith(f"1 packets of audio track 1 ({encoder}) are left out")
    assert verdict.failures == ()
    assert {check.name for check in verdict.checks if check.declared} >= {"audio.0.payload"}


def test_sound_that_mp4_cannot_hold_is_the_inputs_fault(tmp_path: Path) -> None:
    """A frame of E-AC-3 that says it has three blocks: FFmpeg refuses the next, and the job names track and time."""
    film = with_sound(tmp_path / "film.mkv", {}, "eac3")
    data = bytearray(film.read_bytes())
    data[data.index(AC3, len(data) // 2) + 4] ^= 0x10  # numblkscod (ETSI TS 102 366, E.1.3.1.5)
    film.write_bytes(data)
    with pytest.raises(InputUnreadable, match=r"cannot hold what audio track 1 \(eac3\) of .* has at about 0\.\d s"):
        published(film, tmp_path / "out.mp4")
    assert published(film, tmp_path / "out.mkv")[1].failures == ()


@pytest.mark.parametrize("start_s", [None, Fraction(3, 10)])
def test_pictures_of_two_films_in_turn(start_s: Fraction | None, tmp_path: Path) -> None:
    """A file behind another whose clock begins again within a second: pictures of both are sorted, and none is lost."""
    source = tmp_path / "both.webm"
    clips = (
        Clip(times=constant_times(25), encoder="libvpx", options=(("deadline", "realtime"),)),
        Clip(times=tuple(range(13, 1313, 52)), encoder="libvpx", options=(("deadline", "realtime"),)),
    )
    source.write_bytes(b"".join(make_clip(tmp_path / f"{n}.webm", clip).read_bytes() for n, clip in enumerate(clips)))
    report, verdict = published(source, tmp_path / "out.mkv", start_s=start_s)
    assert (report.warnings, verdict.failures) == ((), ())
    assert verdict.source_frames == report.frames == (50 if start_s is None else 36)


def test_a_picture_shown_again_behind_a_reset_clock(tmp_path: Path) -> None:
    """It is shown when its own packet says, on the repaired clock, and not on that of the packet which coded it."""
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


def test_sound_whose_first_packet_is_damaged(tmp_path: Path) -> None:
    """The output begins with a packet of sound that does not decode, as the source does."""
    film = with_sound(tmp_path / "film.ts", {})
    data = bytearray(film.read_bytes())
    data[data.index(ADTS) + 7] ^= 0xFF
    film.write_bytes(data)
    assert published(film, tmp_path / "out.mkv")[1].failures == ()


def test_sound_whose_last_packet_is_cut_short(tmp_path: Path) -> None:
    """The rest of a frame is carried as it is, without its header, which says that there should be more."""
    film = with_sound(tmp_path / "film.ts", {})
    data = film.read_bytes()
    film.write_bytes(data[: (data.rindex(ADTS) // 188 + 1) * 188])
    assert published(film, tmp_path / "out.mkv")[1].failures == ()


def test_a_language_of_no_characters(tmp_path: Path) -> None:
    """Bits that spell no language are none, for the job and for verify alike."""
    film = with_sound(tmp_path / "film.mp4", {})
    data = bytearray(film.read_bytes())
    for box in boxes(bytes(data)):
        if box.kind == b"mdhd":
            data[box.place + 28 : box.place + 30] = b"\xff\xff"
    film.write_bytes(data)
    assert published(film, tmp_path / "out.mov")[1].failures == ()


@pytest.mark.parametrize("name", ["out.mov", "out.mkv"])
def test_sound_whose_clock_nothing_states(name: str, tmp_path: Path) -> None:
    """The film begins with what is heard first, not where priming would begin on a clock that is not the sound's."""
    film = with_sound(tmp_path / "film.mp4", {})
    data = film.read_bytes()
    at = data.rindex(b"mdhd")
    film.write_bytes(data[:at] + b"zzzz" + data[at + 4 :])
    assert published(film, tmp_path / name)[1].failures == ()
    with av.open(str(tmp_path / name)) as out:
        assert out.streams.video[0].start_time == 0


def test_sound_that_is_nothing_but_priming(tmp_path: Path) -> None:
    """When a packet that is never heard begins makes no difference."""
    source = tmp_path / "silent.mkv"
    with av.open(str(with_sound(tmp_path / "film.mkv", {}))) as before, av.open(str(source), "w") as after:
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and (packet.stream.type == "video" or (packet.pts or 0) < 0):
                packet.stream = streams[packet.stream_index]
                after.mux(packet)
    assert published(source, tmp_path / "out.mov")[1].failures == ()


def test_sound_whose_clock_steps_back(tmp_path: Path) -> None:
    """Packets that are timed before the ones ahead of them follow those, and a warning says so."""
    film = with_sound(tmp_path / "film.ts", {})
    data = film.read_bytes()
    packets = len(data) // 188
    film.write_bytes(data[: packets * 3 // 4 * 188] + data[packets // 2 * 188 :])
    report, verdict = published(film, tmp_path / "out.mkv")
    assert "audio-disorder" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def test_a_further_video_track_without_packets(tmp_path: Path) -> None:
    """mp4 keeps no empty track, and a warning says so."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(25), options=(("preset", "ultrafast"),)))
    source = tmp_path / "two.mkv"
    with av.open(str(clip)) as before, av.open(str(source), "w") as after:
        stream, _ = (after.add_stream_from_template(before.streams.video[0]) for _ in range(2))
        for packet in before.demux():
            if packet.size:
                packet.stream = stream
                after.mux(packet)
    report, verdict = published(source, tmp_path / "out.mp4")
    assert "video-track-dropped" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def test_a_film_begins_with_what_there_is_of_it(tmp_path: Path) -> None:
    """A further video track without packets, which a header says begins with a subtitle at 0, delays nothing."""
    text, source = tmp_path / "text.srt", tmp_path / "late.mkv"
    text.write_text("1\n00:00:00,000 --> 00:00:00,500\nHello\n")
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(25), options=(("bf", "0"),)))
    with av.open(str(clip)) as pictures, av.open(str(text)) as cues, av.open(str(source), "w") as after:
        streams = [after.add_stream_from_template(each.streams[0]) for each in (pictures, cues, pictures)]
        for stream, before, late_ms in zip(streams, (pictures, cues), (67, 0), strict=False):
            for packet in before.demux():
                if packet.size:
                    packet.stream = stream
                    packet.pts = packet.dts = (packet.pts or 0) + late_ms
                    after.mux(packet)
    assert published(source, tmp_path / "out.mkv")[1].failures == ()
    with av.open(str(tmp_path / "out.mkv")) as out:
        assert out.streams.video[0].start_time == 0


def test_square_samples_beside_a_skew_display_matrix(tmp_path: Path) -> None:
    """The matrix stretches, and the source says that its samples are square: so does the output."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(5), keyframes=frozenset({0})))
    source = tmp_path / "film.mp4"
    published(clip, source)
    data = bytearray(source.read_bytes())
    matrix = data.index(b"tkhd") + 44
    struct.pack_into(">4I", data, matrix, 1 << 16, 1 << 16, 0, 0)
    source.write_bytes(data)
    assert b"pasp" in data
    assert published(source, tmp_path / "out.mp4")[1].failures == ()
    assert published(source, tmp_path / "out.mkv")[1].failures == ()


def test_hdr_values_of_a_single_picture(tmp_path: Path) -> None:
    """A decoder gives the only picture at the end; its bitstream's HDR values are found all the same."""
    display = "mastering-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1):cll=1000,300"
    source = make_clip(
        tmp_path / "one.mkv", Clip(times=(0,), keyframes=frozenset({0}), options=(("x264-params", display),))
    )
    _, verdict = published(source, tmp_path / "out.mkv")
    assert verdict.failures == ()
    assert "hdr.bitstream" in {check.name for check in verdict.checks}


def test_an_edit_list_that_leaves_every_picture_out(tmp_path: Path) -> None:
    """A film of which nothing is presented is refused as such."""
    source = make_clip(tmp_path / "film.mp4", Clip(times=constant_times(5), keyframes=frozenset({0})))
    content = bytearray(source.read_bytes())
    place = content.index(b"elst") + len(b"elst")
    struct.pack_into(">I", content, place + 12, 10**6)  # the edit's media time, behind version, count and duration
    source.write_bytes(content)
    with pytest.raises(InputUnreadable, match=r"no picture of .* is presented: its edit list"):
        published(source, tmp_path / "out.mp4")


def test_a_timecode_track_without_a_timecode(tmp_path: Path) -> None:
    """It is lost as a timecode that has no place in the output, not as a track of data."""
    source = tmp_path / "film.mov"
    with av.open(str(source), "w") as film:
        stream = film.add_stream("libx264", rate=25)
        stream.width, stream.height = 64, 48
        stream.metadata["timecode"] = "01:00:00:00"
        for number in range(5):
            film.mux(stream.encode(picture(number, 64, 48)))
        film.mux(stream.encode(None))
    content = bytearray(source.read_bytes())
    place = content.rindex(b"stsz") + len(b"stsz")
    struct.pack_into(">II", content, place + 4, 0, 0)  # samples of no stated size, and none of them
    source.write_bytes(content)
    report, verdict = published(source, tmp_path / "out.mp4")
    assert "timecode-dropped" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()


def raw_film(target: Path, fps: int, width: int) -> bytes:
    """Return a raw bitstream of 60 pictures that states its rate."""
    with av.open(str(target), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, 48, "yuv420p"
        for number in range(60):
            container.mux(stream.encode(picture(number, width, 48)))
        container.mux(stream.encode(None))
    return target.read_bytes()


def test_raw_pictures_are_counted_by_the_rate_at_the_beginning(tmp_path: Path) -> None:
    """A second film behind the first, of another size and rate, does not change how long pictures last."""
    film = tmp_path / "film.h264"
    film.write_bytes(raw_film(tmp_path / "a.h264", 50, 128) + raw_film(tmp_path / "b.h264", 25, 64))
    report, verdict = published(film, tmp_path / "out.mkv")
    assert (report.frames, report.proof.last_pts_s, verdict.failures) == (120, "119/50", ())


@pytest.mark.parametrize("number", [0, 5])
def test_a_time_at_the_end_of_all_clocks_is_refused(number: int, tmp_path: Path) -> None:
    """Times of which two do not add up in 64 bits are the input's fault."""
    film = make_clip(tmp_path / "film.ivf", Clip(times=constant_times(9), encoder="libvpx-vp9"))
    data, at = bytearray(film.read_bytes()), 32
    for _ in range(number):
        at += 12 + int.from_bytes(data[at : at + 4], "little")
    data[at + 4 : at + 12] = struct.pack("<q", (1 << 62) + 1)
    film.write_bytes(data)
    with pytest.raises(InputUnreadable, match="too far apart to be true"):
        published(film, tmp_path / "out.mkv")
