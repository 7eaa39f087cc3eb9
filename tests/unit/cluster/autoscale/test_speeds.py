"""The speed of a group's nodes for a job, and the choice of the job's encoder."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.cluster.autoscale.config import AutoscaleConfig, load_autoscale
from codecfleet.cluster.autoscale.speeds import Speeds, choose
from codecfleet.cluster.placement.assign import place
from codecfleet.cluster.placement.model import Demand, EncoderChoice, Inventory, Placement, Policy, Rendition
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report import CodecCase, Direction, MediaCodec


@pytest.fixture(name="config")
def _config(repository: Path) -> AutoscaleConfig:
    return load_autoscale(repository / "configs" / "autoscale.toml")


class Placer:
    """Places jobs at documented rates, and counts the calls."""

    def __init__(self) -> None:
        self.count = 0
        self._rates = start_rates()

    def place(self, demands: object, inventory: Inventory) -> Placement:
        """Place demands."""
        self.count += 1
        assert isinstance(demands, tuple)
        return place(demands, inventory, self._rates, Policy())


def film(segments: int = 400, *, encoder: EncoderChoice = EncoderChoice.SOFTWARE) -> Demand:
    """Return a job that transcodes 1080p from H.264 to HEVC."""
    track = Rendition(case=CodecCase(MediaCodec.HEVC, Direction.ENCODE), width=1920, height=1080, software="libx265")
    return Demand(
        job="film",
        segments=(250,) * segments,
        decode=CodecCase(MediaCodec.H264, Direction.DECODE),
        width=1920,
        height=1080,
        renditions=(track,),
        encoder=encoder,
    )


def test_gpu_that_cannot_encode_counts_as_its_cores(config: AutoscaleConfig) -> None:
    """Eight H100s have no NVENC, so a software job gets what 192 cores encode, and an NVENC job gets nothing."""
    speeds = Speeds(config, Placer().place)
    soft = speeds.work_of(film(), 0.0, 0.0)
    assert 5 < soft.fps["p5"] / soft.fps["cpu"] < 7
    encoded = speeds.work_of(speeds.with_encoder(film(encoder=EncoderChoice.NVENC), 0.0), 0.0, 0.0)
    assert "p5" not in encoded.fps
    assert "has no NVENC" in encoded.refusals["p5"]
    assert encoded.fps["g6e"] > encoded.fps["g6"] > soft.fps["cpu"]


def test_speeds_are_computed_once_a_minute(config: AutoscaleConfig) -> None:
    """Jobs of the same kind share speeds for a minute, so a thousand jobs cost one placement."""
    placer = Placer()
    speeds = Speeds(config, placer.place)
    for number in range(100):
        speeds.work_of(replace(film(number + 1), job=f"film {number}", priority=number), 0.0, 30.0)
    assert placer.count == len(config.groups)
    speeds.work_of(film(), 0.0, 90.0)
    assert placer.count == 2 * len(config.groups)


def test_time_that_a_user_gives_counts(config: AutoscaleConfig) -> None:
    """A job is due after its promised time, counted from the first look; without one, after the configured time."""
    speeds = Speeds(config, Placer().place)
    own = speeds.work_of(replace(film(), finish_within_s=Fraction(600)), 100.0, 150.0)
    assert (own.due_s, own.is_promised) == (700.0, True)
    assert speeds.work_of(film(), 100.0, 150.0).due_s == 100.0 + config.finish_within_s


def test_a_running_segment_counts_as_half_done(config: AutoscaleConfig) -> None:
    """If 100 of 400 segments run, 300 wait, and an eighth of the frames counts as done."""
    found = Speeds(config, Placer().place).work_of(film(400), 0.0, 0.0, running=100)
    assert (found.frames, found.waiting, found.at_once) == (87_500, 300, 400)


def test_cheapest_encoder_in_time_is_chosen(config: AutoscaleConfig) -> None:
    """A job with an open encoder gets NVENC on one node of the cheapest group."""
    speeds = Speeds(config, Placer().place)
    wanted = film(4000, encoder=EncoderChoice.AUTO)
    found = choose(config, speeds, wanted, (), nodes=(), last=None, now_s=0.0)
    kind = found.demand.renditions[0].kind
    assert kind is not None
    assert (kind.implementation, kind.architecture, kind.driver_branch) == ("nvenc", "ada", "580")
    assert [size.group for size in found.decision.sizes if size.wanted] == ["g6"]


def test_software_is_chosen_if_gpus_start_too_late(config: AutoscaleConfig) -> None:
    """If a GPU node would start too late, software is chosen because it is the least late."""
    speeds = Speeds(config, Placer().place)
    wanted = replace(film(40, encoder=EncoderChoice.AUTO), finish_within_s=Fraction(260))
    found = choose(config, speeds, wanted, (), nodes=(), last=None, now_s=0.0)
    assert found.demand.encoder is EncoderChoice.SOFTWARE
    assert [size.group for size in found.decision.sizes if size.wanted] == ["cpu"]


def test_later_work_is_like_the_jobs_of_its_batch(config: AutoscaleConfig) -> None:
    """Later work has the speed of a job of its batch, is due after a job's time, and is served last."""
    speeds = Speeds(config, Placer().place)
    told = replace(film(1), frames_total=5_000_000, workers_max=96, finish_within_s=Fraction(60))
    work, one = speeds.later_work(told, 500.0), speeds.work_of(film(1), 0.0, 0.0)
    assert (work.fps, work.sessions, work.longest_frames) == (one.fps, one.sessions, 250)
    assert (work.frames, work.at_once, work.waiting) == (5_000_000, 96, 96)
    assert (work.due_s, work.is_promised, work.is_later) == (500.0 + config.finish_within_s, False, True)
    open_ = speeds.later_work(replace(told, encoder=EncoderChoice.NVENC), 500.0)
    assert "p5" in open_.refusals
