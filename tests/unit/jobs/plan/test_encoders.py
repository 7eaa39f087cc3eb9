"""Which encoder writes a track: the requested one, the fleet's choice, or software after a GPU fails."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet import Fleet, Planned, Report, TranscodeSpec, Warned
from codecfleet.actors.device.encoder_offer import DescribeEncoder
from codecfleet.actors.device.work import Work
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.segment.encoding import EncodeSegment
from codecfleet.cluster.fleet.pool import Asked as PoolDemand
from codecfleet.cluster.fleet.pool import JobState, PoolState
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.preview import PlacementPreview
from codecfleet.errors import FleetUnavailable, ProofFailed, SegmentFailed, Unsupported
from codecfleet.jobs.board import loop as board_loop
from codecfleet.jobs.plan.placing import demand_of, settled_demand
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look
from codecfleet.testing.nvidia.fake_device import FakeDevice

ADA = EncoderKind("nvenc", "ada", "580")
GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=2"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip that is cut into several segments."""
    clip = Clip(times=constant_times(30), options=(("x264-params", GOP),), width=96, height=64)
    return make_clip(tmp_path_factory.mktemp("encoders") / "clip.mkv", clip)


class Asked(LocalPool):
    """A pool with a GPU that remembers the questions before any work, and what jobs expected and forgot."""

    def __init__(self, device: FakeDevice, kind: EncoderKind | None = ADA) -> None:
        super().__init__(2, device=device.gpu, kind=kind)
        self.asked: list[Demand] = []
        self.has_begun = False
        self.expected: dict[str, Demand] = {}

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Note it."""
        self.asked += [] if self.has_begun else [demand]
        return await super().preview(demand)

    def set_demand(self, job: str, demand: PoolDemand | None) -> None:
        """Note it."""
        self.expected.pop(job, None)
        if isinstance(demand, Demand):
            self.expected[job] = demand
            self.has_begun = True


def spec_of(source: Path, output: Path, **changes: object) -> TranscodeSpec:
    """Return a request with segments of half a second."""
    wanted = {"source": str(source), "output": str(output), "segment_s": Fraction(1, 2), "preset": 1, **changes}
    return TranscodeSpec.model_validate(wanted)


async def run(pool: LocalPool, spec: TranscodeSpec) -> Report:
    """Run one job."""
    async with Fleet(pool=pool) as fleet:
        return await (await fleet.transcode(spec))


def frames_in(path: Path) -> int:
    """Return how many pictures a file has."""
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


@pytest.mark.parametrize("encoder", ["auto", "nvenc"])
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
async def test_a_job_is_bound_to_the_kind_that_the_fleet_names(
    source: Path, tmp_path: Path, encoder: str, codec: str
) -> None:
    """If NVENC would finish first, or is requested, it writes every segment, and the report names it."""
    pool = Asked(FakeDevice())
    report = await run(pool, spec_of(source, tmp_path / "out.mkv", encoder=encoder, codec=codec))
    assert report.encoder_kind.startswith(f"{codec}_nvenc PyNvVideoCodec-2.2.4 ada r580 ")
    assert {segment.decoded_by for segment in report.segments} == {"nvdec"}
    assert frames_in(tmp_path / "out.mkv") == report.frames == 30
    assert [demand.encoder.value for demand in pool.asked] == [encoder]
    assert pool.expected == {}


async def test_the_same_bytes_on_any_worker(source: Path, tmp_path: Path) -> None:
    """One encoder kind gives one file, whether NVDEC decodes for it or not."""
    hashes = set()
    for number, supported in enumerate((None, frozenset[str]())):
        device = FakeDevice()
        if supported is not None:
            device.decoder.supported = supported
        output = tmp_path / f"{number}.mkv"
        await run(Asked(device), spec_of(source, output, encoder="nvenc"))
        hashes.add(output.read_bytes())
    assert len(hashes) == 1


@pytest.mark.parametrize("changes", [{"encoder": "software"}, {"device": "cpu"}, {"codec": "vp9"}])
async def test_software_is_not_asked_about(source: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    """A job that a GPU cannot or must not encode asks no worker."""
    pool = Asked(FakeDevice())
    report = await run(pool, spec_of(source, tmp_path / "out.mkv", **changes))
    assert "nvenc" not in report.encoder_kind
    assert pool.asked == []


async def test_what_the_fleet_has_not_got_is_refused(source: Path, tmp_path: Path) -> None:
    """A job that requires NVENC fails if there is none, and leaves nothing behind."""
    with pytest.raises(Unsupported, match="no NVENC is available: no device of this fleet has an NVENC"):
        await run(Asked(FakeDevice(), kind=None), spec_of(source, tmp_path / "out.mkv", encoder="nvenc"))
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"codec": "vp9"}, "NVENC has no vp9 encoder"),
        ({"pix_fmt": "yuv420p12le", "codec": "hevc"}, "NVENC does not encode hevc in yuv420p12le"),
        ({"scale": (63, 33), "pix_fmt": "yuv420p", "codec": "av1"}, "NVENC does not take "),
    ],
)
async def test_what_no_nvenc_encodes_is_refused(
    source: Path, tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    """A job that requires NVENC fails before any worker is asked if no GPU could encode it."""
    pool = Asked(FakeDevice())
    with pytest.raises(Unsupported, match=f"NVENC cannot encode this track: {reason}"):
        await run(pool, spec_of(source, tmp_path / "out.mkv", encoder="nvenc", **changes))
    assert pool.asked == []


class Deaf(Asked):
    """A pool whose supervisor does not answer."""

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Know nothing."""
        return replace(await super().preview(demand), unknown="it is gone", encoder_kind=None)


class Strange(Asked):
    """A pool whose NVENC writes one segment with other parameter sets."""

    async def result_of(self, work: Work[Any], look: Look) -> Any:
        """Change them."""
        result = await super().result_of(work, look)
        if isinstance(work, EncodeSegment) and work.encoder.on_device and work.segment == 1:
            return replace(result, extradata=result.extradata + b"!")
        return result


def denied() -> LocalPool:
    """Return a pool whose driver refuses the encoder that the tables promise."""
    device = FakeDevice()
    device.encoder.capabilities = {}
    return Asked(device)


@pytest.mark.parametrize(
    ("pool", "message", "error"),
    [
        (lambda: Deaf(FakeDevice()), "the fleet cannot say which encoder to use: it is gone", FleetUnavailable),
        (denied, "this GPU has no h264 encoder", Unsupported),
        (lambda: Strange(FakeDevice()), "segment 1 was encoded with different parameter sets", ProofFailed),
    ],
)
async def test_software_replaces_an_nvenc_that_is_not_required(
    source: Path, tmp_path: Path, pool: Callable[[], LocalPool], message: str, error: type[Exception]
) -> None:
    """With auto, a failing NVENC costs a warning and the work so far; a job that requires NVENC fails."""
    report = await run(pool(), spec_of(source, tmp_path / "auto.mkv"))
    assert report.encoder_kind.startswith("libx264")
    assert [each.message.endswith(message) for each in report.warnings if each.code == "encoder"] == [True]
    with pytest.raises(error, match=message):
        await run(pool(), spec_of(source, tmp_path / "required.mkv", encoder="nvenc"))


async def test_a_promised_nvenc_that_never_comes_leaves_the_track_to_software(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a promised NVENC never comes, auto begins in software, and a job that requires NVENC ends with the reason."""
    monkeypatch.setattr(board_loop, "WAITING_S", 0)
    asked = asyncio.Event()
    reason = "no GPU became available for it within 30 s: Ray has given it to others"

    class Promised(Asked):
        @property
        def state(self) -> PoolState:
            asked.set()
            return replace(super().state, others=JobState(1, 1, waits_for="Ray has given it to others"))

        async def result_of(self, work: Work[Any], look: Look) -> Any:
            if isinstance(work, DescribeEncoder):
                await asked.wait()
                raise FleetUnavailable(reason)
            return await super().result_of(work, look)

    async with Fleet(pool=Promised(FakeDevice())) as fleet:
        job = await fleet.transcode(spec_of(source, tmp_path / "out.mkv"))
        waits = [event async for event in job.events() if isinstance(event, Warned) and event.code == "waiting"]
        report = await job
    assert [event.message for event in waits] == ["no worker yet: Ray has given it to others"]
    assert report.encoder_kind.startswith("libx264")
    (warning,) = [warning for warning in report.warnings if warning.code == "encoder"]
    assert warning.message == f"software encodes: {reason}"
    with pytest.raises(FleetUnavailable, match="no GPU became available for it"):
        await run(Promised(FakeDevice()), spec_of(source, tmp_path / "required.mkv", encoder="nvenc"))


async def test_a_device_without_kernels_leaves_scaling_to_software(source: Path, tmp_path: Path) -> None:
    """If the device's filters cannot be compiled, NVENC still encodes, and the kind names what scaled."""
    device = FakeDevice()
    device.gpu = Gpu(lambda: replace(device.opened(), converts=False))
    report = await run(Asked(device), spec_of(source, tmp_path / "scaled.mkv", encoder="nvenc", scale=(160, 96)))
    assert report.encoder_kind.startswith("h264_nvenc")
    assert report.encoder_kind.endswith("software-filters")
    plain = await run(Asked(device), spec_of(source, tmp_path / "plain.mkv", encoder="nvenc"))
    assert "filters" not in plain.encoder_kind
    assert {segment.decoded_by for segment in plain.segments} == {"nvdec"}


async def test_software_restarts_what_a_gpu_cannot_finish(source: Path, tmp_path: Path) -> None:
    """After a GPU failure software writes the whole track, as if nothing else had been tried."""
    device = FakeDevice()
    device.encoder.faults = {"nvEncEncodePicture": 8}
    report = await run(Asked(device), spec_of(source, tmp_path / "auto.mkv"))
    await run(LocalPool(2), spec_of(source, tmp_path / "software.mkv", encoder="software"))
    assert (tmp_path / "auto.mkv").read_bytes() == (tmp_path / "software.mkv").read_bytes()
    (warning,) = [warning for warning in report.warnings if warning.code == "encoder"]
    assert warning.message.startswith("software encodes the track from its start: segment ")
    async with Fleet(pool=Asked(device)) as fleet:
        job = await fleet.transcode(spec_of(source, tmp_path / "told.mkv"))
        told = [event async for event in job.events()]
    assert [event.encoder for event in told if isinstance(event, Planned)] == ["h264_nvenc", "libx264"]
    # Another segment may fail first in every run.
    assert [event.code for event in told if isinstance(event, Warned)] == ["encoder"]
    with pytest.raises(SegmentFailed):
        await run(Asked(device), spec_of(source, tmp_path / "required.mkv", encoder="nvenc"))
    assert not (tmp_path / "required.mkv").exists()


def test_a_settled_demand_binds_the_workers(source: Path) -> None:
    """Once the encoder is settled, only workers of that kind may help."""
    plan = plan_transcode(spec_of(source, Path("out.mkv")))
    assert demand_of(plan).encoder is EncoderChoice.AUTO
    assert settled_demand(plan, "j").encoder is EncoderChoice.SOFTWARE
    options = plan_transcode(spec_of(source, Path("out.mkv"), encoder_options=(("tune", "grain"),)))
    assert demand_of(options).encoder is EncoderChoice.SOFTWARE


async def test_nvencs_own_settings_reach_it(source: Path, tmp_path: Path) -> None:
    """With NVENC requested, encoder options are NVENC's, and a wrong one is refused by name."""
    device = FakeDevice()
    await run(
        Asked(device),
        spec_of(source, tmp_path / "out.mkv", encoder="nvenc", encoder_options=(("bf", "2"), ("aq", "8"))),
    )
    assert {(made["bf"], made["aq"]) for made in device.encoder.made} == {(2, 8)}
    with pytest.raises(Unsupported, match="NVENC setting qmin"):
        await run(
            Asked(device), spec_of(source, tmp_path / "wrong.mkv", encoder="nvenc", encoder_options=(("qmin", "3"),))
        )


async def test_a_leaky_bucket_is_kept_over_the_join(source: Path, tmp_path: Path) -> None:
    """A segment that would empty the bucket is encoded again with the bucket's actual fullness."""
    device = FakeDevice()
    rates: dict[str, Any] = {"bitrate_bps": 20_000, "maxrate_bps": 20_000, "bufsize_bits": 20_000}
    report = await run(Asked(device), spec_of(source, tmp_path / "out.mkv", encoder="nvenc", **rates))
    assert frames_in(tmp_path / "out.mkv") == report.frames
    fullness = [made["vbvinit"] for made in device.encoder.made]
    assert all(0 < bits <= 20_000 for bits in fullness)
