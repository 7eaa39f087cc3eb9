"""On which devices every case is tried, on which only one frame, and which results are cached."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.node.report import DeviceTrials
from codecfleet.cluster.probes.node.trials import Subject, TrialPlan, subjects, try_devices
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.engines import Direction, Engine, How, Trial
from codecfleet.cluster.probes.trials.cases import BY_NAME, SAMPLES
from codecfleet.cluster.probes.trials.gpu import decode_fault, encode_fault, try_nvdec
from codecfleet.cluster.probes.trials.software import TrialStream

STREAMS: Mapping[str, TrialStream] = {sample.name: TrialStream((b"x",), b"") for sample in SAMPLES}
EIGHT = [Subject(f"GPU-{number}", "NVIDIA H200") for number in range(8)]


class Children:
    """Devices of which those in ``dead`` decode nothing; none has an encoder, or all but ``mute`` have one."""

    def __init__(self, *dead: str, mute: str | None = None) -> None:
        self.dead = dead
        self.mute = mute
        self.asked: list[tuple[str, int]] = []
        self.sent: dict[str, TrialStream] = {}
        self.encoded: list[tuple[str, int]] = []

    def __call__(
        self, probe: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float, environment: Mapping[str, str]
    ) -> ChildOutcome:
        assert limit_s > 0
        visible, names = environment["CUDA_VISIBLE_DEVICES"], arguments["names"]
        decodes = probe is try_nvdec
        (self.asked if decodes else self.encoded).append((visible, len(names)))
        self.sent |= arguments.get("streams", {})
        code = 0 if decodes else 2 if self.mute is None else 10 if self.mute == visible else 0
        fault = decode_fault("Error code : 999") if visible in self.dead else encode_fault(f"returned error {code}")
        trials = (
            Trial(
                case=BY_NAME[name].case(Direction.DECODE if decodes else Direction.ENCODE),
                engine=Engine.NVDEC if decodes else Engine.NVENC,
                implementation="",
                works=visible not in self.dead and not code,
                how=How.TRIED if code != 2 else How.ASKED,
                reason=fault.reason,
                fix=fault.fix if visible in self.dead or code else "",
            )
            for name in names
        )
        return ChildOutcome(ChildEnd.RETURNED, tuple(zip(names, trials, strict=True)))


def plan(folder: Path | None = None, *, fresh: bool = False, driver: str = "580.1") -> TrialPlan:
    """Return a plan that ends at second 100."""
    return TrialPlan(driver=driver, packages=("av 18.1.0",), folder=folder, fresh=fresh, ends_s=100.0)


def test_one_of_a_kind_is_tried_with_everything_and_the_others_with_one_frame() -> None:
    """Of eight equal GPUs, one is tried with every case and seven decode one frame; all get the results."""
    run = Children()
    devices, problems = try_devices(EIGHT, STREAMS, plan(), run=run, clock=lambda: 0.0)
    assert problems == ()
    assert [count for _, count in run.asked][1:] == [1] * 7
    assert run.asked[0][1] > 15
    assert [device.smoke is None for device in devices] == [True] + [False] * 7
    assert len({device.trials for device in devices}) == 1


def test_a_device_that_fails_its_smoke_decode_decodes_nothing() -> None:
    """A device that fails its one frame decodes nothing, whatever its kind can do; other devices are not affected."""
    devices, _ = try_devices(EIGHT, STREAMS, plan(), run=Children("GPU-3"), clock=lambda: 0.0)
    works = {device.device: any(t.works for t in device.trials if t.engine is Engine.NVDEC) for device in devices}
    assert works == {subject.visible: subject.visible != "GPU-3" for subject in EIGHT}
    assert devices[3].smoke is not None
    assert "999" in devices[3].smoke.reason


def _working(device: DeviceTrials, engine: Engine) -> int:
    return sum(trial.works for trial in device.trials if trial.engine is engine)


def test_a_sick_first_device_does_not_speak_for_its_kind() -> None:
    """If the first device decodes nothing, every case is tried on the next one, which then counts for the others."""
    run = Children("GPU-0", mute="")
    devices, _ = try_devices(EIGHT, STREAMS, plan(), run=run, clock=lambda: 0.0)
    counts = [_working(device, Engine.NVDEC) for device in devices]
    assert counts[0] == 0
    assert min(counts[1:]) > 15
    assert [visible for visible, count in run.asked if count > 1] == ["GPU-0", "GPU-1"]


def test_faults_that_a_whole_kind_has_are_met_on_three_devices_at_most() -> None:
    """If eight devices all decode nothing, every case is tried on only a few of them."""
    run = Children(*(subject.visible for subject in EIGHT))
    devices, _ = try_devices(EIGHT, STREAMS, plan(), run=run, clock=lambda: 0.0)
    assert [visible for visible, count in run.asked if count > 1] == ["GPU-0", "GPU-1", "GPU-2"]
    assert {_working(device, Engine.NVDEC) for device in devices} == {0}


def test_afresh_every_device_encodes_a_frame_itself() -> None:
    """A device whose NVENC fails encodes nothing, although all others of its kind encode."""
    run = Children(mute="GPU-3")
    devices, _ = try_devices(EIGHT, STREAMS, plan(fresh=True), run=run, clock=lambda: 0.0)
    assert run.encoded[1:] == [(subject.visible, 1) for subject in EIGHT[1:]]
    assert [bool(_working(device, Engine.NVENC)) for device in devices] == [number != 3 for number in range(8)]
    assert devices[3].smoke_encode is not None
    assert "sessions" in devices[3].smoke_encode.reason
    assert _working(devices[3], Engine.NVDEC) == _working(devices[0], Engine.NVDEC)
    later = Children(mute="GPU-3")
    try_devices(EIGHT, STREAMS, plan(), run=later, clock=lambda: 0.0)
    assert [visible for visible, _ in later.encoded] == ["GPU-0"]


def test_a_device_whose_turn_comes_too_late_is_not_called_broken() -> None:
    """If the time is over, a device is assumed to be like its kind, and the report says so."""
    run, now_s = Children("GPU-1"), iter((0.0, 99.0))
    devices, problems = try_devices(EIGHT[:2], STREAMS, plan(), run=run, clock=lambda: next(now_s))
    assert "GPU-1" not in [visible for visible, _ in run.asked]
    assert [trial.case for trial in devices[1].trials] == [trial.case for trial in devices[0].trials]
    assert {trial.how for trial in devices[1].trials} == {How.KIND}
    assert devices[1].smoke is None
    assert problems == ("GPU-1: no time to try it; assumed to work like others of its model",)


def test_slices_of_two_profiles_are_two_kinds() -> None:
    """Each MIG profile has engines of its own, so each is tried."""
    found = [
        Subject("MIG-1", "A100 MIG 1g.5gb"),
        Subject("MIG-2", "A100 MIG 3g.20gb"),
        Subject("MIG-3", "A100 MIG 1g.5gb"),
    ]
    run = Children()
    try_devices(found, STREAMS, plan(), run=run, clock=lambda: 0.0)
    assert [visible for visible, count in run.asked if count > 1] == ["MIG-1", "MIG-2"]


def test_a_kept_matrix_is_believed_but_every_device_still_decodes_a_frame(tmp_path: Path) -> None:
    """A second run tries one frame on each device, unless fresh trials are requested or the driver is another."""
    try_devices(EIGHT[:2], STREAMS, plan(tmp_path), run=Children(), clock=lambda: 0.0)
    again = Children()
    devices, _ = try_devices(EIGHT[:2], STREAMS, plan(tmp_path), run=again, clock=lambda: 0.0)
    assert again.asked == [("GPU-0", 1), ("GPU-1", 1)]
    assert all(device.from_cache for device in devices)
    for other in (plan(tmp_path, fresh=True), plan(tmp_path, driver="590.1")):
        run = Children()
        try_devices(EIGHT[:2], STREAMS, other, run=run, clock=lambda: 0.0)
        assert run.asked[0][1] > 1


def test_what_can_be_repaired_is_not_kept(tmp_path: Path) -> None:
    """Failures that may pass are not cached, since the GPU may work tomorrow."""
    try_devices(EIGHT[:1], STREAMS, plan(tmp_path), run=Children("GPU-0"), clock=lambda: 0.0)
    assert list(tmp_path.iterdir()) == []


def test_no_time_left_is_said_and_nothing_is_started() -> None:
    """A plan without time left tries nothing."""
    run = Children()
    devices, problems = try_devices(EIGHT[:1], STREAMS, plan(), run=run, clock=lambda: 100.0)
    assert (devices[0].trials, run.asked) == ((), [])
    assert problems == ("NVIDIA H200: the time limit for trials was reached",)


def test_without_nvml_and_cuda_there_is_nothing_to_try() -> None:
    """A machine on which neither NVML nor CUDA answers has no device to try."""
    absent = Unavailable(Absence.NO_LIBRARY, "there is none")
    assert subjects(absent, absent) == ()


def test_streams_are_what_the_child_gets() -> None:
    """A case without a bitstream is queried too, but the child gets no bitstream for it."""
    without = {name: stream for name, stream in STREAMS.items() if not name.startswith("h264")}
    run = Children()
    devices, _ = try_devices(EIGHT[:1], without, plan(), run=run, clock=lambda: 0.0)
    assert run.sent
    assert run.sent.keys() <= without.keys()
    assert devices[0].trials[0].case.name == "h264 8-bit 4:2:0 decode"
