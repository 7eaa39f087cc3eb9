"""NVML that cannot answer, and devices that fail: each absence has a reason, and none becomes a zero."""

from dataclasses import replace

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.probes.nvml.calls import ask_named, return_codes
from codecfleet.cluster.probes.nvml.events import watch_events
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.testing import FakeNvml

from .nvml_nodes import (
    H100_MIG,
    H200,
    L4,
    LOST,
    NO_SUCH_CODE,
    UNKNOWN,
    _leaves,
    _plain,
    busy,
    device,
    node,
    probed,
)


@pytest.mark.parametrize(
    ("code", "absence", "says", "fix"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, Absence.FAILED, "LIB_RM_VERSION_MISMATCH", "restart the machine"),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, Absence.NO_LIBRARY, "libnvidia-ml.so.1", "install NVIDIA's driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, Absence.NO_LIBRARY, "kernel driver is not loaded", "modprobe"),
    ],
)
def test_a_library_that_cannot_answer_says_how_to_fix_it(code: int, absence: Absence, says: str, fix: str) -> None:
    """The report has one problem and its fix.

    The driver is missing or not loaded, or it was upgraded while the old kernel module is still loaded.
    """
    fake = FakeNvml(node(L4))
    fake.library_code = int(code)
    report = probed(fake)
    assert report.library_problem is not None
    assert report.library_problem.absence is absence
    assert says in report.library_problem.reason
    assert fix in report.fix
    assert report.devices == ()


def test_a_driver_upgraded_while_the_library_was_open_is_noticed() -> None:
    """A probe opens the library again, so another process with an open library does not hide the mismatch."""
    fake = FakeNvml(node(L4))
    fake.nvmlInit()
    assert probed(fake).library_problem is None
    fake.library_code = int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    problem = probed(fake).library_problem
    assert problem is not None
    assert "LIB_RM_VERSION_MISMATCH" in problem.reason


def test_a_machine_without_nvidia_devices_has_no_library() -> None:
    """A node without GPUs has no driver; the probe reports this instead of failing."""
    report = probed(FakeNvml(node()))
    assert report.library_problem is not None
    assert report.library_problem.absence is Absence.NO_LIBRARY


def test_a_lost_gpu_says_so_and_its_neighbour_is_untouched() -> None:
    """A GPU that fell off the bus is reported as lost, without invented values, beside a GPU that answers in full."""
    fake = FakeNvml(node(H200, L4))
    healthy = device(probed(FakeNvml(node(H200, L4))), "GPU-l4")
    fake.lose_gpu("GPU-h200")
    lost, neighbour = probed(fake).devices
    assert "GPU_IS_LOST" in lost.health.lost
    assert "fallen off the bus" in lost.health.lost
    assert isinstance(lost.memory, Unavailable)
    assert lost.engines == ()
    assert neighbour == healthy


def test_a_gpu_whose_handle_is_refused_is_still_counted() -> None:
    """A device that the driver counts but refuses to open is reported, with the reason in place of every answer."""
    fake = FakeNvml(node(replace(H200, faults={"nvmlDeviceGetHandleByIndex": LOST}), L4))
    lost, neighbour = probed(fake).devices
    assert "GPU_IS_LOST" in lost.health.lost
    assert (lost.index, lost.name) == (0, "GPU 0")
    assert neighbour.uuid == "GPU-l4"


def test_an_xid_arrives_once() -> None:
    """An Xid during a watch arrives once, with the name of the device."""
    fake = FakeNvml(node(H200, L4))
    fake.nvmlInit()
    handles = {each.simulated.uuid: fake.nvmlDeviceGetHandleByIndex(each.index) for each in fake.devices}
    with watch_events(fake, handles) as watch:
        assert watch.poll() == ()
        fake.raise_xid("GPU-l4", 68)
        (event,) = watch.poll()
        assert (event.device, event.xid, event.gpu_instance) == ("GPU-l4", 68, None)
        assert watch.poll() == ()
        assert watch.failure is None
    assert watch.poll() == ()


def test_the_xid_of_a_lost_gpu_still_names_it() -> None:
    """The last event of a GPU that no longer answers has its UUID, which can no longer be queried."""
    fake = FakeNvml(node(H200))
    fake.nvmlInit()
    with watch_events(fake, {"GPU-h200": fake.nvmlDeviceGetHandleByIndex(0)}) as watch:
        fake.lose_gpu("GPU-h200")
        assert [(event.device, event.xid) for event in watch.poll()] == [("GPU-h200", 79)]


def test_xids_that_wait_are_in_the_report() -> None:
    """A report has the Xids that were raised before the probe."""
    report = probed(FakeNvml(node(replace(H200, xids=(31,)))))
    assert report.devices[0].health.xids == (31,)


def test_a_function_that_the_binding_lacks_is_absent() -> None:
    """The fake lacks functions that it does not know, so for a probe it is like an older binding."""
    fake = FakeNvml(node(L4))
    with pytest.raises(AttributeError):
        _ = fake.nvmlDeviceSetMigMode
    answer = ask_named(fake, "nvmlDeviceGetSomethingOfTomorrow")
    assert isinstance(answer, Unavailable)
    assert answer.absence is Absence.FUNCTION_NOT_FOUND


def _called(*machines: SimulatedNode) -> list[str]:
    calls: set[str] = set()
    for machine in machines:
        fake = busy(FakeNvml(machine))
        probed(fake)
        calls |= set(fake.calls)
    return sorted(calls)


FAULTY_NODE = node(H100_MIG, L4)
HEALTHY = probed(busy(FakeNvml(FAULTY_NODE)))


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(
    function=st.sampled_from(_called(FAULTY_NODE)),
    code=st.sampled_from([*return_codes(), NO_SUCH_CODE]),
    only_one=st.booleans(),
)
def test_no_fault_raises_and_no_absence_becomes_a_zero(function: str, code: int, *, only_one: bool) -> None:
    """Whatever any function answers, the probe returns a report; unknown values are absent, never zero."""
    fake = busy(FakeNvml(FAULTY_NODE))
    healthy = dict(_leaves(_plain(HEALTHY)))
    faults = fake.devices[0].faults if only_one else fake.faults
    faults[function] = code
    report = dict(_leaves(_plain(probed(fake))))
    changed = {path: value for path, value in report.items() if healthy.get(path, "absent") != value}
    assert not {path: value for path, value in changed.items() if value in (0, False)}


@pytest.mark.parametrize("code", [*return_codes(), NO_SUCH_CODE])
def test_a_device_that_answers_nothing_has_no_numbers(code: int) -> None:
    """If every query about a device is refused, its report has only reasons, and no number or boolean."""
    fake = busy(FakeNvml(node(H100_MIG)))
    functions = {name for name in vars(pynvml) if name.startswith("nvmlDeviceGet")}
    handed_out = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    fake.faults.update(dict.fromkeys(functions - handed_out, code))
    leaves = _leaves(_plain(probed(fake))["devices"])
    numbers = {path: value for path, value in leaves if isinstance(value, (int, float))}
    # Only two values are known without a query: the index, and that the device is not a vGPU.
    assert numbers == {"[0].index": 0, "[0].uuid_is_stable": True}


@pytest.mark.parametrize("function", _called(FAULTY_NODE))
def test_no_failure_is_silent(function: str) -> None:
    """The failure of a function shows in the report, unless it only releases something or listens to events."""
    fake = busy(FakeNvml(FAULTY_NODE))
    fake.faults[function] = UNKNOWN
    is_silent = function in {"nvmlShutdown", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"}
    assert (probed(fake) == HEALTHY) is (is_silent or function.startswith("nvmlEventSet"))
