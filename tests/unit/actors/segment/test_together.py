"""Renditions that share a decode have the bytes, times, counts and seams that each of them has alone."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.decoding import DecodeRange
from codecfleet.actors.device.encoder_offer import EncoderOffer
from codecfleet.actors.device.work import Constraints, WorkContext
from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import EncoderSettings
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.segment import rendition
from codecfleet.actors.segment.encoding import EncodedSegment, EncodeSegment
from codecfleet.actors.segment.frame_rate import KeyframeGrid
from codecfleet.actors.segment.together import EncodeTogether, decodes_alike
from codecfleet.actors.worker.packed_work import BlobCache, unpack
from codecfleet.cluster.placement.model.demand import EncoderKind
from codecfleet.errors import Cancelled, EncoderFailed, EngineFailed, EngineUnfit, SessionLimit, UsageError
from codecfleet.jobs.plan.encoders import with_nvenc
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from codecfleet.testing.nvidia.fake_device import FakeDevice, device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder
from tests.pngs import write_png
from tests.subtitle_tracks import Cue, bars, pgs_packet, with_subtitles
from tests.sweeps import swept

ADA = EncoderKind("nvenc", "ada", "580")
GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3"
OPEN = Clip(times=constant_times(48), options=(("x264-params", f"{GOP}:open-gop=1"),), width=96, height=64)
CLIPS = {
    "open-gop": OPEN,
    "vfr": replace(OPEN, times=uneven_times([40, 33, 7, 80, 400, 21] * 7)),
    "odd-size": replace(OPEN, width=95, height=63, pix_fmt="yuv444p"),
    "fields": replace(OPEN, options=(("x264-params", f"{GOP}:tff=1"),)),
}
RENDITIONS: tuple[dict[str, object], ...] = (
    {},
    {"quality": 40},
    {"scale": (64, 48), "codec": "hevc"},
    {"scale": (48, 32), "pix_fmt": "yuv420p10le", "preset": 3},
)
"""The first two take the decoder's pictures unchanged, if the clip allows this, and so share their pixels."""
OWN_RATE: dict[str, object] = {"fps": Fraction(30), "keyframe_interval_s": Fraction(1, 4)}
NOT_THE_CLOCK = {field.name for field in fields(EncodedSegment)} - {"wall_s", "encode_s"}


def planned(source: Path, **changes: object) -> Plan:
    """Return the plan of a rendition."""
    wanted = {"source": str(source), "output": "out.mkv", "segment_s": Fraction(1, 2), "preset": 1, **changes}
    return plan_transcode(TranscodeSpec.model_validate(wanted))


def on_nvenc(source: Path, **changes: object) -> Plan:
    """Return the plan of a rendition that a fake GPU's NVENC encodes."""
    plan = planned(source, **changes)
    assert plan.nvenc is not None
    capabilities = FakeDevice().gpu.encoder_capabilities(plan.encoder.codec)
    return with_nvenc(plan, plan.nvenc, ADA, EncoderOffer(capabilities, "2.2.4", converts=True))


def together(plans: Sequence[Plan]) -> list[EncodeTogether]:
    """Return the work of all renditions, segment by segment."""
    assert len({len(plan.segments) for plan in plans}) == 1
    return [
        EncodeTogether(
            job="ladder",
            label=f"segment {number}",
            segments=tuple(plan.work(f"job {place}", number, number, 0) for place, plan in enumerate(plans)),
        )
        for number in range(len(plans[0].segments))
    ]


def content(encoded: EncodedSegment) -> dict[str, object]:
    """Return all that must not depend on what is encoded beside it."""
    found = {name: getattr(encoded, name) for name in NOT_THE_CLOCK}
    found = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}
    return found | {"tally": replace(encoded.tally, decode_s=0.0)}


def check(plans: Sequence[Plan], device: Callable[[], Any] = lambda: None) -> list[EncodedSegment]:
    """Check that each rendition has the same result alone and beside the others; return all results."""
    results: list[EncodedSegment] = []
    for work in together(plans):
        context = WorkContext(device=device())
        found = work.run(context)
        alone = [segment.run(WorkContext(device=device())) for segment in work.segments]
        assert [content(each) for each in found] == [content(each) for each in alone]
        assert context.frames_done == found[0].frames_out
        results += found
    assert sum(each.frames_out for each in results) > 0
    return results


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clip with open groups of pictures."""
    return make_clip(tmp_path_factory.mktemp("together") / "clip.mkv", OPEN)


@pytest.mark.parametrize(
    ("clip", "changes"),
    swept(
        [(clip, changes) for clip in CLIPS for changes in ({}, OWN_RATE)],
        in_ci=True,
        is_slow=lambda case: bool(case[1]) == (case[0] in ("open-gop", "odd-size")),
    ),
)
def test_each_rendition_is_as_alone(tmp_path: Path, clip: str, changes: dict[str, object]) -> None:
    """With any clip, with the source's times or a rate of its own, a rendition does not depend on the others."""
    path = make_clip(tmp_path / "clip.mkv", CLIPS[clip])
    changes = changes | ({"deinterlace": "auto"} if clip == "fields" else {})
    renditions = RENDITIONS[::-1] if "fps" in changes else RENDITIONS
    check([planned(path, **changes, **each) for each in renditions])


def test_renditions_without_filters_share_the_pixels(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two encoders get the same pixels, at other times and with other keyframes, and neither sees the other's."""
    taken: dict[str, list[int]] = {}

    class Noting(SoftwareEncoder):
        def encode(self, picture: VideoFrame, *, keyframe: bool = False, **how: Any) -> list[EncodedPacket]:
            taken.setdefault(self.name, []).append(picture.planes[0].buffer_ptr)
            return super().encode(picture, keyframe=keyframe, **how)

    (work,) = together([planned(source, segment_s=Fraction(9)), planned(source, segment_s=Fraction(9), codec="hevc")])
    later = replace(work.segments[1], keyframes=KeyframeGrid(first_ticks=0, interval_ticks=Fraction(280)))
    work = replace(work, segments=(work.segments[0], later))
    monkeypatch.setattr(rendition, "SoftwareEncoder", Noting)
    found = work.run(WorkContext())
    assert taken["libx264"] == taken["libx265"]
    assert [content(each) for each in found] == [content(segment.run(WorkContext())) for segment in work.segments]
    assert [int(each.keyframes.sum()) for each in found] == [1, 7]


def test_damage_counts_for_each_rendition(tmp_path: Path) -> None:
    """A film with damage in the middle, with and without a rate of its own."""
    path = make_clip(tmp_path / "clip.mkv", OPEN)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(600)
    path.write_bytes(data)
    for changes in ({}, {"fps": Fraction(50)}):
        found = check([planned(path, **changes, **each) for each in RENDITIONS])
        assert any(each.tally.damaged for each in found)


def test_what_is_drawn_for_one_rendition_is_not_seen_in_another(tmp_path: Path) -> None:
    """Overlays and subtitles are drawn beside renditions that take the same pictures without them."""
    cue = Cue(Fraction(1, 5), pgs_packet((96, 64), [(10, 4, bars(40, 20))]))
    path = with_subtitles(make_clip(tmp_path / "clip.mp4", OPEN), tmp_path / "both.mkv", [("pgssub", "eng", (cue,))])
    drawn = {"overlay": str(write_png(tmp_path / "logo.png"))}
    burnt = {"burn_subtitles": 0}
    for renditions in ([{}, burnt, drawn, {}], [drawn | burnt, {}, burnt | {"scale": (64, 48)}]):
        found = check([planned(path, **each) for each in renditions])
        first, other = found[0], found[1]
        assert first.payload.tobytes() != other.payload.tobytes()


def test_filters_with_memory_look_around_the_segment_once_for_all(source: Path) -> None:
    """Deinterlaced renditions get the pictures around the segment, of which none is encoded."""
    check([planned(source, deinterlace="on", **each) for each in RENDITIONS])
    check([planned(source, deinterlace="on", fps=Fraction(30), **each) for each in RENDITIONS])


@pytest.mark.parametrize(
    "renditions",
    [
        ({}, {"quality": 40}),
        ({}, {"scale": (64, 48), "codec": "hevc"}, {"pix_fmt": "yuv420p10le", "codec": "hevc"}),
        ({"deinterlace": "on"}, {"deinterlace": "on", "scale": (64, 48)}),
    ],
)
def test_a_device_that_encodes(source: Path, renditions: tuple[dict[str, object], ...]) -> None:
    """NVDEC decodes once for all sessions of NVENC; if it cannot, software's pictures are copied to the device once."""
    plans = [on_nvenc(source, **each) for each in renditions]
    decoded = check(plans, lambda: FakeDevice().gpu)
    assert {each.tally.decoded_by for each in decoded} == {"nvdec"}
    for work in together(plans):
        device = FakeDevice()
        work.run(WorkContext(device=device.gpu))
        assert (device.decoder.decoders_made, device.encoder.open_sessions) == (1, 0)
        device.decoder.supported = frozenset()
        broken = work.run(WorkContext(device=device.gpu))
        assert {each.tally.decoded_by for each in broken} == {"software"}


def test_a_device_that_only_decodes(source: Path) -> None:
    """A GPU decodes once for all software encoders."""
    plans = [planned(source, **each) for each in RENDITIONS]
    decoded = check(plans, lambda: device_with(SurfaceDecoder()))
    assert {each.tally.decoded_by for each in decoded} == {"nvdec"}
    device = SurfaceDecoder()
    work = together(plans)[0]
    work.run(WorkContext(device=device_with(device)))
    alone = SurfaceDecoder()
    work.segments[0].run(WorkContext(device=device_with(alone)))
    assert device.pictures == alone.pictures


@pytest.mark.parametrize("after", [0, 11])
def test_software_starts_over_for_all_renditions(source: Path, after: int) -> None:
    """If the device fails, no rendition keeps what it has encoded, each names the fault, and frames count once."""
    work = together([planned(source, **each) for each in RENDITIONS])[1]
    wanted = work.run(WorkContext())
    context = WorkContext(frames_done=100, device=device_with(SurfaceDecoder(EngineFailed("it gave up"), after)))
    found = work.run(context)
    for one, other in zip(found, wanted, strict=True):
        assert (one.device_fault, one.tally.fallback) == ("it gave up", "it gave up")
        told = replace(one, device_fault="", tally=replace(one.tally, fallback=""))
        assert content(told) == content(other)
    assert context.frames_done == 100 + wanted[0].frames_out


def test_a_conversion_that_fails_on_the_device_is_no_fault_of_the_encoder(source: Path) -> None:
    """A picture that the device does not convert for one rendition makes software decode for all of them."""
    work = together([on_nvenc(source), on_nvenc(source, scale=(64, 48))])[0]

    def refuse(*_: object) -> None:
        raise EngineFailed("no conversion")

    device = FakeDevice()
    device.gpu.open_conversion = refuse  # type: ignore[method-assign,assignment] # a device that fails
    with pytest.raises(EngineFailed, match="no conversion"):
        work.run(WorkContext(device=device.gpu))
    assert device.encoder.open_sessions == 0
    assert len(device.encoder.made) == 4, "both renditions began again with software's pictures"


def test_progress_counts_what_all_have_done(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rendition's encoder that holds many pictures holds the count back; no step is longer than what may wait."""
    seen: list[int] = []
    first_drained: list[int] = []

    class Watched(WorkContext):
        def advance(self, frames: int = 1) -> None:
            super().advance(frames)
            seen.append(self.frames_done)

    class Holding(SoftwareEncoder):
        def remaining(self) -> Iterator[EncodedPacket]:
            first_drained.append(seen[-1])
            yield from super().remaining()

    monkeypatch.setattr(rendition, "SoftwareEncoder", Holding)
    plans = [planned(source, segment_s=Fraction(9), preset=preset) for preset in (1, 3)]
    (work,) = together(plans)
    work.run(Watched())
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 48)
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 4
    assert first_drained[0] < 36


def test_cancelled_work_ends_and_closes_all_encoders(source: Path) -> None:
    """The work ends at the next picture."""
    device = FakeDevice()
    context = WorkContext(device=device.gpu)
    context.cancel()
    with pytest.raises(Cancelled):
        together([on_nvenc(source), on_nvenc(source, scale=(64, 48))])[0].run(context)
    assert len(device.encoder.made) == 2
    assert device.encoder.open_sessions == 0


def test_an_encoder_that_fails_ends_all(source: Path) -> None:
    """The error of one rendition's encoder ends the work, and software does not decode again."""
    device = FakeDevice()
    device.encoder.faults = {"nvEncEncodePicture": 8}
    work = together([on_nvenc(source), on_nvenc(source, scale=(64, 48))])[0]
    with pytest.raises(EngineFailed):
        work.run(WorkContext(device=device.gpu))
    assert (device.decoder.decoders_made, len(device.encoder.made)) == (1, 2)


def test_a_software_encoder_that_fails_names_its_segment(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that one encoder swallows is noticed, although the other rendition is complete."""

    class Swallowing(SoftwareEncoder):
        def encode(self, picture: VideoFrame, **how: Any) -> list[EncodedPacket]:
            packets = super().encode(picture, **how)
            return packets[1:] if self.name == "libx265" else packets

    monkeypatch.setattr(rendition, "SoftwareEncoder", Swallowing)
    work = together([planned(source), planned(source, codec="hevc")])[1]
    with pytest.raises(EncoderFailed, match=r"segment 1: .* frames went in and .* came out"):
        work.run(WorkContext())
    assert work.segments[0].run(WorkContext()).frames_out > 0


def test_a_session_that_is_missing_closes_the_others(source: Path) -> None:
    """While a limit allows fewer sessions than there are renditions, the work holds nothing and may wait."""
    device = FakeDevice()
    device.encoder.sessions_max = 1
    work = together([on_nvenc(source), on_nvenc(source, scale=(64, 48))])[0]
    assert work.may_wait
    with pytest.raises(SessionLimit):
        work.run(WorkContext(device=device.gpu))
    assert device.encoder.open_sessions == 0


def test_every_rendition_needs_its_library(source: Path) -> None:
    """No picture is decoded if one of the encoders is of another version."""
    work = together([planned(source), planned(source, codec="hevc")])[0]
    other = replace(work, segments=(work.segments[0], replace(work.segments[1], library="another")))
    with pytest.raises(EngineUnfit, match="the track is encoded with another"):
        other.run(WorkContext())


def test_the_work_is_sent_like_any_other(source: Path) -> None:
    """It is a value that can be pickled, and names the source."""
    work = together([planned(source, **each) for each in RENDITIONS])[0]
    packed, blobs = BlobCache(bytes).pack(work)
    assert unpack(packed, blobs) == work
    assert work.file == str(source)


def test_shares_of_the_time_add_up(source: Path) -> None:
    """Each rendition counts its encoder's time, and its part of the common work that was not done meanwhile."""
    work = together([planned(source), planned(source, scale=(64, 48))])[0]
    found = work.run(WorkContext())
    assert found[0].tally.decode_s == found[1].tally.decode_s > 0
    rest = [each.wall_s - each.encode_s for each in found]
    assert rest[0] == pytest.approx(rest[1])
    assert rest[0] >= 0


def test_renditions_are_encoded_at_the_same_time(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No encoder waits for another's picture: here, each picture of one is encoded during that of the other."""
    both = threading.Barrier(2, timeout=30)

    class Meeting(SoftwareEncoder):
        def encode(self, picture: VideoFrame, **how: Any) -> list[EncodedPacket]:
            both.wait()
            return super().encode(picture, **how)

    monkeypatch.setattr(rendition, "SoftwareEncoder", Meeting)
    found = together([planned(source), planned(source, scale=(64, 48))])[0].run(WorkContext())
    assert {each.frames_out for each in found} == {16}


FIRST = DecodeRange(source="film.mkv", stream_index=0, time_base=Fraction(1, 1000), nominal_ticks=Fraction(40))
OTHER_DECODES: dict[str, Callable[[EncodeSegment], EncodeSegment]] = {
    "range": lambda work: replace(work, decode=FIRST),
    "start": lambda work: replace(work, start_ticks=-1),
    "end": lambda work: replace(work, end_ticks=99),
    "numbers": lambda work: replace(work, numbers=(3, 9)),
    "memory": lambda work: replace(work, filters=replace(work.filters, deinterlace="on")),
    "device": lambda work: replace(work, require_device=True),
    "software": lambda work: replace(work, constraints=Constraints(software="it failed")),
    "alone": lambda work: replace(work, constraints=Constraints(alone=True)),
    "apart": lambda work: replace(work, apart_from="segment 3"),
    "metadata": lambda work: replace(work, encoder=replace(work.encoder, dolby_vision=True)),
}
SAME_DECODE: dict[str, Callable[[EncodeSegment], EncodeSegment]] = {
    "job": lambda work: replace(work, job="other", label="other", traceparent="other"),
    "cores": lambda work: replace(work, cores=4),
    "encoder": lambda work: replace(work, encoder=replace(work.encoder, threads=3)),
    "filters": lambda work: replace(work, filters=replace(work.filters, denoise="light")),
}


@given(
    st.sets(st.sampled_from(sorted(OTHER_DECODES))),
    st.sets(st.sampled_from(sorted(OTHER_DECODES))),
    st.sets(st.sampled_from(sorted(SAME_DECODE))),
)
def test_only_what_decoding_depends_on_must_be_alike(
    source: Path, one: set[str], two: set[str], same: set[str]
) -> None:
    """Two segments decode alike if, and only if, they differ in nothing that the pictures or their place depend on."""

    def made(changes: set[str]) -> EncodeSegment:
        work = base
        for change in sorted(changes):
            work = (OTHER_DECODES | SAME_DECODE)[change](work)
        return work

    base = planned(source).work("job", 1, 1, 0)
    first, second = made(one), made(two | same)
    is_alike = decodes_alike(first, second)
    assert is_alike == decodes_alike(second, first)
    assert decodes_alike(second, second)
    constraint = {"software", "alone"}
    assert is_alike == (one - constraint == two - constraint and first.constraints == second.constraints)


def test_segments_that_decode_differently_are_refused(source: Path) -> None:
    """Otherwise a rendition would silently get another's pictures."""
    first, second = (planned(source).work("job", number, number, 0) for number in (0, 1))
    with pytest.raises(UsageError, match="decoded differently"):
        EncodeTogether(job="job", label="both", segments=(first, second)).run(WorkContext())


def test_encoders_on_a_device_and_on_cores_do_not_share(source: Path) -> None:
    """A device's encoder takes pictures on the device, if the device converts them."""
    here, there = planned(source).work("job", 0, 0, 0), on_nvenc(source).work("job", 0, 0, 0)
    filtered = on_nvenc(source, denoise="light").work("job", 0, 0, 0)
    assert isinstance(there.encoder, EncoderSettings)
    assert not decodes_alike(here, there)
    assert not decodes_alike(there, filtered)
    assert decodes_alike(there, on_nvenc(source, scale=(64, 48)).work("job", 0, 0, 0))
