"""Devices are quarantined by identity, wait longer each time, and return through a trial."""

from dataclasses import replace

import msgpack
import pytest

from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.placement.model.inventory import Device, DeviceState
from codecfleet.cluster.probes.report.engines import Engine, How
from codecfleet.cluster.supervisor.state.events import KeepQuarantines, Order
from codecfleet.cluster.supervisor.state.kept import pack_kept, unpack_orders, unpack_quarantines
from codecfleet.cluster.supervisor.state.quarantine import (
    CLEAN,
    FAULT_KEPT_S,
    FILES_FAILED,
    FILES_WRONG,
    REST_MAX_S,
    Cause,
    DeviceRecord,
    Quarantine,
    due_now,
    is_due,
    key_of,
    put_away,
    suspects,
    trial_failed,
    trial_passed,
    why_faulty,
    why_not_passed,
    with_fault,
)
from codecfleet.cluster.worker_names import WorkerId

from ..core_worlds import gpu_node

REST_S = 30.0
SICK = Quarantine(cause=Cause.POLL, reason="its driver advises: reset", since_s=100.0)


def gpu(*works: Engine, state: DeviceState = DeviceState.OPEN) -> Device:
    """Return a GPU with NVDEC and NVENC; the engines in ``works`` passed their trial."""
    device, why = gpu_node("n", "GPU-a")[1].devices[0], "the picture came out wrong"
    trials = tuple(
        replace(trial, works=trial.engine in works, reason="" if trial.engine in works else why)
        for trial in device.trials
    )
    return replace(device, trials=trials, state=state, state_reason="" if state is DeviceState.OPEN else "it is sick")


BOTH = gpu(Engine.NVDEC, Engine.NVENC)
ASSUMED = replace(BOTH, trials=tuple(replace(trial, how=How.KIND) for trial in BOTH.trials))


def _rest_s(record: DeviceRecord, now_s: float) -> float:
    assert record.quarantine is not None
    return record.quarantine.rest_until_s - now_s


def test_each_failed_trial_doubles_the_wait_up_to_an_hour() -> None:
    """A device that does not recover is tried less and less often, but never given up."""
    record, rests = put_away(CLEAN, SICK, BOTH, REST_S), []
    for _ in range(9):
        rests.append(_rest_s(record, 100.0))
        record = trial_failed(record, "no", 100.0, REST_S)
    assert rests == [30, 60, 120, 240, 480, 960, 1920, REST_MAX_S, REST_MAX_S]


def test_a_relapse_waits_longer_and_a_long_healthy_time_is_forgiven() -> None:
    """The number of waits keeps growing after a return, until the device has worked for an hour."""
    returned = trial_passed(put_away(CLEAN, SICK, BOTH, REST_S), 200.0)
    relapse = put_away(returned, replace(SICK, since_s=300.0), BOTH, REST_S)
    assert _rest_s(relapse, 300.0) == 2 * REST_S
    later_s = 200.0 + REST_MAX_S
    assert _rest_s(put_away(returned, replace(SICK, since_s=later_s), BOTH, REST_S), later_s) == REST_S


def test_a_second_reason_keeps_the_time_of_the_first() -> None:
    """A quarantine dates from the first reason, but the last reason is shown."""
    record = put_away(CLEAN, SICK, BOTH, REST_S)
    again = put_away(
        record, Quarantine(cause=Cause.DEATHS, reason="it died", since_s=120.0, until_uncordon=True), BOTH, REST_S
    )
    assert again.quarantine is not None
    assert (again.quarantine.since_s, again.quarantine.reason, again.times) == (100.0, "it died", 1)
    assert not is_due(again, 1e9)
    assert is_due(due_now(again, 130.0), 130.0)


@pytest.mark.parametrize(
    ("probed", "reason"),
    [
        (BOTH, ""),
        (gpu(Engine.NVDEC), "its NVENC failed the trial: the picture came out wrong"),
        (gpu(Engine.NVENC), "its NVDEC failed the trial: the picture came out wrong"),
        (gpu(Engine.NVDEC, Engine.NVENC, state=DeviceState.QUARANTINED), "it is sick"),
        (ASSUMED, "its NVDEC failed the trial: it was not tried"),
        (replace(BOTH, untried="no package"), "its trial could not run: no package"),
        (None, "the probe of its node does not list it"),
    ],
)
def test_only_a_decode_and_an_encode_end_a_quarantine(probed: Device | None, reason: str) -> None:
    """Every engine that worked before must work in the trial."""
    found = put_away(CLEAN, SICK, BOTH, REST_S).quarantine
    assert found is not None
    assert why_not_passed(found, probed) == reason


def test_a_gpu_without_an_encoder_needs_no_encode() -> None:
    """An H200 returns when it decodes; a device about which nothing is known must pass some trial."""
    found = put_away(CLEAN, SICK, gpu(Engine.NVDEC), REST_S).quarantine
    assert found is not None
    assert why_not_passed(found, gpu(Engine.NVDEC)) == ""
    unknown = put_away(CLEAN, SICK, gpu(), REST_S).quarantine
    assert unknown is not None
    assert why_not_passed(unknown, gpu()) == "none of its engines passed a trial"


def _faults(*files: str, kind: FaultVerdict = FaultVerdict.FAILED, step_s: float = 1.0) -> DeviceRecord:
    record = CLEAN
    for number, file in enumerate(files):
        record = with_fault(record, DeviceFault(WorkerId("n/gpu#0:1"), file, "999", kind, at_s=number * step_s))
    return record


def test_one_file_never_convicts_a_device() -> None:
    """If one file fails often, or on two devices, the file is the suspect."""
    assert why_faulty(_faults(*["a"] * 50).faults, frozenset()) == ""
    assert why_faulty(_faults(*["a"] * 50, kind=FaultVerdict.WRONG).faults, frozenset()) == ""
    three = _faults("a", "b", "c")
    assert suspects([three, _faults("c")]) == {"c"}
    assert why_faulty(three.faults, suspects([three, _faults("c")])) == ""


@pytest.mark.parametrize(("files", "kind"), [(FILES_FAILED, FaultVerdict.FAILED), (FILES_WRONG, FaultVerdict.WRONG)])
def test_different_files_convict_a_device(files: int, kind: FaultVerdict) -> None:
    """Failures of three files, or wrong results for two files, convict a device; old ones do not count."""
    names = [f"f{number}" for number in range(files)]
    assert why_faulty(_faults(*names[1:], kind=kind).faults, frozenset()) == ""
    assert f"{files} different files" in why_faulty(_faults(*names, kind=kind).faults, frozenset())
    assert why_faulty(_faults(*names, kind=kind, step_s=FAULT_KEPT_S).faults, frozenset()) == ""


def test_the_identity_outlives_the_nodes_membership() -> None:
    """A UUID identifies a device; a vGPU guest is identified by bus id and host, because Ray's node id changes."""
    assert key_of("GPU-a", "4711", "host") == "GPU-a"
    assert key_of("4711/00000000:01:00.0", "4711", "host") == "host/00000000:01:00.0"


def test_a_successor_reads_what_was_kept() -> None:
    """Reasons, engines, age and remaining rest are kept, whatever the successor's clock shows."""
    record = put_away(CLEAN, SICK, BOTH, REST_S)
    assert record.quarantine is not None
    _, packed = pack_kept(KeepQuarantines({"GPU-a": record}), record.quarantine.since_s + 10)
    for now_s in (0.0, 1e9):
        (read,) = unpack_quarantines(packed, now_s).values()
        moved = replace(record.quarantine, since_s=now_s - 10, rest_until_s=now_s + REST_S - 10)
        assert read == DeviceRecord(quarantine=moved, times=1)
    _, packed = pack_kept(KeepQuarantines({"GPU-a": record}), record.quarantine.since_s + 10 * REST_S)
    (read,) = unpack_quarantines(packed, 5.0).values()
    assert is_due(read, 5.0)
    assert unpack_quarantines(None, 0.0) == {}


def test_a_successor_accepts_unknown_values() -> None:
    """If the cause is unknown, a device stays in quarantine; if an order is unknown, a node gets no work."""
    kept = {"cause": "boredom", "reason": "it is bored", "age_s": 60.0, "rest_s": 30.0, "moods": 3}
    (read,) = unpack_quarantines(msgpack.packb({"GPU-a": {**kept, "engines": ["nvdec", "warp"]}}), 100.0).values()
    assert read.quarantine is not None
    assert (read.quarantine.since_s, read.quarantine.rest_until_s, read.times) == (40.0, 130.0, 1)
    assert read.quarantine.engines == {Engine.NVDEC}
    (read,) = unpack_quarantines(
        msgpack.packb({"GPU-a": {"cause": "poll", "reason": "of another version"}}), 5.0
    ).values()
    assert is_due(read, 5.0)
    assert unpack_orders(msgpack.packb({"a": "drain", "b": "paint"})) == {"a": Order.DRAIN, "b": Order.CORDON}
