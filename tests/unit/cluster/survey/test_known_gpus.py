"""A machine's GPUs as NVML lists them."""

from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.survey.known_gpus import NO_GPUS, listed


def test_a_silent_driver_is_not_a_machine_without_gpus() -> None:
    """What was wrong is kept, so that GPUs are looked for again."""
    found = listed("here", Unavailable(Absence.TIMED_OUT, "no answer within 10 s"))
    assert found.trouble == "NVML did not list this machine's GPUs: no answer within 10 s"
    assert (found.devices, found.shown, NO_GPUS.trouble) == ((), None, "")
