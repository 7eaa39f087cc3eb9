"""``verify`` on sources that change: each wrong output fails the check for its kind, and a right one passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TypeAlias, cast

import av
import av.filter
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from numpy.typing import NDArray

from codecfleet.jobs.verify.job import Verdict, verify

from .local_jobs import remuxed

WIDTH, HEIGHT, PICTURES, RATE_HZ = 128, 96, 10, 48_000
TICK = Fraction(1, 25)
BT709, BT601 = 1, 6
LIMITED, FULL = 1, 2
SOUND_S = 2
FIELDS = {"flags": "+ildct+ilme"}


@dataclass(frozen=True)
class Part:
    """Pictures of one kind, as in a broadcast until the next programme."""

    frames: Sequence[av.VideoFrame]
    matrix: int = BT709
    levels: int = LIMITED
    shape: Fraction = Fraction(1)
    options: dict[str, str] = field(default_factory=dict)


Films: TypeAlias = tuple[list[Part], list[Part], list[Part]]  # a source that changes, a wrong output, a right one


def frame(number: int) -> av.VideoFrame:
    """Return a colourful picture with a box that moves."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    luma = 60 + columns + 4 * ((rows // 8 + columns // 8) % 2)
    luma[30:60, 6 * number : 6 * number + 30] = 210
    planes = [luma, 90 + 60 * (columns[::2, ::2] > WIDTH // 2), 60 + 2 * rows[::2, ::2]]
    found = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
    for samples, plane in zip(planes, found.planes, strict=True):
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
        lines[:, : plane.width] = samples.astype(np.uint8)
    return found


def frames() -> list[av.VideoFrame]:
    """Return the pictures of one part."""
    return [frame(number) for number in range(PICTURES)]


def converted(given: Sequence[av.VideoFrame], **colours: int) -> list[av.VideoFrame]:
    """Return pictures in another range or matrix."""
    return [VideoReformatter().reformat(each, threads=1, **colours) for each in given]  # type: ignore[arg-type]


def transport_stream(path: Path, parts: Sequence[Part]) -> str:
    """Write parts one after another, as a continuous recording: each with its own parameter sets."""
    data, begin = b"", 0
    for part in parts:
        piece = path.with_suffix(".part.ts")
        with av.open(str(piece), "w", format="mpegts") as container:
            options = {"crf": "10", "preset": "ultrafast", **part.options}
            stream = container.add_stream("libx264", rate=25, options=options)
            first = part.frames[0]
            stream.width, stream.height, stream.pix_fmt = first.width, first.height, "yuv420p"
            context = stream.codec_context
            context.time_base, context.sample_aspect_ratio = TICK, part.shape
            context.colorspace, context.color_range = part.matrix, part.levels
            for number, each in enumerate(part.frames, begin):
                each.pts, each.time_base, each.pict_type = number, TICK, 0
                each.color_range, each.colorspace = part.levels, part.matrix
                container.mux(stream.encode(each))
            container.mux(stream.encode(None))
        data += piece.read_bytes()
        begin += len(part.frames)
    path.write_bytes(data)
    return str(path)


def failures(verdict: Verdict) -> set[str]:
    """Return the names of the failed checks."""
    return {one.name for one in verdict.failures}


def bars(given: Sequence[av.VideoFrame], shape: Fraction) -> list[av.VideoFrame]:
    """Return wide pictures with black bars."""
    height = int(HEIGHT / shape) & ~1
    found = []
    for each in given:
        inner = VideoReformatter().reformat(each, WIDTH, height, threads=1)
        whole = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
        for place, (small, plane) in enumerate(zip(inner.planes, whole.planes, strict=True)):
            lines = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
            source = np.frombuffer(memoryview(small), np.uint8).reshape(small.height, small.line_size)
            lines[:] = 128 if place else 16
            top = ((HEIGHT - height) // 2 & ~1) // (2 if place else 1)
            lines[top : top + small.height, : plane.width] = source[:, : small.width]
        found.append(whole)
    return found


def filtered(given: Sequence[av.VideoFrame], *steps: tuple[str, str]) -> list[av.VideoFrame]:
    """Return pictures after FFmpeg's filters."""
    graph = av.filter.Graph()
    shape = f"video_size={WIDTH}x{HEIGHT}:pix_fmt=yuv420p:time_base=1/25:pixel_aspect=1/1"
    source = graph.add("buffer", shape)
    graph.link_nodes(source, *(graph.add(*step) for step in steps), graph.add("buffersink")).configure()
    found = []
    for number, each in enumerate(given):
        each.pts, each.time_base = number, TICK
        source.push(each)
        found.append(cast("av.VideoFrame", graph.pull()))
    return found


def in_fields(order: str) -> list[av.VideoFrame]:
    """Return pictures that are marked as interlaced."""
    return filtered(frames(), ("setfield", order))


def with_range() -> Films:
    """Return a source whose range changes, a wrong output, and a right one."""
    full = converted(frames(), src_color_range=ColorRange.MPEG, dst_color_range=ColorRange.JPEG)
    return [Part(frames()), Part(full, levels=FULL)], [Part([*frames(), *full])], [Part([*frames(), *frames()])]


def with_matrix() -> Films:
    """Return a source whose matrix changes, a wrong output, and a right one."""
    moved = converted(frames(), src_colorspace=Colorspace.ITU709, dst_colorspace=Colorspace.ITU601)
    return [Part(frames()), Part(moved, matrix=BT601)], [Part([*frames(), *moved])], [Part([*frames(), *frames()])]


def with_everything() -> Films:
    """Return a source whose size, range and matrix change together, a wrong output, and a right one."""
    large = converted(frames(), width=2 * WIDTH, height=2 * HEIGHT)
    there = {"src_colorspace": Colorspace.ITU601, "dst_colorspace": Colorspace.ITU709}
    back = {"src_colorspace": Colorspace.ITU709, "dst_colorspace": Colorspace.ITU601}
    moved = converted(large, **there, src_color_range=ColorRange.MPEG, dst_color_range=ColorRange.JPEG)
    right = converted(moved, **back, src_color_range=ColorRange.JPEG, dst_color_range=ColorRange.MPEG)
    return (
        [Part(frames(), matrix=BT601), Part(moved, levels=FULL)],
        [Part([*large, *moved], matrix=BT601)],
        [Part([*large, *right], matrix=BT601)],
    )


def with_shape() -> Films:
    """Return a source whose pictures become wider, a wrong output, and a right one."""
    wider = Fraction(4, 3)
    return (
        [Part(frames()), Part(frames(), shape=wider)],
        [Part([*frames(), *frames()])],
        [Part([*frames(), *bars(frames(), wider)])],
    )


def with_fields() -> Films:
    """Return a source that becomes interlaced, an output that does not, and one that is interlaced throughout."""
    top = FIELDS | {"x264-params": "tff=1"}
    return (
        [Part(frames()), Part(frames(), options=top)],
        [Part([*frames(), *frames()])],
        [Part([*frames(), *frames()], options=top)],
    )


def with_field_order() -> Films:
    """Return a source whose field order changes, an output that states one, and one that follows."""
    return (
        [Part(in_fields("bff"), options=FIELDS), Part(in_fields("tff"), options=FIELDS)],
        [Part([*in_fields("bff"), *in_fields("bff")], options=FIELDS)],
        [Part(in_fields("bff"), options=FIELDS), Part(in_fields("tff"), options=FIELDS)],
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (with_range, ["pictures.range"]),
        (with_matrix, ["pictures.matrix"]),
        (with_everything, ["pictures.range", "pictures.matrix"]),
        (with_shape, ["pictures.aspect"]),
        (with_fields, ["pictures.interlaced"]),
        (with_field_order, ["pictures.interlaced"]),
    ],
)
def test_pictures_that_change_are_each_compared(
    tmp_path: Path, kind: Callable[[], Films], names: Sequence[str]
) -> None:
    """Pictures that are labelled like the first but differ from it fail; converted ones pass."""
    source, wrong, right = (
        transport_stream(tmp_path / f"{label}.ts", parts)
        for label, parts in zip(("source", "wrong", "right"), kind(), strict=True)
    )
    assert failures(verify(source, wrong)) == {*names}
    assert failures(verify(source, right)) == set()


def woven(top: av.VideoFrame, bottom: av.VideoFrame) -> av.VideoFrame:
    """Return a picture made of one field each of two pictures."""
    found = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
    for place, plane in enumerate(found.planes):
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
        for first, side in enumerate((top, bottom)):
            lines[first::2] = np.frombuffer(memoryview(side.planes[place]), np.uint8).reshape(lines.shape)[first::2]
    return found


def test_fields_are_not_mixed_where_pictures_are_scaled(tmp_path: Path) -> None:
    """Interlaced pictures fail if they were scaled as progressive ones, and pass if scaled by fields."""
    given = [woven(frame(number), frame(number + 1)) for number in range(PICTURES)]
    options = FIELDS | {"x264-params": "tff=1"}
    fields = filtered(given, ("setfield", "tff"))
    source = transport_stream(tmp_path / "source.ts", [Part(fields, options=options)])
    scaled = [
        filtered(given, ("setfield", "tff"), ("scale", f"{WIDTH * 3 // 4}:{HEIGHT * 3 // 4}:interl={by_field}"))
        for by_field in (0, 1)
    ]
    mixed, apart = (
        transport_stream(tmp_path / f"{number}.ts", [Part(each, options=options)]) for number, each in enumerate(scaled)
    )
    assert failures(verify(source, mixed)) == {"pictures.interlaced"}
    assert failures(verify(source, apart)) == set()


def test_telecine_without_its_fields_shows_its_own_pictures(tmp_path: Path) -> None:
    """A deinterlaced picture may show its neighbour if both share a field; an exchanged one fails."""
    cadence = [(0, 0), (1, 1), (1, 2), (2, 3), (3, 3), (4, 4), (5, 5), (5, 6), (6, 7), (7, 7)]
    fields = FIELDS | {"x264-params": "tff=1"}
    telecined = Part([woven(frame(top), frame(bottom)) for top, bottom in cadence], options=fields)
    source = transport_stream(tmp_path / "source.ts", [telecined])
    shown = [top for top, _ in cadence]
    right = transport_stream(tmp_path / "right.ts", [Part([frame(top) for top in shown])])
    shown[6:10] = [5, 5, 7, 6]
    wrong = transport_stream(tmp_path / "wrong.ts", [Part([frame(top) for top in shown])])
    assert failures(verify(source, right)) == {"pictures.interlaced"}
    assert "pictures.order" in failures(verify(source, wrong))


def test_a_part_is_as_its_own_pictures_state(tmp_path: Path) -> None:
    """A part after a change is labelled as its own pictures are, not as the start of the track."""
    wide = Part(frames(), matrix=BT601, shape=Fraction(4, 3))
    source = transport_stream(tmp_path / "source.ts", [Part(frames()), wide])
    right = transport_stream(tmp_path / "right.ts", [wide])
    wrong = transport_stream(tmp_path / "wrong.ts", [Part(frames())])
    start_s = PICTURES * TICK
    assert failures(verify(source, right, start_s=start_s)) == set()
    assert failures(verify(source, wrong, start_s=start_s)) == {"metadata.aspect", "metadata.matrix"}
    assert failures(verify(source, wrong, end_s=start_s)) == set()


def escaped(data: bytes) -> bytes:
    """Return a NAL unit's payload without start codes."""
    found, zeros = bytearray(), 0
    for byte in data:
        if zeros > 1 and byte <= 3:
            found.append(3)
            zeros = 0
        found.append(byte)
        zeros = 0 if byte else zeros + 1
    return bytes(found)


def captioned(source: str, path: Path, first: int) -> str:
    """Copy a track of whole pictures; from picture ``first`` on, each has a different caption."""
    with av.open(source) as given, av.open(str(path), "w") as container:
        stream = container.add_stream_from_template(given.streams.video[0])
        for number, packet in enumerate(p for p in given.demux(video=0) if p.size):
            data = bytes(packet)
            if number >= first:
                letters = b"\xb5\x00\x31GA94\x03" + bytes(
                    [0x42, 0xFF, 0xFC, 0x80 | number, 0x80, 0xFD, 0x21, 0x22, 0xFF]
                )
                data = b"\0\0\0\1\x06" + escaped(bytes([4, len(letters)]) + letters + b"\x80") + data
            copy = av.Packet(len(data))
            copy.update(data)
            copy.pts, copy.dts, copy.time_base, copy.stream = packet.pts, packet.dts, packet.time_base, stream
            copy.is_keyframe = packet.is_keyframe
            container.mux(copy)
    return str(path)


def test_captions_are_counted_over_the_whole_track(tmp_path: Path) -> None:
    """Late captions fail if they are lost, or if a picture has those of another."""
    plain = transport_stream(tmp_path / "plain.ts", [Part(frames(), options={"tune": "zerolatency"})])
    late = captioned(plain, tmp_path / "late.ts", 6)
    assert failures(verify(late, late)) == set()
    assert failures(verify(late, plain)) == {"metadata.captions"}
    assert failures(verify(late, captioned(plain, tmp_path / "later.ts", 8))) == {"metadata.captions"}


def tones(layout: str, names: Sequence[str]) -> NDArray[np.float32]:
    """Return a sound with a tone for each speaker of a layout, which depends on its name."""
    moments = np.arange(SOUND_S * RATE_HZ) / RATE_HZ
    order = [channel.name for channel in av.AudioLayout(layout).channels]
    pitch = {name: 60 if name == "LFE" else 400 + 170 * place for place, name in enumerate(names)}
    waves = [0.3 * np.sin(2 * np.pi * pitch[name] * moments * (1 + moments / 50)) for name in order]
    return np.array(waves, np.float32)


def film(
    path: Path,
    sound: NDArray[np.float32],
    layout: str,
    *,
    codec: str = "flac",
    gap: tuple[int, int] = (0, 0),
    lasts: Sequence[int] = (),
) -> str:
    """Write pictures and sound; samples from ``gap`` on are left out; ``lasts`` has pictures' durations in ticks."""
    with av.open(str(path), "w") as container:
        options = {"preset": "ultrafast", "bf": "0"}
        video = container.add_stream("libx264", rate=25, options=options)
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        video.codec_context.time_base = TICK
        audio = container.add_stream(codec, rate=RATE_HZ, layout=layout)
        packets = []
        durations = lasts or [1] * PICTURES
        for number, ticks in enumerate(np.cumsum([0, *durations[:-1]])):
            each = frame(number)
            each.pts, each.time_base = int(ticks), TICK
            packets += video.encode(each)
        for packet, lasts_ticks in zip(packets + video.encode(None), durations, strict=True):
            packet.duration = int(lasts_ticks * TICK / Fraction(packet.time_base))
            container.mux(packet)
        for begin in range(0, sound.shape[1] - 1023, 1024):
            if gap[0] <= begin < gap[1]:
                continue
            samples = sound[:, begin : begin + 1024]
            packed = (samples.T.reshape(1, -1) * 32767).astype(np.int16)
            given = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
            given.sample_rate, given.time_base, given.pts = RATE_HZ, Fraction(1, RATE_HZ), begin
            container.mux(audio.encode(given))
        container.mux(audio.encode(None))
    return str(path)


def test_each_speaker_keeps_its_own_sound(tmp_path: Path) -> None:
    """A lost, silent or exchanged speaker fails; unchanged ones pass."""
    names = [channel.name for channel in av.AudioLayout("5.0").channels]
    source = film(tmp_path / "source.mkv", tones("5.0", names), "5.0")
    exchanged = film(tmp_path / "exchanged.mkv", tones("5.0", ["FL", "FR", "BL", "FC", "BR"]), "5.0")
    silent = tones("5.0", names)
    silent[3] = 0
    assert failures(verify(source, film(tmp_path / "right.mkv", tones("5.0", names), "5.0"))) == set()
    assert failures(verify(source, exchanged)) == {"audio.0.speakers"}
    assert failures(verify(source, film(tmp_path / "silent.mkv", silent, "5.0"))) == {"audio.0.speakers"}
    stereo = film(tmp_path / "stereo.mkv", tones("stereo", names), "stereo")
    assert {"audio.0.layout", "audio.0.speakers"} <= failures(verify(source, stereo))


@pytest.mark.parametrize("name", ["output.mp4", "output.mov"])
def test_pcm_after_a_gap_is_heard_when_it_was(tmp_path: Path, name: str) -> None:
    """PCM that closes the gap is too early; PCM with silence in it is right."""
    sound, gap = tones("mono", ["FC"]), (32 * 1024, 52 * 1024)
    source = film(tmp_path / "source.mkv", sound, "mono", codec="pcm_s16le", gap=gap)
    closed = np.concatenate([sound[:, : gap[0]], sound[:, gap[1] :]], axis=1)
    filled = sound.copy()
    filled[:, gap[0] : gap[1]] = 0
    wrong = film(tmp_path / f"wrong-{name}", closed, "mono", codec="pcm_s16le")
    right = film(tmp_path / f"right-{name}", filled, "mono", codec="pcm_s16le")
    assert {"audio.0.times", "audio.0.sound", "audio.0.gaps"} <= failures(verify(source, wrong))
    assert failures(verify(source, right)) == set()


def test_a_part_is_not_held_against_the_sound_behind_it(tmp_path: Path) -> None:
    """A quiet part of a track that is loud later is compared with that part of the source only."""
    sound, end_s = tones("mono", ["FC"]), Fraction(2, 5)
    sound[:, : int(end_s * RATE_HZ) // 1024 * 1024] /= 100
    source = film(tmp_path / "source.mkv", sound, "mono", lasts=[2] * 10)
    part = film(tmp_path / "part.mkv", sound[:, : int(end_s * RATE_HZ)], "mono", lasts=[2] * 5)
    assert failures(verify(source, part, end_s=end_s)) == set()


def test_a_source_that_was_cut_short_is_named(tmp_path: Path) -> None:
    """The output has everything that can be read, but the check of the source says that the source was cut short."""
    sound = tones("mono", ["FC"])
    whole = Path(film(tmp_path / "whole.mkv", sound, "mono"))
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[:-2000])
    output = copied(str(cut), tmp_path / "output.mkv")
    assert failures(verify(str(cut), output)) == {"source.whole"}


def copied(source: str, path: Path, change: Callable[[bytes], bytes] = bytes) -> str:
    """Copy a file's tracks; ``change`` replaces the 21st packet of sound."""
    sounds = count(1)

    def keep(packet: av.Packet) -> bool:
        if packet.stream.type == "audio" and next(sounds) == 21:
            packet.update(change(bytes(packet)))
        return True

    return str(remuxed(Path(source), path, keep))


@pytest.mark.parametrize("name", ["output.mp4", "output.mkv"])
def test_a_layout_that_moves_out_of_aac_is_no_loss_of_sound(tmp_path: Path, name: str) -> None:
    """ADTS may have the layout in its first packet, mp4 and Matroska in a header; the sound has the same bytes."""
    sound = tones("quad", [channel.name for channel in av.AudioLayout("quad").channels])
    source = film(tmp_path / "source.ts", sound, "quad", codec="aac")
    assert failures(verify(source, copied(source, tmp_path / name))) == set()
    wrong = copied(source, tmp_path / f"wrong-{name}", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    assert "audio.0.payload" in failures(verify(source, wrong))


def test_sound_of_which_no_sample_is_shown_has_no_speakers_to_lose(tmp_path: Path) -> None:
    """An edit list hides all samples of the source, so only the packets' bytes are compared."""
    whole = Path(film(tmp_path / "whole.mp4", tones("stereo", ["FL", "FR"]), "stereo", codec="aac"))
    edits = whole.read_bytes().split(b"elst")
    edits[2] = edits[2][:12] + b"\x7f\xff\xff\xff" + edits[2][16:]
    hidden = tmp_path / "hidden.mp4"
    hidden.write_bytes(b"elst".join(edits))
    verdict = verify(str(hidden), copied(str(hidden), tmp_path / "output.ts"))
    checks = {each.name: each.passed for each in verdict.checks}
    assert [checks[f"audio.0.{name}"] for name in ("payload", "layout", "speakers")] == [True, None, None]
