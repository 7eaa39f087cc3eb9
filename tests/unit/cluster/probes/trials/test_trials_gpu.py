"""Trials of NVDEC and NVENC through a fake PyNvVideoCodec, and the result of each failure."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.engines import Direction, Engine, How, Trial
from codecfleet.cluster.probes.trials.cases import NVDEC_CASES, NVENC_CASES
from codecfleet.cluster.probes.trials.gpu import smoke, trials_of_device
from codecfleet.testing.nvidia.fake_nvdec import FakeNvCodecError

from .fake_nvcodec import FakeNvCodec, outcome_of, software

ADA = frozenset(case.name for case in NVENC_CASES if not case.chroma.startswith("4:2:2")) - {"h264 10-bit 4:2:0"}


class FakeChildren:
    """Runs trials on the fake device in CUDA_VISIBLE_DEVICES; a case may end the "process"."""

    def __init__(self, devices: Mapping[str, FakeNvCodec], deadly: Mapping[str, ChildOutcome] | None = None) -> None:
        self.devices = devices
        self.deadly = dict(deadly or {})
        self.clock: Callable[[], float] = lambda: 0.0

    def __call__(
        self, probe: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float, environment: Mapping[str, str]
    ) -> ChildOutcome:
        assert limit_s > 0
        nvc = self.devices[environment["CUDA_VISIBLE_DEVICES"]]
        return outcome_of(probe(**arguments, nvc=nvc, clock=self.clock), self.deadly)


def tried(nvc: FakeNvCodec, deadly: Mapping[str, ChildOutcome] | None = None) -> dict[str, Trial]:
    """Return the trials of one device, by the name of the case."""
    trials, problems = trials_of_device("GPU-1", software().streams, 10, run=FakeChildren({"GPU-1": nvc}, deadly))
    assert problems == ()
    return {trial.case.name: trial for trial in trials}


H264, HEVC_10 = "h264 8-bit 4:2:0 decode", "hevc 10-bit 4:2:0 decode"


def test_an_h200_decodes_with_seven_engines_and_encodes_nothing() -> None:
    """As on a real H200 (driver 580), each case that it decodes was tried; AV1 and NVENC have a reason."""
    trials = tried(FakeNvCodec.h200())
    for case in ("h264 8", "hevc 10", "mpeg2 8", "vp8 8", "vp9 8", "vp9 10"):
        found = trials[f"{case}-bit 4:2:0 decode"]
        assert (found.works, found.how, found.engines) == (True, How.TRIED, 7)
    assert not trials["av1 8-bit 4:2:0 decode"].works
    encoders = [trial for trial in trials.values() if trial.engine is Engine.NVENC]
    assert len(encoders) == len(NVENC_CASES)
    assert {(trial.works, trial.reason, trial.fix) for trial in encoders} == {
        (False, "this GPU has no encoder (error 2)", "")
    }


def test_a_codec_without_a_bitstream_is_believed_but_not_called_tried() -> None:
    """No encoder makes VC-1, so the driver's answer counts, and is marked as such."""
    trial = tried(FakeNvCodec.h200())["vc1 8-bit 4:2:0 decode"]
    assert (trial.works, trial.how) == (True, How.ASKED)


def test_what_the_driver_promises_and_refuses_is_refused() -> None:
    """A decoder that the capabilities promise but that fails with 801 does not work."""
    nvc = FakeNvCodec.h200()
    nvc.decode_faults["hevc 10-bit 4:2:0"] = 801
    trial = tried(nvc)[HEVC_10]
    assert (trial.works, trial.how, "(error 801)" in trial.reason) == (False, How.TRIED, True)


class SilentNvCodec(FakeNvCodec):
    """A package whose errors have no message."""

    def GetDecoderCaps(self, *_: Any, **__: Any) -> NoReturn:  # noqa: N802 - the package's name
        raise FakeNvCodecError


def test_an_error_without_words_is_told_by_its_name() -> None:
    """If an error has no message, the reason is the name of its class."""
    assert "FakeNvCodecError" in tried(SilentNvCodec(frozenset()))[H264].reason


def test_a_wrong_picture_does_not_count() -> None:
    """A picture that differs by one step in one sample fails, since jobs promise equal frames."""
    nvc = FakeNvCodec.h200()
    nvc.spoiled = frozenset({"h264 8-bit 4:2:0", "mpeg2 8-bit 4:2:0"})
    trials = tried(nvc)
    assert (trials[H264].works, "by up to 1 per sample" in trials[H264].reason) == (False, True)
    assert trials["mpeg2 8-bit 4:2:0 decode"].works, "MPEG-2 leaves the rounding open"


def test_a_decoder_that_exits_costs_its_own_case_alone() -> None:
    """If CreateDecoder ends the process because CUDA does not start, the other cases are tried in a new process."""
    death = ChildOutcome(ChildEnd.EXITED, detail="the process exited with code 1", said="FATAL: cuInit error 803 here")
    trials = tried(FakeNvCodec.h200(), {"hevc 8-bit 4:2:0": death})
    dead = trials["hevc 8-bit 4:2:0 decode"]
    assert (dead.works, "error 803" in dead.reason, "LD_LIBRARY_PATH" in dead.fix) == (False, True, True)
    assert trials[H264].works
    assert trials["vp9 8-bit 4:2:0 decode"].works


def test_encoders_are_tried_with_a_real_picture() -> None:
    """A GPU with NVENC works for the formats that it accepts; formats that its capabilities deny are not tried."""
    nvc = FakeNvCodec(decodes=frozenset({"h264 8-bit 4:2:0"}), encodes=ADA, encoder_engines=3)
    nvc.streams = dict(software().streams)
    trials = tried(nvc)
    for name in ADA:
        trial = trials[f"{name} encode"]
        assert (trial.works, trial.how, trial.engines) == (True, How.TRIED, 3), name
    denied = trials["h264 8-bit 4:2:2 encode"]
    assert (denied.works, denied.how) == (False, How.ASKED)


def test_late_cases_are_asked_instead_of_tried() -> None:
    """Towards the end of its time, the child only queries capabilities and makes no more decoders."""
    nvc = FakeNvCodec.h200()
    children = FakeChildren({"GPU-1": nvc})
    ticks = iter(range(10_000))
    children.clock = lambda: float(next(ticks))
    trials, _ = trials_of_device("GPU-1", software().streams, 10, run=children)
    decodes = [trial for trial in trials if trial.engine is Engine.NVDEC]
    assert decodes[0].how is How.TRIED
    assert {trial.how for trial in decodes[8:]} == {How.ASKED}
    assert nvc.decoders_made < 8
    assert len(decodes) == len(NVDEC_CASES)


def test_a_package_that_is_missing_is_one_problem() -> None:
    """An import that fails stops decoders and encoders alike, and is reported once, with its fix."""

    def run(*_: object, **__: object) -> ChildOutcome:
        return ChildOutcome(ChildEnd.RAISED, (), "ModuleNotFoundError: No module named 'PyNvVideoCodec'")

    trials, problems = trials_of_device("GPU-1", software().streams, 10, run=run)
    assert trials == ()
    assert problems == (f"{len(NVDEC_CASES)} cases of NVDEC were not tried: PyNvVideoCodec is not installed",)


def test_the_smoke_decode_takes_the_first_case_that_the_kind_does() -> None:
    """One frame is decoded on the device; a kind that decodes nothing is not tried again."""
    nvc = FakeNvCodec.h200()
    trials = tuple(tried(nvc).values())
    found = smoke(Engine.NVDEC, "GPU-1", trials, software().streams, 5, run=FakeChildren({"GPU-1": nvc}))
    assert found is not None
    assert found.works
    assert found.case.name == "h264 8-bit 4:2:0 decode"
    encoders_only = [trial for trial in trials if trial.case.direction is Direction.ENCODE]
    assert smoke(Engine.NVDEC, "GPU-1", encoders_only, software().streams, 5, run=FakeChildren({})) is None
