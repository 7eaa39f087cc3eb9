"""What a worker process says of the work that failed there."""

from typing import TYPE_CHECKING

import numpy as np

from codecfleet.cluster.worker.outcome import Outcome, failed, located, packed, unpacked
from codecfleet.errors import InputDamaged, InputNotFound

if TYPE_CHECKING:
    import pickle


def test_a_missing_input_is_missing_somewhere() -> None:
    """The job's own process has read it: the error names the node and the process that cannot."""
    error = located(
        failed(InputNotFound("there is no file /in/a.mkv", "Check the path.")), "process 7 on node gpu-3"
    ).error
    assert isinstance(error, InputNotFound)
    assert error.message == "there is no file /in/a.mkv as process 7 on node gpu-3 sees it"
    assert "under the same name" in error.next_step


def test_other_outcomes_are_left() -> None:
    """A result, and an error that has nothing to do with the place."""
    for outcome in (Outcome(7), failed(InputDamaged("damaged"))):
        assert located(outcome, "anywhere") is outcome


def test_large_results_are_not_copied() -> None:
    """Arrays in an outcome lie beside its pickle, and come back as views of that."""
    payload = np.arange(1_000_000, dtype=np.uint8)
    aside: list[pickle.PickleBuffer] = []
    content = packed(Outcome(payload), aside.append)
    assert len(content) < 10_000
    assert np.shares_memory(unpacked(content, [each.raw() for each in aside]).result, payload)
