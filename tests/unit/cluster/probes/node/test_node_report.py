"""Node reports are the same after a transfer, and other content is refused in one line."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from codecfleet.cluster.probes.cuda.pynvvideocodec import PyNvVideoCodecReport
from codecfleet.cluster.probes.cuda.report import CudaReport
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.node.container import ContainerReport
from codecfleet.cluster.probes.node.report import (
    SCHEMA_VERSION,
    DeviceTrials,
    ProbeProblem,
    from_json,
    pack,
    to_json,
    unpack,
)
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.tegra.module import TegraReport
from codecfleet.cluster.probes.vgpu.host import VgpuHostReport
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.errors import InputUnreadable
from codecfleet.testing.fleet.simulated_report import simulated_report

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.integers(-(2**62), 2**62)
LAPTOP = simulated_report(load_fleet("laptop").nodes[0], "laptop")


@cache
def any_value(kind: Any) -> st.SearchStrategy[Any]:
    """Return any value of a type, with numbers that both JSON and msgpack can hold."""
    with_numbers = {float: FINITE, int: NUMBERS, str: st.text(max_size=8)}
    for number, strategy in with_numbers.items():
        st.register_type_strategy(number, strategy)
    return st.from_type(kind)


PARTS: dict[str, Any] = {
    "nvml": NvmlReport | Unavailable,
    "cuda": CudaReport | Unavailable,
    "container": ContainerReport | Unavailable,
    "pynvvideocodec": PyNvVideoCodecReport | Unavailable,
    "tegra": TegraReport | Unavailable,
    "vgpu_hosts": dict[str, VgpuHostReport],
    "devices": tuple[DeviceTrials, ...],
    "probe_problems": tuple[ProbeProblem, ...],
}


@pytest.mark.parametrize("part", PARTS)
@settings(
    max_examples=settings().max_examples // 12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_any_value_of_the_probes_types_comes_back_equal(part: str, data: st.DataObject) -> None:
    """Every combination of values and absences that the types allow is the same after a transfer."""
    value = data.draw(any_value(PARTS[part]))
    report = replace(LAPTOP, **{part: value})
    assert unpack(pack(report)) == report
    assert from_json(json.loads(json.dumps(to_json(report)))) == report


@pytest.mark.parametrize("schema", [SCHEMA_VERSION + 1, 0, None, "1"])
def test_another_schema_is_refused_in_one_line(schema: object) -> None:
    """A report of another schema version is refused."""
    with pytest.raises(InputUnreadable, match="schema") as caught:
        unpack(msgpack.packb(to_json(LAPTOP) | {"schema": schema}))
    assert "\n" not in str(caught.value)


@example(b"\x81\x90\x00")
@given(st.binary(max_size=200))
def test_what_is_no_report_is_refused_in_one_line(content: bytes) -> None:
    """Any bytes that are no report cause one error, always of the same type."""
    with pytest.raises(InputUnreadable) as caught:
        unpack(content)
    assert "\n" not in str(caught.value)


def test_a_damaged_report_names_where() -> None:
    """The error names a field that has a value of the wrong type."""
    document = to_json(LAPTOP)
    document["host"]["cores"] = "many"
    with pytest.raises(InputUnreadable, match=r"host\.cores"):
        from_json(document)
