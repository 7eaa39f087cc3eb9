"""The table of CUDA's results, compared with the driver API's documentation."""

import re

import pytest

from codecfleet.actors.nvidia.cuda.results import FATAL_RESULTS, kind_of_result, name_of_result, result_named
from codecfleet.errors import DeviceLost, DeviceMemory, EngineFailed, EngineHung, EngineUnfit, Retry

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")

RESULTS = {int(result): result for result in driver.CUresult}
TOLD_APART = {2: DeviceMemory, 801: EngineUnfit, 702: EngineHung}


def test_names_are_those_of_the_driver_api() -> None:
    """Each listed code is in cuda.h under the same name, and has a reason."""
    assert {code: f"CUDA_ERROR_{result.name}" for code, result in FATAL_RESULTS.items()} == {
        code: RESULTS[code].name for code in FATAL_RESULTS
    }
    assert all(result.why for result in FATAL_RESULTS.values())


def test_what_the_documentation_calls_the_end_of_a_process_is_listed() -> None:
    """The table has every code after which the process must end or the context cannot be used, as cuda.h says."""
    final = re.compile(r"process must be terminated|context cannot be used anymore|destroyed using")
    documented = {code for code, result in RESULTS.items() if final.search(" ".join((result.__doc__ or "").split()))}
    assert len(documented) >= 12, "the binding carries no documentation any more"
    assert documented <= FATAL_RESULTS.keys()


@pytest.mark.parametrize("code", [code for code in RESULTS if code])
def test_every_code_is_one_kind_of_error(code: int) -> None:
    """Each code means memory, a missing feature, a timeout, a lost process, or just a failed call."""
    expected = TOLD_APART.get(code, DeviceLost if code in FATAL_RESULTS else EngineFailed)
    assert kind_of_result(code, EngineFailed) is expected
    if code in FATAL_RESULTS:
        assert expected.retry is Retry.ELSEWHERE
    name = RESULTS[code].name
    told = expected is not EngineFailed
    assert result_named(name.removeprefix("CUDA_ERROR_")) == (code if told else None)
    assert name_of_result(code) == (name if told else "")
