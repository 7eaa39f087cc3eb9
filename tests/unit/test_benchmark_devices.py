"""Benchmarks of devices: decoding, the same bytes with and without a GPU, and live health."""

import os
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from bench.contenders import Contender, entrants
from bench.decode_fleet import SessionCounts
from bench.decode_table import compare_rows, session_excess, target_lines, targets
from bench.decode_work import DecodeOnly
from bench.failures import CommandFailed
from bench.host_use import Counts, counts_in
from bench.media import loop_clip, read_video, scale_clip
from bench.program import FILM
from bench.same_bytes import Verdict, earlier_rows, gpu_unsupported_reason, smallest_first, verdict_of
from bench.speed import differences, ratio_lines, ratios
from bench.stack_sampler import STAGES, StackSampler, add_profiles
from bench.table import save_results, spread
from live_health import judge_slots

from codecfleet.actors.device.work import WorkContext
from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.errors import EngineUnfit

from .test_benchmarks import record


def row(what: str, gpus: int, fps: float) -> dict[str, Any]:
    """Return a row of the decoding benchmark."""
    return {"what": what, "gpus": gpus, "sessions": 7, "fps": spread([fps]), "nvdec_percent": [90] * gpus}


def test_the_hosts_use_is_read_from_what_linux_counts() -> None:
    """Busy is all but idle, waiting for disks and stolen time; a guest's time is counted with the user's already."""
    counts = counts_in("cpu  1000 200 300 90000 5000 10 90 400 77 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n", 3.0)
    assert counts == Counts(busy_s=1600 / os.sysconf("SC_CLK_TCK"), stolen_s=400 / os.sysconf("SC_CLK_TCK"), at_s=3.0)


class TestDecoding:
    """What the decoding benchmark makes of its rows."""

    def test_shares_and_scaling(self) -> None:
        """Shares are of the best raw figure on as many GPUs, scaling over the same way's best on the fewest."""
        rows = [
            row("raw, device", 1, 900),
            row("raw, device", 1, 1000),
            row("worker, host, one stream", 1, 950),
            row("raw, device", 4, 3600),
            row("worker, host, one stream", 4, 3420),
        ]
        compare_rows(rows)
        assert [one["of_best_raw"] for one in rows] == pytest.approx([0.9, 1, 0.95, 1, 0.95])
        assert rows[2]["scaling"] is None
        assert [one["scaling"] for one in rows[3:]] == pytest.approx([0.9, 0.9])

    def test_targets(self) -> None:
        """Each target that was measured is met or missed by its own rule, and others are left out."""
        rows = [
            row("raw, device", 1, 1000),
            row("worker, device, one stream", 1, 980),
            row("worker, host, one stream", 1, 900),
            row("worker, host, 2 s segments", 1, 850),
        ]
        found = targets(rows, [0.1, 0.6], {"GPU-1": SessionCounts(made=14, at_once=14)})
        assert [(one["value"], one["is_met"]) for one in found] == [
            (pytest.approx(0.98), True),
            (pytest.approx(0.9), False),
            (pytest.approx(0.85 / 0.9), True),
            (0.6, False),
            (1.0, True),
        ]
        assert "MISSED" in target_lines(found)[3]

    def test_scaling_targets(self) -> None:
        """With several numbers of GPUs each way has a target for its scaling."""
        rows = [row("raw, device", 1, 1000), row("raw, device", 4, 3960)]
        assert [(one["what"], one["value"]) for one in targets(rows, [], {})] == [
            ("raw, device: 4 GPUs over 1", pytest.approx(0.99))
        ]

    def test_too_many_sessions(self) -> None:
        """A worker that made more sessions than it had threads at work is named."""
        counts = {"GPU-1": SessionCounts(made=7, at_once=7), "GPU-2": SessionCounts(made=8, at_once=7)}
        assert session_excess(counts) == ["GPU-2: 8 sessions for 7 threads"]

    def test_work_without_a_gpu(self) -> None:
        """Decoding on a worker that has no GPU is refused, not done in software."""
        work = DecodeOnly(job="bench", label="one", ranges=())
        with pytest.raises(EngineUnfit, match="no GPU"):
            pickle.loads(pickle.dumps(work)).run(WorkContext())  # noqa: S301 - made here

    def test_profiles(self) -> None:
        """What a thread does is found by its innermost line that belongs to a stage."""
        with StackSampler(interval_s=0.0005) as sampler:
            while not sampler.samples:
                pass
        profile = sampler.profile()
        assert set(profile.stages_s) == {"other"}
        assert profile.stages_s["other"] == pytest.approx(sampler.wall_s)
        total = add_profiles([profile, profile])
        assert total.stages_s["other"] == pytest.approx(2 * sampler.wall_s)

    def test_stages_are_modules(self, repository: Path) -> None:
        """A module that moves takes its stage with it."""
        assert [name for name in STAGES if not any(repository.glob(f"actors/**/{name}.py"))] == []


def outcome(sha256: str = "", error: str = "") -> dict[str, Any]:
    """Return what became of a file on one device."""
    return {"error": error, "message": "no"} if error else {"sha256": sha256, "decoded_by": {"nvdec": 3}}


class TestSameBytes:
    """Comparing outputs with and without a GPU."""

    @pytest.mark.parametrize(
        ("outcomes", "verdict"),
        [
            ({"auto": outcome("a"), "cpu": outcome("a")}, Verdict.SAME),
            ({"auto": outcome("b"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "gpu": outcome("b"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome(error="NoVideoTrack"), "cpu": outcome(error="NoVideoTrack")}, Verdict.REFUSED),
            ({"auto": outcome(error="DeviceLost"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "cpu": outcome(error="NoVideoTrack")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "gpu": outcome(error="Unsupported"), "cpu": outcome("a")}, Verdict.NO_GPU),
            ({"auto": outcome("b"), "gpu": outcome(error="Unsupported"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"gpu": outcome(error="DeviceLost"), "cpu": outcome("a")}, Verdict.DIFFERENT),
        ],
    )
    def test_verdicts(self, outcomes: dict[str, dict[str, Any]], verdict: Verdict) -> None:
        """Only equal bytes are the same, and only ``--device gpu`` may be refused alone."""
        assert verdict_of(outcomes) is verdict

    def test_encoders_of_their_own(self) -> None:
        """What a GPU's encoder wrote is not compared with software's bytes, and is not called the same."""
        own, plain = outcome("b") | {"encoder_kind": "nvenc"}, outcome("a") | {"encoder_kind": "libx264"}
        assert verdict_of({"auto": own, "cpu": plain}) is Verdict.OTHER_ENCODER

    def test_reasons_of_gpus(self) -> None:
        """Why no GPU was asked is what its engines cannot do, and nothing where one would take the file."""
        node = inventory_of_fleet(load_fleet("h200-l40s")).nodes[0]
        gpus = tuple(replace(device, node="here") for device in node.devices if device.kind is not DeviceKind.CPU)
        assert gpu_unsupported_reason(plain_demand("one", 1), gpus) == ""
        av1 = replace(plain_demand("one", 1), decode=CodecCase(MediaCodec.AV1, Direction.DECODE))
        assert "NVDEC" in gpu_unsupported_reason(av1, gpus)
        assert gpu_unsupported_reason(av1, ()) == "this machine has no GPU"

    def test_order_and_resumption(self, tmp_path: Path) -> None:
        """The smallest file goes first, and what an earlier run with the same settings did is not done again."""
        for name, size in (("a", 30), ("b", 10), ("c", 20)):
            (tmp_path / name).write_bytes(b"x" * size)
        files = [tmp_path / name for name in "abc"]
        settings = {"preset": 1}
        rows = [{"file": "c", "bytes": 20}, {"file": "b", "bytes": 11}]
        save_results("run", {"settings": settings, "rows": rows}, tmp_path)
        done = earlier_rows(tmp_path / "run.json", settings)
        assert [path.name for path in smallest_first(files, done=done)] == ["b", "a"]
        assert earlier_rows(tmp_path / "run.json", {"preset": 2}) == []
        assert earlier_rows(tmp_path / "none.json", settings) == []


class TestDevices:
    """codecfleet on several devices in one run."""

    def test_entrants(self) -> None:
        """Codecfleet runs once for each device, everybody else once, in turn."""
        names = [one.name for one in entrants(tuple(Contender), ("auto", "cpu"))]
        assert names == ["codecfleet auto", "codecfleet cpu", "ffmpeg", "fan-out"]
        assert [one.name for one in entrants((Contender.FLEET,), ())] == ["codecfleet"]

    def test_ratios_between_devices(self) -> None:
        """Each device is set against those named later and against every peer; warm fleets against warm ones."""
        auto = record("codecfleet auto", 2.0) | {"warm_s": spread([1.0])}
        cpu = record("codecfleet cpu", 4.0) | {"warm_s": spread([3.0])}
        found = ratios([auto, cpu, record("ffmpeg", 2.0)])
        assert [(one["contender"], one["over"], one["work_s"], one["warm_s"]) for one in found] == [
            ("codecfleet auto", "codecfleet cpu", 0.5, pytest.approx(1 / 3)),
            ("codecfleet auto", "ffmpeg", 1.0, 0.5),
            ("codecfleet cpu", "ffmpeg", 2.0, 1.5),
        ]
        assert len(ratio_lines(found)) == 5

    def test_differences(self) -> None:
        """Outputs of one case that are not the same are named with their hashes."""
        one, other = record("codecfleet auto", 1.0), record("codecfleet cpu", 1.0)
        assert differences([one | {"sha256": ["a"]}, other | {"sha256": ["a"]}, record("ffmpeg", 1.0)]) == []
        found = differences([one | {"sha256": ["a"]}, other | {"sha256": ["b"]}])
        assert found == ["x264: codecfleet's outputs differ: codecfleet auto: a; codecfleet cpu: b"]

    def test_scaled_film(self, tmp_path: Path) -> None:
        """A scaled film has the pictures of its source at their times, and is made once."""
        clip = tmp_path / "clip.mp4"
        loop_clip(FILM, Fraction(1, 2), clip)
        scaled = scale_clip(clip, (64, 36), tmp_path)
        made_at = scaled.stat().st_mtime_ns
        assert (read_video(scaled).width, read_video(scaled).height) == (64, 36)
        assert read_video(scaled).times_s == read_video(clip).times_s
        assert scale_clip(clip, (64, 36), tmp_path).stat().st_mtime_ns == made_at


@pytest.mark.parametrize(
    ("slots", "wrong"),
    [
        ({"idle": 14, "ours": 14, "others": 2, "after": 14}, ""),
        ({"idle": 14, "ours": 14, "others": 14, "after": 14}, "did not shrink"),
        ({"idle": 14, "ours": 3, "others": 2, "after": 14}, "our own load"),
        ({"idle": 14, "ours": 14, "others": 2, "after": 2}, "did not come back"),
    ],
)
def test_live_health_judges_slots(slots: dict[str, int], wrong: str) -> None:
    """Slots that do not follow the other program's load, and that alone, end the program with an error."""
    if not wrong:
        judge_slots(slots)
        return
    with pytest.raises(CommandFailed, match=wrong):
        judge_slots(slots)
