"""What is printed about an error that codecfleet does not define."""

import errno

import pytest

from codecfleet.cli.failures import failure_of


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread")],
)
def test_a_limit_of_this_program_is_not_a_defect(error: Exception) -> None:
    """If memory or threads run out, the line says which limit to raise."""
    failure = failure_of(error)
    assert "ulimit -v" in failure.line
    assert "defect" not in failure.line
    assert failure.exit_code == 5


def test_anything_else_is_a_defect() -> None:
    """And is named."""
    assert "unexpected ValueError: odd. This is a defect in codecfleet" in failure_of(ValueError("odd")).line
