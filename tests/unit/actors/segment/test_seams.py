"""Around cuts, x264 and x265 give about the quality of one encode, and a segment's packets need no others."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.bitstream.picture_messages import Messages
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec, EncoderSettings
from codecfleet.actors.quality.measuring import DecodedBack
from codecfleet.actors.segment.burn import BurntSubtitles
from codecfleet.actors.segment.decode_path import encode_paths
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.actors.segment.passes import SegmentPasses, SegmentProgress
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .test_burn import screen_of, subtitle_of

FRAMES = 48
LAST = 6


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clip that is cut in the middle."""
    clip = Clip(times=constant_times(2 * FRAMES), keyframes=frozenset({0, FRAMES}), width=96, height=64)
    return make_clip(tmp_path_factory.mktemp("seams") / "clip.mkv", clip)


def planned(source: Path, codec: Codec, **changes: object) -> Plan:
    """Return a plan with two segments."""
    wanted = {"source": str(source), "output": "out.mkv", "codec": codec, "segment_s": Fraction(2), **changes}
    plan = plan_transcode(TranscodeSpec.model_validate(wanted))
    assert len(plan.segments) == 2
    return plan


def encoded(plan: Plan, encoder: EncoderSettings, segment: int = 0) -> EncodedSegment:
    """Encode a segment with these settings."""
    return replace(plan.work("job", segment, segment, 0), encoder=encoder).run(WorkContext())


def shown(plan: Plan, made: EncodedSegment) -> list[int]:
    """Decode a segment's packets alone, and return the times of its pictures."""
    packets, begin = [], 0
    for ticks, size, is_key in zip(made.pts_ticks, made.sizes_bytes, made.keyframes, strict=True):
        payload = made.payload[begin : begin + size].tobytes()
        packets.append(EncodedPacket(int(ticks), is_keyframe=bool(is_key), payload=payload))
        begin += size
    with DecodedBack(plan.encoder, made.extradata, packets) as decoded:
        return [ticks for ticks, _ in decoded.pictures()]


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
@pytest.mark.parametrize("changes", [{}, {"fps": Fraction(30)}, {"deinterlace": "on"}])
def test_pictures_of_the_seam_leave_no_trace(source: Path, codec: Codec, changes: dict[str, object]) -> None:
    """A segment has the same times as without pictures of the seam, decodes alone, and ends with the film's end."""
    plan = planned(source, codec, **changes)
    assert plan.encoder.ahead_frames > 0
    for segment in range(2):
        made = encoded(plan, plan.encoder, segment)
        apart = encoded(plan, replace(plan.encoder, ahead_frames=0), segment)
        assert sorted(made.pts_ticks) == sorted(apart.pts_ticks) == shown(plan, made)
        assert made.keyframes.tolist()[0]
        assert (made.tally.frames, made.tally.seam_after) == (apart.tally.frames, apart.tally.seam_after)
        assert (made.payload.tobytes() == apart.payload.tobytes()) == (segment == 1)


class Kept:
    """A sink that keeps the pictures of the seam."""

    done = 0

    def __init__(self) -> None:
        self.followed: list[VideoFrame] = []

    def take(self, _ticks: int, _picture: VideoFrame, _messages: Messages = (), /) -> None:
        """Leave a picture of the segment out."""

    def follow(self, pictures: Sequence[VideoFrame], /) -> None:
        """Keep the pictures of the seam."""
        self.followed += pictures

    def drain(self) -> bool:
        """Return False."""
        return False


def test_pictures_of_the_seam_have_the_subtitle_that_is_on_screen(source: Path) -> None:
    """An encoder would otherwise see it vanish at each cut."""
    plan = planned(source, Codec.H264, preset=2)
    work, seen = plan.work("job", 0, 0, 0), []
    white = np.full((64, 96, 4), 255, np.uint8)
    subtitle = subtitle_of(white, canvas=(96, 64), shown_s=(Fraction(0), Fraction(9)))
    for subtitles in ((), (subtitle,)):
        burn = BurntSubtitles(source_index=0, track="", sha256="", screen=screen_of((96, 64)), subtitles=subtitles)
        made = replace(work, filters=replace(work.filters, burn=burn)).rendition
        with encode_paths(None, made.encoder, made.filters, require_device=False, software="") as paths:
            passes = SegmentPasses(
                work.decode,
                made.interval,
                next(iter(paths)),
                "",
                SegmentProgress(WorkContext(), Fraction(1)),
                leads=False,
            )
            sink = Kept()
            passes.walk([(made, sink)])
        seen.append([each.to_ndarray()[:64].min() for each in sink.followed])
    assert seen[0]
    assert max(seen[0]) < 200
    assert min(seen[1]) > 200


def panned(path: Path) -> Path:
    """Write a film that pans over one texture, with a keyframe in the middle."""
    texture = np.random.default_rng(1).integers(60, 200, (24, 64)).repeat(4, axis=0).repeat(4, axis=1).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"qp": "0", "g": str(FRAMES), "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for count in range(2 * FRAMES):
            planes = np.full((144, 128), 128, np.uint8)
            planes[:96] = texture[:, count : count + 128]
            container.mux(stream.encode(VideoFrame.from_ndarray(planes, "yuv420p")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
def test_the_last_pictures_get_as_many_bits_as_others(tmp_path: Path, codec: Codec) -> None:
    """An encoder that sees the seam gives the last pictures of a segment more bits."""
    plan = planned(panned(tmp_path / "pan.mkv"), codec, preset=2)

    def last_bytes(made: EncodedSegment) -> int:
        return int(made.sizes_bytes[made.pts_ticks.argsort()][-LAST:].sum())

    made = encoded(plan, plan.encoder)
    assert last_bytes(made) > 1.1 * last_bytes(encoded(plan, replace(plan.encoder, ahead_frames=0)))


def test_x264_spares_no_bits_in_the_first_picture(source: Path) -> None:
    """A segment's first picture is as fine as a keyframe within a track, unless options decide otherwise."""
    zones = {
        name: "zones=0,0,b=1.4" in dict(planned(source, Codec.H264, **changes).encoder.options)["x264-params"]
        for name, changes in {
            "quality": {},
            "maxrate": {"maxrate_bps": 300_000, "bufsize_bits": 300_000},
            "bitrate": {"bitrate_bps": 300_000},
            "ultrafast": {"preset": 1},
            "own": {"encoder_options": (("tune", "grain"),)},
        }.items()
    }
    assert zones == {"quality": True, "maxrate": True, "bitrate": True, "ultrafast": False, "own": False}
