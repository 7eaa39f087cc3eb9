"""What pynvml and its fake both promise, and what the probes make of either."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from codecfleet.cluster.probes.absence import Absence, NotApplicable
from codecfleet.cluster.probes.device_report import CodecSession, DeviceKind, DeviceProcess, DeviceReport
from codecfleet.cluster.probes.engines import Engine, EngineCount, How
from codecfleet.cluster.probes.nvml import NvmlReport, probe_nvml
from codecfleet.cluster.probes.nvml_calls import RETURN_CODES, NvmlLike, ask_named
from codecfleet.cluster.probes.nvml_events import watch_events
from codecfleet.cluster.probes.simulated import SimulatedDevice, SimulatedNode, SimulatedSlice, SimulatedVgpu
from codecfleet.cluster.probes.vgpu_guest_tables import GUEST_PROPERTIES
from codecfleet.cluster.probes.xids import XidAction
from codecfleet.testing import FakeNvml

GIB = 1024**3
NO_PERMISSION, LOST, UNKNOWN, NO_SUCH_CODE = 4, 15, 999, 12345

H200 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-h200",
    name="NVIDIA H200",
    architecture="hopper",
    compute_capability="9.0",
    pci_bus_id="00000000:04:00.0",
    memory_bytes=150_754_820_096,
    max_video_clock_mhz=1545,
    engines={Engine.NVDEC: 7, Engine.NVENC: 0, Engine.NVJPG: 7, Engine.OFA: 1},
    mig_capable=True,
    virtualization=1,
)
L4 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-l4",
    name="NVIDIA L4",
    architecture="ada",
    compute_capability="8.9",
    pci_bus_id="00000000:05:00.0",
    memory_bytes=24 * GIB,
    max_video_clock_mhz=2040,
    engines={Engine.NVDEC: 4, Engine.NVENC: 2},
)
A100 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-a100",
    name="NVIDIA A100-SXM4-40GB",
    architecture="ampere",
    compute_capability="8.0",
    pci_bus_id="00000000:06:00.0",
    memory_bytes=42_505_273_344,
    max_video_clock_mhz=1275,
    engines={Engine.NVDEC: 5, Engine.NVENC: 0, Engine.NVJPG: 1, Engine.OFA: 1},
    mig_capable=True,
    mig_enabled=True,
    slices=(
        SimulatedSlice(
            uuid="MIG-none", gpu_instance=9, profile="1g.5gb", memory_bytes=5 * GIB, engines={Engine.NVDEC: 0}
        ),
        SimulatedSlice(
            uuid="MIG-two", gpu_instance=2, profile="3g.20gb", memory_bytes=20 * GIB, engines={Engine.NVDEC: 2}
        ),
    ),
)
H100_MIG = replace(
    H200,
    uuid="GPU-h100",
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=80 * GIB,
    mig_enabled=True,
    virtualization=0,
    slices=(
        SimulatedSlice(
            uuid="MIG-h", gpu_instance=3, profile="2g.20gb", memory_bytes=20 * GIB, engines={Engine.NVDEC: 2}
        ),
    ),
)
GUEST = replace(
    L4, kind=DeviceKind.VGPU, uuid="GPU-random", name="NVIDIA A16-4Q", virtualization=2, max_video_clock_mhz=None
)
GEFORCE = replace(L4, uuid="GPU-4090", name="NVIDIA GeForce RTX 4090", engines={Engine.NVDEC: 1, Engine.NVENC: 2})
ORIN = replace(
    L4, kind=DeviceKind.IGPU, uuid="GPU-orin", name="Orin (nvgpu)", architecture="orin", compute_capability="8.7"
)
VGPU = SimulatedVgpu(
    instance=11,
    type_id=562,
    type_name="NVIDIA A40-8Q",
    uuid="vgpu-1",
    vm_id="7d3c0c8e-0001-4c1e-9d55-0123456789ab",
    framebuffer_bytes=8 * GIB,
)
HOST = replace(
    L4,
    uuid="GPU-host",
    name="NVIDIA A40",
    architecture="ampere",
    compute_capability="8.6",
    memory_bytes=48 * GIB,
    virtualization=3,
    vgpus=(VGPU,),
)


def node(*devices: SimulatedDevice, driver: str = "580.159.04") -> SimulatedNode:
    """Return a machine with these devices."""
    return SimulatedNode(name="node", cores=16, memory_bytes=64 * GIB, driver=driver, devices=devices)


NODES = {
    "h200": node(H200),
    "l4": node(L4),
    "a100-mig": node(A100, L4),
    "h100-mig": node(H100_MIG),
    "vgpu-guest": node(GUEST),
    "vgpu-host": node(HOST),
    "geforce": node(GEFORCE),
    "orin": node(ORIN),
}


def probed(nvml: NvmlLike) -> NvmlReport:
    """Probe without letting time pass."""
    return probe_nvml(nvml, sleep=lambda _: None)


def device(report: NvmlReport, uuid: str) -> DeviceReport:
    """Return one device of a report."""
    return next(each for each in report.devices if each.uuid == uuid)


def count(report: DeviceReport, engine: Engine) -> int | None:
    """Return how many engines of a kind the driver said there are, None where it said nothing."""
    return next((each.count for each in report.engines if each.engine is engine), None)


def busy(fake: FakeNvml) -> FakeNvml:
    """Let something go on on every device, so that a zero is never the right answer."""
    for each in fake.devices:
        each.gpu_percent = each.memory_percent = each.encoder_percent = each.decoder_percent = 40
        each.jpeg_percent = each.ofa_percent = 10
        each.used_bytes = GIB
        each.processes = [DeviceProcess(4711, 3 * GIB, 20, 30, 40)]
        each.sessions = [CodecSession(1, 4711, "h264", 1920, 1080, 60, 5000)]
        each.gpm_percent = {"nvdec0": 50.0}
        each.ecc_uncorrected = 3
        each.recovery_action = 1
        for piece in each.slices:
            piece.used_bytes = GIB
            piece.gpm_percent = {"nvdec0": 25.0}
    return fake


@pytest.fixture(params=[*NODES, "real"])
def nvml(request: pytest.FixtureRequest) -> Iterator[NvmlLike]:
    """An open library: the fake on every kind of machine, and the real one where there is a driver."""
    library: Any = pynvml if request.param == "real" else FakeNvml(NODES[request.param])
    try:
        library.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"this machine has no NVIDIA driver that answers ({error})")
    yield library
    library.nvmlShutdown()


def _numbers(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: len(value) == len(kinds) and all(isinstance(*pair) for pair in zip(value, kinds, strict=True))


def _structure(*fields: str) -> Callable[[Any], bool]:
    return lambda value: all(isinstance(getattr(value, field), (int, str, float)) for field in fields)


def _listed(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


_PROFILE = (
    "id",
    "sliceCount",
    "instanceCount",
    "decoderCount",
    "encoderCount",
    "jpegCount",
    "ofaCount",
    "memorySizeMB",
)

SHAPES: dict[str, tuple[tuple[Any, ...], Callable[[Any], bool]]] = {
    "nvmlDeviceGetUUID": ((), _is(str)),
    "nvmlDeviceGetName": ((), _is(str)),
    "nvmlDeviceGetPciInfo": ((), _structure("busId")),
    "nvmlDeviceGetArchitecture": ((), _is(int)),
    "nvmlDeviceGetCudaComputeCapability": ((), _numbers(int, int)),
    "nvmlDeviceGetMemoryInfo": ((), _structure("total", "used", "free")),
    "nvmlDeviceGetVirtualizationMode": ((), _is(int)),
    "nvmlDeviceGetUtilizationRates": ((), _structure("gpu", "memory")),
    "nvmlDeviceGetEncoderUtilization": ((), _numbers(int, int)),
    "nvmlDeviceGetDecoderUtilization": ((), _numbers(int, int)),
    "nvmlDeviceGetJpgUtilization": ((), _numbers(int, int)),
    "nvmlDeviceGetOfaUtilization": ((), _numbers(int, int)),
    "nvmlDeviceGetEncoderCapacity": ((0,), _is(int)),
    "nvmlDeviceGetEncoderStats": ((), _numbers(int, int, int)),
    "nvmlDeviceGetEncoderSessions": ((), _listed(_structure("sessionId", "pid", "codecType", "encodeLatency"))),
    "nvmlDeviceGetComputeRunningProcesses_v3": ((), _listed(_structure("pid"))),
    "nvmlDeviceGetProcessUtilization": ((0,), _listed(_structure("pid", "timeStamp", "encUtil", "decUtil"))),
    "nvmlDeviceGetMaxClockInfo": ((3,), _is(int)),
    "nvmlDeviceGetGspFirmwareVersion": ((), _is(bytes)),
    "nvmlDeviceGetPowerUsage": ((), _is(int)),
    "nvmlDeviceGetPowerManagementLimitConstraints": ((), _numbers(int, int)),
    "nvmlDeviceGetEccMode": ((), _numbers(int, int)),
    "nvmlDeviceGetTotalEccErrors": ((1, 0), _is(int)),
    "nvmlDeviceGetRetiredPages": ((0,), _listed(_is(int))),
    "nvmlDeviceGetRetiredPagesPendingStatus": ((), _is(int)),
    "nvmlDeviceGetRemappedRows": ((), _numbers(int, int, int, int)),
    "nvmlDeviceGetFieldValues": (([230],), lambda values: _structure("nvmlReturn", "valueType")(values[0])),
    "nvmlDeviceGetMigMode": ((), _numbers(int, int)),
    "nvmlDeviceGetMaxMigDeviceCount": ((), _is(int)),
    "nvmlDeviceGetGpuInstanceProfileInfoV": ((4, 2), _structure("name", *_PROFILE)),
    "nvmlDeviceGetGpuInstanceProfileInfo": ((4, 1), _structure(*_PROFILE)),
    "nvmlGpmQueryDeviceSupport": ((), _structure("isSupportedDevice")),
    "nvmlDeviceGetSupportedEventTypes": ((), _is(int)),
    "nvmlDeviceGetSupportedVgpus": ((), _listed(_is(int))),
    "nvmlDeviceGetActiveVgpus": ((), _listed(_is(int))),
}


@pytest.mark.parametrize("function", SHAPES)
def test_answers_have_pynvmls_shapes(nvml: NvmlLike, function: str) -> None:
    """A function gives what the probes read from it, or an NVMLError, whichever library answers."""
    arguments, fits = SHAPES[function]
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            answer = getattr(nvml, function)(nvml.nvmlDeviceGetHandleByIndex(index), *arguments)
        except pynvml.NVMLError:
            continue
        assert fits(answer)


def test_nothing_fails_on_a_healthy_machine(nvml: NvmlLike) -> None:
    """Every question about a healthy machine has an answer or an ordinary reason why not, and says so in full."""
    report = probed(nvml)
    assert report.library_problem is None
    assert len(report.devices) == nvml.nvmlDeviceGetCount()
    assert not any(found.health.lost for found in report.devices)
    assert Absence.FAILED.value not in {value for path, value in _leaves(_plain(report)) if path.endswith(".absence")}


def test_a_report_survives_as_plain_values(nvml: NvmlLike) -> None:
    """A report that travels as plain values comes back as it was: nothing of the library is left in it."""
    report = probed(nvml)
    assert _ADAPTER.validate_python(_plain(report)) == report


class CheckedNvml:
    """Holds each call against the signature that the real binding has."""

    def __init__(self, fake: FakeNvml) -> None:
        self._fake = fake

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - pynvml's own names
        found = getattr(self._fake, name)
        if not name.startswith("nvml"):
            return found

        def call(*arguments: object) -> Any:  # noqa: ANN401 - pynvml's own shapes
            inspect.signature(getattr(pynvml, name)).bind(*arguments)
            return found(*arguments)

        return call


@pytest.mark.parametrize("name", NODES)
def test_the_probe_calls_what_the_binding_has(name: str) -> None:
    """Each function that the probe calls exists in the real binding, and takes the arguments that it is given."""
    checked, unchecked = (probed(library) for library in (CheckedNvml(FakeNvml(NODES[name])), FakeNvml(NODES[name])))
    assert checked == unchecked


def test_every_query_that_a_vgpu_lacks_is_asked_elsewhere() -> None:
    """On a GPU that is no vGPU, the probe asks for every property of the guide's tables."""
    fake = FakeNvml(node(H200))
    probed(fake)
    assert {row.function for row in GUEST_PROPERTIES} <= set(fake.calls)


def test_a_vgpu_guest_is_not_asked_what_cannot_apply() -> None:
    """On a vGPU's guest those functions are not called; what they would say is named as not applying."""
    fake = FakeNvml(node(GUEST))
    (report,) = probed(fake).devices
    asked_anyway = {"nvmlDeviceGetUUID"}
    assert {row.function for row in GUEST_PROPERTIES} & set(fake.calls) == asked_anyway
    assert (report.kind, report.uuid, report.uuid_is_stable) == (DeviceKind.VGPU, "GPU-random", False)
    absences = {report.facts[name].absence for name in ("serial", "compute_mode", "power_w", "vbios_version")}  # type: ignore[union-attr]
    assert absences == {Absence.DOES_NOT_APPLY}
    assert isinstance(report.max_video_clock_mhz, NotApplicable)
    assert report.engines == ()
    assert report.health.lost == ""


def test_an_h200_is_reported_as_measured() -> None:
    """Seven decoders, no encoder, passed through, encoder capacity 100 all the same: as one H200 really answers."""
    report = device(probed(FakeNvml(node(H200))), "GPU-h200")
    assert (report.kind, report.virtualization, report.uuid_is_stable) == (DeviceKind.GPU, "passthrough", True)
    assert (report.architecture, report.compute_capability) == ("hopper", "9.0")
    assert EngineCount(Engine.NVDEC, 7, How.ASKED) in report.engines
    assert EngineCount(Engine.NVENC, 0, How.ASKED) in report.engines
    assert report.use.encoder_capacity_percent["h264"] == report.use.encoder_capacity_percent["hevc"] == 100
    assert isinstance(report.use.encoder_capacity_percent["av1"], NotApplicable)
    assert isinstance(report.facts["serial"], str)


def test_encoder_capacity_counts_no_encoder() -> None:
    """A GPU that cannot be cut tells no engine counts, and a capacity of 100 does not make one up."""
    report = device(probed(FakeNvml(node(GEFORCE))), "GPU-4090")
    assert report.use.encoder_capacity_percent["h264"] == 100
    assert report.engines == ()
    assert isinstance(report.mig, NotApplicable)


def test_slices_without_a_decoder_are_known() -> None:
    """Each MIG slice has the engines that the driver says; an A100's smallest has no decoder; the GPU has five."""
    report = device(probed(busy(FakeNvml(node(A100)))), "GPU-a100")
    assert not isinstance(report.mig, NotApplicable)
    assert [(each.uuid, each.gpu_instance, each.profile) for each in report.mig.slices] == [
        ("MIG-none", 9, "1g.5gb"),
        ("MIG-two", 2, "3g.20gb"),
    ]
    decoders = {each.uuid: sum(e.count for e in each.engines if e.engine is Engine.NVDEC) for each in report.mig.slices}
    assert (decoders["MIG-none"], decoders["MIG-two"] > 0) == (0, True)
    assert count(report, Engine.NVDEC) == 5
    assert {each.name for each in report.mig.profiles} >= {"1g.5gb", "1g.5gb+me", "3g.20gb", "7g.40gb"}
    assert isinstance(report.use.decoder_percent, NotApplicable)


def test_slices_that_may_not_be_seen_are_not_slices_that_are_not_there() -> None:
    """Empty places between slices are ordinary; slices that the driver keeps to itself are named as such."""
    fake = FakeNvml(node(A100))
    seen = probed(fake).devices[0].mig
    fake.faults["nvmlDeviceGetMigDeviceHandleByIndex"] = NO_PERMISSION
    unseen = probed(fake).devices[0].mig
    assert not isinstance(seen, NotApplicable)
    assert not isinstance(unseen, NotApplicable)
    assert (len(seen.slices), seen.slices_refused) == (2, None)
    assert unseen.slices_refused is not None
    assert (unseen.slices, unseen.slices_refused.absence) == ((), Absence.NO_PERMISSION)


def test_engines_of_a_slice_are_measured_one_by_one() -> None:
    """Where the GPU offers it, the use of each engine that exists is known, for the whole GPU and for each slice."""
    fake = busy(FakeNvml(node(H100_MIG)))
    pauses: list[float] = []
    (report,) = probe_nvml(fake, sleep=pauses.append, gpm_interval_s=0.5).devices
    assert not isinstance(report.mig, NotApplicable)
    assert report.mig.slices[0].gpm_percent == {"nvdec0": 25.0, "nvdec1": 0.0}
    assert not isinstance(report.use.gpm_percent, NotApplicable)
    assert report.use.gpm_percent["nvdec0"] == 50.0
    assert "nvenc0" not in report.use.gpm_percent
    assert pauses == [0.5]
    assert fake.gpm.held == 0


def test_an_older_driver_measures_the_engines_that_it_knows() -> None:
    """A driver that does not know the encoders' metrics still tells the decoders' use."""
    fake = busy(FakeNvml(node(H200)))
    fake.gpm.metrics_end = 100
    (report,) = probed(fake).devices
    assert not isinstance(report.use.gpm_percent, NotApplicable)
    assert report.use.gpm_percent["nvdec0"] == 50.0


def test_engines_that_do_not_exist_are_not_idle() -> None:
    """Where a driver calls missing engines idle, what it counted before says which there are."""
    fake = FakeNvml(node(H200))
    fake.gpm.idle_for_missing = True
    (report,) = probed(fake).devices
    assert not isinstance(report.use.gpm_percent, NotApplicable)
    assert sorted(report.use.gpm_percent) == [f"nvdec{n}" for n in range(7)] + [f"nvjpg{n}" for n in range(7)] + [
        "ofa0"
    ]


@pytest.mark.parametrize("broken", ["", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlDeviceGetCount"])
def test_the_probe_gives_back_what_it_took(broken: str) -> None:
    """Whatever fails on the way, the library is closed again, and no event set and no sample stays behind."""
    fake = FakeNvml(node(H100_MIG, L4))
    fake.faults[broken] = UNKNOWN
    probed(fake)
    assert not fake.is_open
    assert fake._event_sets == {}
    assert fake.gpm.held == 0


def test_who_uses_a_device_is_joined() -> None:
    """A process comes with its memory and with its engines' use, a session with its codec and size."""
    (report,) = probed(busy(FakeNvml(node(L4)))).devices
    assert report.use.processes == (DeviceProcess(4711, 3 * GIB, 20, 30, 40),)
    assert report.use.encoder_sessions == (CodecSession(1, 4711, "h264", 1920, 1080, 60, 5000),)
    assert (report.use.encoder_sessions_open, report.use.encoder_fps, report.use.encoder_latency_us) == (1, 60, 5000)
    assert (report.use.decoder_percent, report.use.jpeg_percent) == (40, 10)


def test_no_samples_are_no_trouble() -> None:
    """The binding raises NVMLError(0) where no process was sampled: there are then no processes, and no failure."""
    fake = FakeNvml(node(L4))
    fake.faults["nvmlDeviceGetProcessUtilization"] = 0
    assert probed(fake).devices[0].use.processes == ()


@pytest.mark.parametrize(
    ("break_it", "absence", "says", "mend"),
    [
        (FakeNvml.mismatch_driver, Absence.FAILED, "LIB_RM_VERSION_MISMATCH", "restart the machine"),
        (FakeNvml.remove_library, Absence.NO_LIBRARY, "libnvidia-ml.so.1", "install NVIDIA's driver"),
        (FakeNvml.unload_driver, Absence.NO_LIBRARY, "kernel driver is not loaded", "modprobe"),
    ],
)
def test_a_library_that_cannot_answer_says_how_to_mend_it(
    break_it: Callable[[FakeNvml], None], absence: Absence, says: str, mend: str
) -> None:
    """Without a driver, or with one that was exchanged under us, there is one problem with its mend, and no device."""
    fake = FakeNvml(node(L4))
    break_it(fake)
    report = probed(fake)
    assert report.library_problem is not None
    assert report.library_problem.absence is absence
    assert says in report.library_problem.reason
    assert mend in report.mend
    assert report.devices == ()


def test_a_driver_upgraded_while_the_library_was_open_is_noticed() -> None:
    """A probe opens the library anew, so whoever holds it open elsewhere does not hide the mismatch."""
    fake = FakeNvml(node(L4))
    fake.nvmlInit()
    assert probed(fake).library_problem is None
    fake.mismatch_driver()
    problem = probed(fake).library_problem
    assert problem is not None
    assert "LIB_RM_VERSION_MISMATCH" in problem.reason


def test_a_machine_without_nvidia_devices_has_no_library() -> None:
    """A node of processors alone has no driver, and the probe says so instead of failing."""
    report = probed(FakeNvml(node()))
    assert report.library_problem is not None
    assert report.library_problem.absence is Absence.NO_LIBRARY


def test_a_lost_gpu_says_so_and_its_neighbour_is_untouched() -> None:
    """A GPU that fell off the bus is reported as lost, with nothing made up, beside one that answers in full."""
    fake = FakeNvml(node(H200, L4))
    healthy = device(probed(FakeNvml(node(H200, L4))), "GPU-l4")
    fake.lose_gpu("GPU-h200")
    lost, neighbour = probed(fake).devices
    assert "GPU_IS_LOST" in lost.health.lost
    assert "fallen off the bus" in lost.health.lost
    assert isinstance(lost.memory, NotApplicable)
    assert lost.engines == ()
    assert neighbour == healthy


def test_a_gpu_whose_handle_is_refused_is_still_counted() -> None:
    """A device that the driver counts and does not give out is reported, with the reason as every answer."""
    fake = FakeNvml(node(replace(H200, faults={"nvmlDeviceGetHandleByIndex": LOST}), L4))
    lost, neighbour = probed(fake).devices
    assert "GPU_IS_LOST" in lost.health.lost
    assert (lost.index, lost.name) == (0, "GPU 0")
    assert neighbour.uuid == "GPU-l4"


@pytest.mark.parametrize(
    ("xid", "action"),
    [(68, XidAction.RESTART_WORKER), (73, XidAction.RESTART_WORKER), (79, XidAction.DRAIN_NODE)],
)
def test_xids_arrive_with_what_to_do(xid: int, action: XidAction) -> None:
    """An Xid that is raised while a device is watched arrives once, named by device, with its rule."""
    fake = FakeNvml(node(H200, L4))
    fake.nvmlInit()
    handles = {each.simulated.uuid: fake.nvmlDeviceGetHandleByIndex(each.index) for each in fake.devices}
    with watch_events(fake, handles) as watch:
        assert watch.poll() == ()
        fake.raise_xid("GPU-l4", xid)
        (event,) = watch.poll()
        assert (event.uuid, event.xid, event.gpu_instance) == ("GPU-l4", xid, None)
        assert event.rule is not None
        assert event.rule.action is action
        assert watch.poll() == ()
        assert watch.failure is None
    assert watch.poll() == ()


def test_the_xid_of_a_lost_gpu_still_names_it() -> None:
    """The last event of a GPU that no longer answers is told with its UUID, which nobody can ask for any more."""
    fake = FakeNvml(node(H200))
    fake.nvmlInit()
    with watch_events(fake, {"GPU-h200": fake.nvmlDeviceGetHandleByIndex(0)}) as watch:
        fake.lose_gpu("GPU-h200")
        assert [(event.uuid, event.xid) for event in watch.poll()] == [("GPU-h200", 79)]


def test_a_device_that_tells_no_events_is_named() -> None:
    """Where a device has no events, the watch says so instead of promising them."""
    fake = FakeNvml(node(ORIN, L4))
    fake.nvmlInit()
    handles = {each.simulated.uuid: fake.nvmlDeviceGetHandleByIndex(each.index) for each in fake.devices}
    with watch_events(fake, handles) as watch:
        assert list(watch.unwatched) == ["GPU-orin"]


def test_xids_of_a_longer_watch_are_in_the_report() -> None:
    """A report holds the Xids that somebody saw before, and those that wait when the probe looks."""
    fake = FakeNvml(node(replace(H200, xids=(31,))))
    report = probe_nvml(fake, xids={"GPU-h200": (73,)}, sleep=lambda _: None)
    assert report.devices[0].health.xids == (73, 31)


def test_what_the_driver_advises_is_in_words() -> None:
    """The driver's own recovery action is read from its field, and a field that is refused is absent."""
    fake = busy(FakeNvml(node(H200, A100)))
    hopper, ampere = probed(fake).devices
    assert hopper.health.recovery_action == "reset"
    assert isinstance(ampere.health.recovery_action, NotApplicable)


def test_a_function_that_the_binding_lacks_is_absent() -> None:
    """The fake has no functions that it does not know, so a probe meets it as it would an older binding."""
    fake = FakeNvml(node(L4))
    with pytest.raises(AttributeError):
        _ = fake.nvmlDeviceSetMigMode
    answer = ask_named(fake, "nvmlDeviceGetSomethingOfTomorrow")
    assert isinstance(answer, NotApplicable)
    assert answer.absence is Absence.FUNCTION_NOT_FOUND


@pytest.mark.parametrize(
    ("host", "creatable"),
    [
        pytest.param(replace(HOST, vgpus=()), "all", id="no vGPU runs: every supported type"),
        pytest.param(HOST, {562, 572, 583}, id="one runs: only types of its size"),
        pytest.param(
            replace(HOST, vgpus=tuple(replace(VGPU, instance=number) for number in range(6))), set(), id="full: none"
        ),
        pytest.param(replace(A100, virtualization=3, slices=()), set(), id="MIG without GPU instances: none"),
        pytest.param(replace(A100, virtualization=3), {90750, 90754}, id="MIG: types of the free GPU instances"),
        pytest.param(
            replace(
                A100,
                virtualization=3,
                vgpus=tuple(
                    replace(VGPU, instance=number, type_id=number, type_name=name)
                    for number, name in ((90750, "GRID A100X-1-5C"), (90754, "GRID A100X-3-20C"))
                ),
            ),
            set(),
            id="MIG with a vGPU on every GPU instance: none",
        ),
    ],
)
def test_which_vgpus_can_be_created(host: SimulatedDevice, creatable: set[int] | str) -> None:
    """The vGPU types that can be made now follow the guide's rules (2.2), with and without MIG."""
    fake = FakeNvml(node(host))
    fake.nvmlInit()
    handle = fake.nvmlDeviceGetHandleByIndex(0)
    supported = set(fake.nvmlDeviceGetSupportedVgpus(handle))
    expected = supported if creatable == "all" else creatable
    assert set(fake.nvmlDeviceGetCreatableVgpus(handle)) == expected
    assert expected <= supported


def test_a_gpu_that_hosts_nothing_refuses_vgpu_questions() -> None:
    """On a GPU that is no vGPU host the vGPU functions answer NOT_SUPPORTED, as measured on an H200."""
    fake = FakeNvml(node(H200))
    fake.nvmlInit()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        fake.nvmlDeviceGetSupportedVgpus(fake.nvmlDeviceGetHandleByIndex(0))


_ADAPTER = TypeAdapter(NvmlReport)


def _plain(report: NvmlReport) -> Any:  # noqa: ANN401 - maps and lists of plain values
    return _ADAPTER.dump_python(report, mode="json")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - maps and lists of plain values
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _leaves(item, f"{path}[{position}]")
    else:
        yield path, value


def _called(*machines: SimulatedNode) -> list[str]:
    calls: set[str] = set()
    for machine in machines:
        fake = busy(FakeNvml(machine))
        probed(fake)
        calls |= set(fake.calls)
    return sorted(calls)


FAULTY_NODE = node(H100_MIG, L4)


@settings(deadline=None, max_examples=150)
@given(
    function=st.sampled_from(_called(FAULTY_NODE)),
    code=st.sampled_from([*RETURN_CODES, NO_SUCH_CODE]),
    only_one=st.booleans(),
)
def test_no_fault_raises_and_no_absence_becomes_a_zero(function: str, code: int, *, only_one: bool) -> None:
    """Whatever any function answers, the probe reports: what is no longer known is absent, never zero."""
    fake = busy(FakeNvml(FAULTY_NODE))
    healthy = dict(_leaves(_plain(probed(busy(FakeNvml(FAULTY_NODE))))))
    faults = fake.devices[0].faults if only_one else fake.faults
    faults[function] = code
    report = dict(_leaves(_plain(probed(fake))))
    changed = {path: value for path, value in report.items() if healthy.get(path, "absent") != value}
    assert not {path: value for path, value in changed.items() if value in (0, False)}


@pytest.mark.parametrize("code", [*RETURN_CODES, NO_SUCH_CODE])
def test_a_device_that_answers_nothing_has_no_numbers(code: int) -> None:
    """Where every question about a device is refused, its report holds reasons and not one number or yes or no."""
    fake = busy(FakeNvml(node(H100_MIG)))
    functions = {name for name in vars(pynvml) if name.startswith(("nvmlDeviceGet", "nvmlGpm"))}
    handed_out = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    fake.faults.update(dict.fromkeys(functions - handed_out, code))
    leaves = _leaves(_plain(probed(fake))["devices"])
    numbers = {path: value for path, value in leaves if isinstance(value, (int, float))}
    # Who is asked is known without asking: its place, and that it is no vGPU.
    assert numbers == {"[0].index": 0, "[0].uuid_is_stable": True}


@pytest.mark.parametrize("function", _called(FAULTY_NODE))
def test_no_failure_is_silent(function: str) -> None:
    """A function that fails leaves a trace in the report, unless it only gives something back."""
    fake = busy(FakeNvml(FAULTY_NODE))
    fake.faults[function] = UNKNOWN
    gives_back = function in {"nvmlShutdown", "nvmlGpmSampleFree", "nvmlEventSetFree"}
    assert (probed(fake) == probed(busy(FakeNvml(FAULTY_NODE)))) is gives_back
