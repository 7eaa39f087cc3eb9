from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.media.av_stream import copy_parameters, set_extradata
from codecfleet.actors.media.opening import open_source
from codecfleet.jobs.carry.carry import CarryPlan, plan_carry
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.carry.track_plan import Action
from codecfleet.jobs.join.side_tracks import SideTracks
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.tracks import SourceDescription, Track, TrackKind, describe_tracks, tag_value
from tests.sweeps import swept

MILLISECOND = Fraction(1, 1000)
EXTENSIONS = ("mp4", "mkv", "mov", "ts", "webm")
SOUND_AND_MORE = (
    "alpha_prores4444_1frame.mov",
    "audio_only_opus_frag.mp4",
    "av1_cam_720p_aac.mp4",
    "cam_pancake_240p_opus_negstart.mkv",
    "chapters_3.mp4",
    "derived_av1_svt_multigop_360p_opus.mkv",
    "derived_h264_opengop_360p_aac.mp4",
    "film_mpeg4_gap.avi",
    "h264_422_10bit_8xaac_720p50.mp4",
    "h264_fragmented_aac.mp4",
    "h264_mp4_aac_priming.mp4",
    "hevc_hdr10_mastering_rot_attach.mkv",
    "iphone_hlg_dv84_hevc10_opengop_rot_1080p.mov",
    "mp4_editlist_positive_shift.mp4",
    "mp4_missing_audio_stsd.mp4",
    "nasa_2video_2audio.mp4",
    "rot90_480p_dropframe.mp4",
    "screen_1080p60_single_keyframe.flv",
    "subs_ass_ac3.mkv",
    "subs_pgs_ac3.mkv",
)


@dataclass(frozen=True)
class Carried:
    """The result of gathering side tracks only."""

    source: SourceDescription
    output: SourceDescription
    plan: CarryPlan
    path: str
    origin_s: Fraction

    def pairs(self) -> Iterator[tuple[Track, Track, Action]]:
        """Each kept track of the source, paired with its track in the output."""
        written = iter(t for t in self.output.tracks if t.kind is not TrackKind.DATA)
        for fate in self.plan.tracks:
            if fate.kept:
                yield fate.track, next(written), fate.action


def carry(source: Path | str, output: Path, *, late_s: Fraction = Fraction(0), **asked: Any) -> Carried:
    """Write all tracks of ``source`` to ``output``, with its first video track in the place of the encoded one.

    For a part, the first picture comes ``late_s`` after the start.
    """
    url, target = str(source), str(output)
    spec = TranscodeSpec(source=url, output=target, video_track=99, **asked)
    described = describe_tracks(url)
    container = container_for(target, fragmented=spec.fragmented)
    plan = plan_carry(described, spec, container)
    encoded = {index: work.run(WorkContext()) for index, work in plan.audio_works("job", url).items()}
    origin_s = (plan.first_presentation_s or Fraction(0)) if spec.start_s is None else spec.start_s + late_s
    if all(fate.action is Action.DROP for fate in plan.tracks):
        pytest.skip("this container holds nothing of this source")
    options = plan.muxer_options(container.video_tick(Fraction(1, 30_000)))
    with (
        av.open(target, "w", format=container.muxer, container_options=options) as file,
        SideTracks(url, plan, origin_s=origin_s, start_s=spec.start_s, end_s=spec.end_s, encoded=encoded) as sides,
    ):
        sides.add_to(file)
        last_s: Fraction | None = None
        for at_s, packet in sides.packets():
            assert last_s is None or at_s >= last_s
            last_s = at_s
            file.mux(packet)
    return Carried(described, describe_tracks(target), plan, target, origin_s)


@dataclass
class Payload:
    """Contents and times of one track's packets."""

    times_s: list[Fraction] = field(default_factory=list)
    packets: list[bytes] = field(default_factory=list)


def payload(url: str, track: Track) -> Payload:
    """Read a track's packets without the header that a transport stream puts before each AAC frame."""
    return payloads(url, [track])[0]


def payloads(url: str, tracks: Sequence[Track]) -> list[Payload]:
    """Read the packets of several tracks, of at least one."""
    kinds, found = {track.index: track for track in tracks}, {track.index: Payload() for track in tracks}
    with open_source(url) as container:
        for packet in container.demux([container.streams[index] for index in found]):
            data, track = bytes(packet), kinds[packet.stream.index]
            if track.kind is TrackKind.VIDEO and packet.is_discard:
                continue
            if track.codec == "aac" and data[:2] in (b"\xff\xf1", b"\xff\xf9"):
                data = data[7:]
            if track.codec == "mov_text" and data == b"\0\0":
                continue  # A gap between cues, which muxers fill as they like.
            if data:
                found[track.index].packets.append(data)
                found[track.index].times_s.append((packet.pts or 0) * Fraction(packet.time_base))
    return [found[track.index] for track in tracks]


def check_copies(carried: Carried) -> int:
    """Compare bytes and times of every copied track with the source; return how many there were."""
    kinds = (TrackKind.AUDIO, TrackKind.VIDEO)
    copied = [pair[:2] for pair in carried.pairs() if pair[2] is Action.COPY and pair[0].kind in kinds]
    if not copied:
        return 0
    shifts = []
    sent = payloads(carried.source.url, [track for track, _ in copied])
    arrived = payloads(carried.path, [written for _, written in copied])
    for (track, _), before, after in zip(copied, sent, arrived, strict=True):
        assert track.kind is TrackKind.VIDEO or after.packets == before.packets
        assert len(after.times_s) == len(before.times_s)
        shifts += [a - b + carried.origin_s for a, b in zip(after.times_s, before.times_s, strict=True)]
    if shifts:
        # In a transport stream all tracks are shifted by the same amount, so that no time is negative; other
        # containers shift nothing.
        assert max(shifts) - min(shifts) <= 2 * MILLISECOND
        assert carried.path.endswith(".ts") or max(map(abs, shifts)) <= MILLISECOND
    return len(shifts)


@pytest.mark.parametrize(
    ("name", "extension"),
    swept(
        [(name, extension) for name in SOUND_AND_MORE for extension in EXTENSIONS],
        is_slow=lambda case: (SOUND_AND_MORE.index(case[0]) + EXTENSIONS.index(case[1])) % 2,
    ),
)
def test_tracks_arrive_as_they_were(shared_media: Path, tmp_path: Path, name: str, extension: str) -> None:
    """Copied payloads are equal bit for bit, times within 1 ms, and languages and dispositions the same."""
    if (name, extension) == ("alpha_prores4444_1frame.mov", "ts"):
        pytest.skip("40 ms of silence alone are too little to be recognised as a transport stream")
    carried = carry(shared_media / name, tmp_path / f"out.{extension}")

    check_copies(carried)
    for track, written, _ in carried.pairs():
        assert written.kind is track.kind or track.kind is TrackKind.COVER
        assert written.language == track.language or (extension == "ts" and track.kind is TrackKind.VIDEO)
        if extension in ("mkv", "webm"):
            assert written.disposition == track.disposition
    # A transport stream cannot mark priming as silent, and moves all tracks behind 0.
    heard = [(track, written) for track, written, _ in carried.pairs() if track.kind is TrackKind.AUDIO]
    if heard and extension != "ts":
        before_s, after_s = (
            heard_s(carried.source.url, [track for track, _ in heard]),
            heard_s(carried.path, [written for _, written in heard]),
        )
        differences_s = [abs(a - b + carried.origin_s) for a, b in zip(after_s, before_s, strict=True)]
        assert max(differences_s) <= MILLISECOND


def heard_s(url: str, tracks: Sequence[Track]) -> list[Fraction]:
    """Return the time of a decoder's first sample of each track."""
    first_s: dict[int, Fraction] = {}
    with open_source(url) as container:
        for packet in container.demux([container.streams[track.index] for track in tracks]):
            if packet.stream.index not in first_s:
                for frame in packet.decode()[:1]:
                    first_s[packet.stream.index] = Fraction(frame.pts or 0) * Fraction(frame.time_base or 1)
            if len(first_s) == len(tracks):
                break
    return [first_s[track.index] for track in tracks]


@pytest.mark.parametrize(
    "name", ["cam_pancake_240p_opus_negstart.mkv", "derived_h264_opengop_360p_aac.mp4", "nasa_2video_2audio.mp4"]
)
def test_fragments_hold_the_same(shared_media: Path, tmp_path: Path, name: str) -> None:
    """A fragmented mp4 has the same payloads, times and priming as a plain one."""
    assert check_copies(carry(shared_media / name, tmp_path / "out.mp4", fragmented=True))


def test_attachments_stay_whole(shared_media: Path, tmp_path: Path) -> None:
    """Name, type and all bytes of an attached file are kept."""
    carried = carry(shared_media / "hevc_hdr10_mastering_rot_attach.mkv", tmp_path / "out.mkv")

    (_, (track, written, _)) = list(carried.pairs())
    assert written.attachment == track.attachment
    contents: list[Any] = []
    for url, index in ((carried.source.url, track.index), (carried.path, written.index)):
        with open_source(url) as container:
            stream: Any = container.streams[index]
            contents.append(stream.data)
    assert contents[0] == contents[1]
    assert tag_value(written.tags, "license") == tag_value(track.tags, "license")


@pytest.mark.parametrize("extension", ["mp4", "mov"])
def test_phone_tags_are_kept(shared_media: Path, tmp_path: Path, extension: str) -> None:
    """Less common tags, with dates, survive in mp4 and mov."""
    source = shared_media / "iphone_hlg_dv84_hevc10_opengop_rot_1080p.mov"
    carried = carry(source, tmp_path / f"out.{extension}")

    assert set(carried.plan.tags) <= set(carried.output.tags)
    assert dict(carried.output.tags)["com.apple.quicktime.model"] == "iPhone 12 mini"
    assert dict(carried.output.tags)["creation_time"] == "2021-05-29T19:14:19.000000Z"


def packet_of(data: bytes, stream: Any, start_s: Fraction, duration_s: Fraction) -> av.Packet:
    """Return a keyframe packet at a time in microseconds."""
    packet = av.Packet(len(data))
    packet.update(data)
    packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 1_000_000), True
    packet.pts = packet.dts = round(start_s * 1_000_000)
    packet.duration = round(duration_s * 1_000_000)
    return packet


ASS_HEADER = b"[Script Info]\r\nScriptType: v4.00+\r\n\r\n[Events]\r\nFormat: Layer, Start, End, Text\r\n"
CUES = {
    "subrip": (b"<i>One</i> & <3", b"Two\nlines"),
    "ass": (b"0,0,Default,,0,0,0,,{\\i1}One{\\i0} & <3", b"1,0,Default,,0,0,0,,Two\\Nlines"),
    "webvtt": (b"<i>One</i> &amp; &lt;3", b"Two\nlines"),
}
JPEG = (
    bytes.fromhex("ffd8ffdb004300")
    + bytes([1] * 64)
    + bytes.fromhex(
        "ffc0000b080008000801011100ffc4001400010000000000000000000000000000000000ffc40014100100000000000000000000000000000000"
        "ffda0008010100003f00ffd9"
    )
)


@pytest.fixture
def everything(tmp_path: Path, film: Path) -> Path:
    """A Matroska file with sound, three kinds of text, a cover, chapters and tags."""
    path = tmp_path / "everything.mkv"
    with av.open(str(film)) as source, av.open(str(path), "w", format="matroska") as file:
        sound = source.streams.audio[0]
        streams: dict[str, Any] = {"sound": file.add_mux_stream(sound.codec_context.codec.canonical_name)}
        copy_parameters(streams["sound"], sound)
        for codec in CUES:
            streams[codec] = file.add_mux_stream(codec)
            streams[codec].metadata["language"] = "fre"
        set_extradata(streams["ass"], ASS_HEADER)
        streams["subrip"].disposition = av.stream.Disposition.forced
        file.add_attachment("cover.jpg", "image/jpeg", JPEG)
        file.metadata["title"] = "All of it"
        chapter = {"id": 1, "start": 0, "end": 2000, "time_base": MILLISECOND, "metadata": {"title": "First"}}
        file.set_chapters([chapter])  # type: ignore[list-item]
        packets = [p for p in source.demux(sound) if p.size]
        cues = [
            packet_of(data, streams[codec], Fraction(1 + 2 * number), Fraction(1))
            for codec, texts in CUES.items()
            for number, data in enumerate(texts)
        ]
        for packet in packets:
            packet.stream = streams["sound"]
        key: Callable[[av.Packet], Fraction] = lambda p: (p.dts or 0) * Fraction(p.time_base)  # noqa: E731
        file.mux(sorted([*packets, *cues], key=key))
    return path


@pytest.mark.parametrize(
    ("extension", "codecs", "first"),
    [
        ("mp4", ["mov_text"] * 3, b"\0\x08One & <3"),
        ("mov", ["mov_text"] * 3, b"\0\x08One & <3"),
        ("webm", ["webvtt"] * 3, b"<i>One</i> &amp; &lt;3"),
        ("mkv", ["subrip", "ass", "webvtt"], None),
    ],
)
def test_subtitles_become_what_the_container_takes(
    everything: Path, tmp_path: Path, extension: str, codecs: list[str], first: bytes | None
) -> None:
    """Text, times and languages of all cues survive a conversion."""
    carried = carry(everything, tmp_path / f"out.{extension}")

    written = carried.output.of_kind(TrackKind.SUBTITLE)
    assert [track.codec for track in written] == codecs
    for track, original in zip(written, CUES, strict=True):
        found = payload(carried.path, track)
        assert found.packets[0] == (first or CUES[original][0])
        before = payload(str(everything), carried.source.of_kind(TrackKind.SUBTITLE)[0])
        assert [round(t, 3) for t in found.times_s] == [round(t, 3) for t in before.times_s]
        assert track.language == ("fra" if extension == "mov" else "fre")


@pytest.mark.parametrize("extension", ["mp4", "mkv"])
def test_cover_art_is_kept(everything: Path, tmp_path: Path, extension: str) -> None:
    """The cover is the same byte for byte, and still a cover; the tags are kept."""
    carried = carry(everything, tmp_path / f"out.{extension}")

    (cover,) = carried.output.of_kind(TrackKind.COVER)
    assert payload(carried.path, cover).packets == [JPEG]
    assert dict(carried.output.tags)["title"] == "All of it"
    assert [dict(c.tags)["title"] for c in carried.output.chapters] == ["First"]


def test_aac_survives_a_transport_stream_and_back(film: Path, tmp_path: Path) -> None:
    """ADTS headers are added and removed; the frames between them are unchanged."""
    there = carry(film, tmp_path / "there.ts")
    back = carry(tmp_path / "there.ts", tmp_path / "back.mp4")

    first, last = there.source.of_kind(TrackKind.AUDIO)[0], back.output.of_kind(TrackKind.AUDIO)[0]
    assert payload(str(film), first).packets == payload(back.path, last).packets


@pytest.fixture
def broken_sound(tmp_path: Path, film: Path) -> Path:
    """Sound that starts 0.7 s late and lacks 20 packets in the middle."""
    path = tmp_path / "broken.mkv"
    with av.open(str(film)) as source, av.open(str(path), "w", format="matroska") as file:
        sound = source.streams.audio[0]
        stream: Any = file.add_mux_stream("aac")
        copy_parameters(stream, sound)
        for number, packet in enumerate(p for p in source.demux(sound) if p.size):
            if 50 <= number < 70:
                continue
            packet.stream = stream
            shift = round(Fraction(7, 10) / packet.time_base)
            packet.pts = packet.dts = (packet.pts or 0) + shift
            file.mux(packet)
    return path


@pytest.mark.parametrize("extension", ["mp4", "mkv", "ts"])
def test_late_starts_and_gaps_are_kept(broken_sound: Path, tmp_path: Path, extension: str) -> None:
    """Late starts and gaps keep their lengths."""
    carried = carry(broken_sound, tmp_path / f"out.{extension}")

    assert check_copies(carried)
    times_s = payload(carried.path, carried.output.of_kind(TrackKind.AUDIO)[0]).times_s
    steps = [b - a for a, b in pairwise(times_s)]
    assert abs(max(steps) - 21 * Fraction(1024, 48_000)) <= 2 * MILLISECOND


@pytest.mark.parametrize("extension", ["mp4", "mkv", "ts"])
def test_a_part_starts_where_it_was_asked_to(film: Path, tmp_path: Path, extension: str) -> None:
    """A part keeps its packets of sound, at their times relative to its start."""
    start_s, end_s = Fraction(21, 10), Fraction(43, 10)
    carried = carry(film, tmp_path / f"out.{extension}", start_s=start_s, end_s=end_s)

    before = payload(str(film), carried.source.of_kind(TrackKind.AUDIO)[0])
    after = payload(carried.path, carried.output.of_kind(TrackKind.AUDIO)[0])
    first = before.packets.index(after.packets[0])
    assert before.packets[first : first + len(after.packets)] == after.packets
    assert abs(before.times_s[first] - start_s - after.times_s[0]) <= MILLISECOND
    packet_s = Fraction(1024, 44_100)
    assert -packet_s <= after.times_s[0] <= packet_s
    assert abs(after.times_s[-1] - (end_s - start_s)) <= packet_s
