"""The promises of pynvml and of its fake, and the reports of probes on either."""

import inspect
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.nvml.calls import NvmlLike
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.device_report import CodecSession, DeviceProcess
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How
from codecfleet.cluster.probes.vgpu.guest import GUEST_ABSENCES
from codecfleet.testing import FakeNvml

from ..unit.cluster.maybe import held, missing
from .nvml_nodes import (
    _ADAPTER,
    A100,
    GIB,
    H100_MIG,
    H200,
    L4,
    NO_PERMISSION,
    NODES,
    UNKNOWN,
    _leaves,
    _plain,
    busy,
    device,
    node,
    opened,
    probed,
)


@pytest.fixture(params=[*NODES, "real"])
def nvml(request: pytest.FixtureRequest) -> Iterator[NvmlLike]:
    """An open library: the fake on every kind of machine, and NVIDIA's."""
    with opened(FakeNvml(NODES[request.param]) if request.param in NODES else None) as library:
        yield library


def test_nothing_fails_on_a_healthy_machine(nvml: NvmlLike) -> None:
    """Every query about a healthy machine has an answer, or an ordinary reason in full."""
    report = probed(nvml)
    assert report.library_problem is None
    assert len(report.devices) == nvml.nvmlDeviceGetCount()
    assert not any(found.health.lost for found in report.devices)
    assert Absence.FAILED.value not in {value for path, value in _leaves(_plain(report)) if path.endswith(".absence")}


def test_a_report_survives_as_plain_values(nvml: NvmlLike) -> None:
    """A report contains only plain values, and is the same after a transfer."""
    report = probed(nvml)
    assert _ADAPTER.validate_python(_plain(report)) == report


class CheckedNvml:
    """Compares each call with the signature in the real binding."""

    def __init__(self, fake: FakeNvml) -> None:
        self._fake = fake

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._fake, name)
        if not name.startswith("nvml"):
            return found

        def call(*arguments: object) -> Any:
            inspect.signature(getattr(pynvml, name)).bind(*arguments)
            return found(*arguments)

        return call


@pytest.mark.parametrize("name", NODES)
def test_the_probe_calls_what_the_binding_has(name: str) -> None:
    """Each function that the probe calls exists in the real binding, and accepts the arguments."""
    checked, unchecked = (probed(library) for library in (CheckedNvml(FakeNvml(NODES[name])), FakeNvml(NODES[name])))
    assert checked == unchecked


def test_every_query_that_a_vgpu_lacks_is_asked_elsewhere() -> None:
    """On a GPU that is not a vGPU, the probe queries every property in the guide's tables."""
    fake = FakeNvml(node(H200))
    probed(fake)
    assert {*GUEST_ABSENCES, "nvmlDeviceGetUUID"} <= set(fake.calls)


def test_an_h200_is_reported_as_measured() -> None:
    """As one H200 answers: seven decoders, no encoder, passed through."""
    report = device(probed(FakeNvml(node(H200))), "GPU-h200")
    assert (report.kind, report.virtualization, report.uuid_is_stable) == (DeviceKind.GPU, "passthrough", True)
    assert (report.architecture, report.compute_capability) == ("hopper", "9.0")
    assert EngineCount(Engine.NVDEC, 7, How.ASKED) in report.engines
    assert EngineCount(Engine.NVENC, 0, How.ASKED) in report.engines
    assert isinstance(report.facts["serial"], str)


def test_slices_without_a_decoder_are_known() -> None:
    """Each MIG slice has the engines that the driver reports: none for an A100's smallest slice, five for the GPU."""
    report = device(probed(busy(FakeNvml(node(A100)))), "GPU-a100")
    assert not isinstance(report.mig, Unavailable)
    small, large = report.mig.slices
    assert [(each.gpu_instance, each.profile) for each in (small, large)] == [(1, "1g.5gb"), (2, "3g.20gb")]
    assert EngineCount(Engine.NVDEC, 0, How.ASKED) in small.engines
    assert EngineCount(Engine.NVDEC, 2, How.ASKED) in large.engines
    assert EngineCount(Engine.NVDEC, 5, How.ASKED) in report.engines
    assert {each.name for each in report.mig.profiles} >= {"1g.5gb", "1g.5gb+me", "3g.20gb", "7g.40gb"}
    assert isinstance(report.use.decoder_percent, Unavailable)


def test_slices_that_may_not_be_seen_are_not_slices_that_are_not_there() -> None:
    """Empty places between slices are ordinary; slices that the driver withholds are reported as such."""
    fake = FakeNvml(node(A100))
    seen = probed(fake).devices[0].mig
    fake.faults["nvmlDeviceGetMigDeviceHandleByIndex"] = NO_PERMISSION
    unseen = probed(fake).devices[0].mig
    assert not isinstance(seen, Unavailable)
    assert not isinstance(unseen, Unavailable)
    assert (len(seen.slices), seen.slices_refused) == (2, None)
    assert unseen.slices_refused is not None
    assert (unseen.slices, unseen.slices_refused.absence) == ((), Absence.NO_PERMISSION)


def slice_percents(fake: FakeNvml) -> list[tuple[object, object]]:
    """Return the use of each slice's decoders and encoders between two polls."""
    polls = HealthPoll(fake)
    polls.poll(frozenset())
    found = held(polls.poll(frozenset()))
    polls.close()
    assert fake.gpm.held == 0
    return [(each.decoder_percent, each.encoder_percent) for each in found]


def test_engines_of_a_slice_are_measured() -> None:
    """If the GPU supports it, the mean use of a slice's engines is known; engines that it lacks are not idle."""
    fake = busy(FakeNvml(node(H100_MIG)))
    fake.gpm.idle_for_missing = True
    ((decoders, encoders),) = slice_percents(fake)
    assert decoders == 12  # of two decoders, one is used to 25 %
    assert missing(encoders).absence is Absence.NOT_FOUND


@pytest.mark.parametrize("broken", ["nvmlGpmSampleAlloc", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"])
def test_a_measurement_that_fails_is_absent_and_leaves_no_sample(broken: str) -> None:
    """The poll has the slice without the use of its engines."""
    fake = busy(FakeNvml(node(H100_MIG)))
    fake.faults[broken] = UNKNOWN
    ((decoders, encoders),) = slice_percents(fake)
    assert missing(decoders)
    assert missing(encoders)


def test_an_older_driver_measures_the_engines_that_it_knows() -> None:
    """A driver that does not know the metrics of encoders still reports the use of decoders."""
    fake = busy(FakeNvml(node(H100_MIG)))
    fake.gpm.metrics_end = 100
    assert slice_percents(fake)[0][0] == 12


@pytest.mark.parametrize("broken", ["", "nvmlEventSetWait_v2", "nvmlDeviceGetCount"])
def test_the_probe_gives_back_what_it_took(broken: str) -> None:
    """After any failure the library is closed, and no event set is left."""
    fake = FakeNvml(node(H100_MIG, L4))
    fake.faults[broken] = UNKNOWN
    probed(fake)
    assert not fake.is_open
    assert fake._event_sets == {}


def test_who_uses_a_device_is_joined() -> None:
    """A process is reported with its memory and its use of engines, a session with its codec and size."""
    (report,) = probed(busy(FakeNvml(node(L4)))).devices
    assert report.use.processes == (DeviceProcess(4711, 3 * GIB, 20, 30, 40),)
    assert report.use.encoder_sessions == (CodecSession(1, 4711, "h264", 1920, 1080, 60, 5000),)
    assert (report.use.encoder_sessions_open, report.use.decoder_percent) == (1, 40)


def test_no_samples_are_no_trouble() -> None:
    """The binding raises NVMLError(0) if no process was sampled; then there are no processes, and nothing failed."""
    fake = FakeNvml(node(L4))
    fake.faults["nvmlDeviceGetProcessUtilization"] = 0
    assert probed(fake).devices[0].use.processes == ()


def test_what_the_driver_advises_is_in_words() -> None:
    """The driver's recovery action is read from its field; a field that is refused is absent."""
    fake = busy(FakeNvml(node(H200, A100)))
    hopper, ampere = probed(fake).devices
    assert hopper.health.recovery_action == "reset"
    assert isinstance(ampere.health.recovery_action, Unavailable)
