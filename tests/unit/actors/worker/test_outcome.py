"""The outcomes of failed work."""

from codecfleet.actors.worker.outcome import Outcome, failed, located
from codecfleet.errors import InputDamaged, InputNotFound


def test_a_missing_input_is_missing_somewhere() -> None:
    """The job's own process could read the input, so the error names the node and process that cannot."""
    error = located(
        failed(InputNotFound("there is no file /in/a.mkv", "Check the path.")), "process 7 on node gpu-3"
    ).error
    assert isinstance(error, InputNotFound)
    assert error.message == "there is no file /in/a.mkv as process 7 on node gpu-3 sees it"
    assert "under the same name" in error.next_step
    for outcome in (Outcome(7), failed(InputDamaged("damaged"))):
        assert located(outcome, "anywhere") is outcome
