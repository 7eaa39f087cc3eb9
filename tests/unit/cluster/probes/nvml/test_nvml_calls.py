"""How NVML's answers and errors are read, in the only module that calls NVML."""

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.nvml.calls import (
    CodeAnswered,
    DeviceQuestions,
    absence_of,
    ask_named,
    return_codes,
)
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

from ...maybe import missing


class Library:
    """A library with one function, which returns an answer or raises an error."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def nvmlDeviceGetName(self, _handle: object) -> object:  # noqa: N802 - NVML's own name
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def asked(answer: object) -> object:
    """Call the only function."""
    return ask_named(Library(answer), "nvmlDeviceGetName", "handle")


def test_codes_have_the_bindings_names() -> None:
    """The table of return codes has the binding's codes and names."""
    theirs = {
        value: name.removeprefix("NVML_ERROR_")
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_")
    }
    assert {0: "SUCCESS", **theirs} == {code: row.name for code, row in return_codes().items()}


@given(st.integers())
def test_any_code_has_a_reason(code: int) -> None:
    """A code that no manual lists is reported as a failure."""
    absence = absence_of("nvmlInit", code)
    assert str(code) in absence.reason
    assert code in return_codes() or absence.absence is Absence.FAILED
    assert not absence.reason.endswith(".")


def test_an_unversioned_function_of_a_newer_binding_is_not_found() -> None:
    """The binding hides FUNCTION_NOT_FOUND in an error without a code; the absence is the same."""
    answer = missing(asked(pynvml.NVMLLibraryMismatchError("use _v2")))
    assert answer.absence is Absence.FUNCTION_NOT_FOUND


def test_a_defect_of_the_binding_is_a_failure_and_not_an_exception() -> None:
    """Any other error of the binding, such as undecodable text or an unbound name, becomes an absence."""
    answer = missing(asked(UnboundLocalError("c_pidArray")))
    assert answer.absence is Absence.FAILED
    assert "UnboundLocalError" in answer.reason


@pytest.mark.parametrize("code", [0, 3, 4, 6, 13, 999, 15, 16, 18, 28])
def test_trouble_is_remembered(code: int) -> None:
    """A code that means trouble makes the device lost, with the name of the function; other codes do not."""
    questions = DeviceQuestions(Library(pynvml.NVMLError(code)), "handle")
    assert questions.lost == ""
    questions.ask("nvmlDeviceGetName", read=str)
    trouble = f"nvmlDeviceGetName answered {return_codes()[code].name}" if code in (15, 16, 18, 28) else ""
    assert questions.lost.startswith(trouble)
    assert bool(questions.lost) == bool(trouble)


def test_what_cannot_apply_is_not_asked() -> None:
    """For a query that is known to be meaningless, the reason is returned without a call."""
    reason = Unavailable(Absence.DOES_NOT_APPLY, "a vGPU has no name")
    questions = DeviceQuestions(Library(AssertionError("asked")), "handle", lambda _: reason)
    assert questions.ask("nvmlDeviceGetName", read=str) is reason


def test_an_answer_that_cannot_be_read_is_an_absence() -> None:
    """A reader may raise a return code from the answer itself, or any other error because of an odd answer."""

    def refused(_: object) -> int:
        raise CodeAnswered(3)

    questions = DeviceQuestions(Library("H200"), "handle")
    inner, odd = questions.ask("nvmlDeviceGetName", read=refused), questions.ask("nvmlDeviceGetName", read=int)
    assert isinstance(inner, Unavailable)
    assert isinstance(odd, Unavailable)
    assert (inner.absence, odd.absence) == (Absence.NOT_SUPPORTED, Absence.FAILED)
