"""The pure parts of the NVML probes: how answers are read and interpreted."""

from types import SimpleNamespace
from typing import Any

import pytest

from codecfleet.cluster.probes.nvml.calls import CodeAnswered, DeviceQuestions
from codecfleet.cluster.probes.nvml.facts import probe_facts
from codecfleet.cluster.probes.nvml.mig import whole_gpu_engines
from codecfleet.cluster.probes.nvml.use import probe_use, read_field
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceProcess, MigProfile
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How

NOT_ASKED = Unavailable(Absence.NOT_FOUND, "not asked")


class Library:
    """Functions that return the same answer to any arguments."""

    def __init__(self, **answers: object) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)
        return lambda *_: self._answers[name]


def questions(**answers: object) -> DeviceQuestions:
    """Return a device with these answers."""
    return DeviceQuestions(Library(**answers), "handle")


def profile(name: str, memory_gib: int, decoders: int) -> MigProfile:
    """Return a GPU instance profile."""
    return MigProfile(
        profile_id=0,
        name=name,
        memory_bytes=memory_gib * 1024**3,
        engines=(EngineCount(Engine.NVDEC, decoders, How.ASKED),),
        instances_max=1,
        instances_free=NOT_ASKED,
    )


def test_the_largest_profile_is_the_whole_gpu() -> None:
    """The profile with the most memory has the GPU's engines; among equals, the one with the most engines counts."""
    profiles = (profile("7g.40gb", 40, 5), profile("1g.5gb+me", 5, 9), profile("4g.40gb", 40, 2))
    assert whole_gpu_engines(profiles) == (EngineCount(Engine.NVDEC, 5, How.ASKED),)
    assert whole_gpu_engines(()) == ()


def test_the_newest_sample_of_a_process_counts() -> None:
    """Samples come in any order; a sample without a time is ignored, and percentages over 100 are dropped."""
    shares = {"smUtil": 10, "encUtil": 4_000_000_000}
    samples = [
        SimpleNamespace(pid=7, timeStamp=20, decUtil=80, **shares),
        SimpleNamespace(pid=7, timeStamp=10, decUtil=20, **shares),
        SimpleNamespace(pid=0, timeStamp=0, decUtil=0, **shares),
    ]
    device = questions(
        nvmlDeviceGetProcessUtilization=samples,
        nvmlDeviceGetComputeRunningProcesses_v3=[SimpleNamespace(pid=7, usedGpuMemory=None)],
    )
    assert probe_use(device).processes == (DeviceProcess(7, None, 10, None, 80),)


def test_a_device_that_lists_no_processes_is_not_idle() -> None:
    """If there are neither processes nor samples, the list is absent, not empty."""
    assert isinstance(probe_use(questions()).processes, Unavailable)


@pytest.mark.parametrize(("kind", "member"), [(0, "dVal"), (1, "uiVal"), (3, "ullVal"), (5, "siVal")])
def test_a_field_is_read_by_its_type(kind: int, member: str) -> None:
    """NVML's union holds the value under a name that depends on its type."""
    value = SimpleNamespace(**dict.fromkeys(("dVal", "uiVal", "ullVal", "siVal"), 0) | {member: 42})
    assert read_field([SimpleNamespace(nvmlReturn=0, valueType=kind, value=value)]) == 42


def test_a_field_that_is_refused_has_no_value() -> None:
    """A field has a return code of its own, besides that of the call."""
    with pytest.raises(CodeAnswered):
        read_field([SimpleNamespace(nvmlReturn=3, valueType=1, value=SimpleNamespace(uiVal=0))])


def test_facts_carry_their_units() -> None:
    """Milliwatts become watts, masks and modes become words, and without a bridge chip there is no bridge type."""
    facts = probe_facts(
        questions(
            nvmlDeviceGetPowerUsage=75_500,
            nvmlDeviceGetPowerManagementLimitConstraints=[200_000, 700_000],
            nvmlDeviceGetComputeMode=3,
            nvmlDeviceGetCurrentClocksEventReasons=0x4 | 0x8 | 0x1000,
            nvmlDeviceGetSupportedClocksEventReasons=0,
            nvmlDeviceGetBridgeChipInfo=SimpleNamespace(bridgeCount=0, bridgeChipInfo=[]),
            nvmlDeviceGetAutoBoostedClocksEnabled=[1, 0],
        )
    )
    assert (facts["power_w"], facts["power_limit_min_w"], facts["power_limit_max_w"]) == (75.5, 200.0, 700.0)
    assert facts["compute_mode"] == "exclusive process"
    assert facts["clocks_event_reasons"] == "software power cap, hardware slowdown, 0x1000"
    assert facts["clocks_event_reasons_supported"] == "none"
    assert isinstance(facts["bridge_chip_type"], Unavailable)
    assert (facts["auto_boost"], facts["auto_boost_default"]) == (True, False)
