"""What is counted as redone, as allowed, and as a recovery."""

from .accounts import Struck, allowed, most_running, recovery_s, redone
from .driver import Said
from .schedule import Fault


def starts(segment: int, at_s: float, *, is_second: bool = False) -> Said:
    """A segment begins."""
    return Said(at_s, {"event": "segment_started", "segment": segment, "attempt": 1, "is_second": is_second})


def ends(segment: int, at_s: float) -> Said:
    """A segment is finished."""
    return Said(at_s, {"event": "segment_finished", "segment": segment})


def test_work_that_runs_again_after_a_fault_was_lost_to_it() -> None:
    """Its wait is measured whatever its attempt's number says; what started later for the first time does not count."""
    program = [starts(0, 1.0), starts(1, 1.0), ends(0, 2.0), starts(2, 2.1), starts(1, 2.5), ends(2, 3.0), ends(1, 3.5)]
    struck = [Struck(Fault.WORKER_TERMINATED, 0, 2.05)]
    assert recovery_s([program], struck, 0) == 0.45
    assert redone([program]) == 1
    assert most_running(program) == 2
    assert allowed([program], struck) == 2


def test_a_fault_that_takes_nothing_has_no_recovery() -> None:
    """All that ran at the fault is finished without another start."""
    program = [starts(0, 1.0), ends(0, 2.0), starts(1, 2.1), ends(1, 3.0)]
    assert recovery_s([program], [Struck(Fault.SUPERVISOR_KILLED, 0, 1.5)], 0) is None
    assert redone([program]) == 0


def test_the_next_program_does_what_a_killed_one_lost() -> None:
    """The wait lasts until the same command begins a segment that ran; what is restored was not lost."""
    killed = [starts(0, 1.0), ends(0, 2.0), starts(1, 2.0), starts(2, 2.0)]
    resumed = [starts(3, 7.0), starts(2, 8.0), ends(2, 9.0), ends(3, 9.0), starts(1, 9.0), ends(1, 10.0)]
    struck = [Struck(Fault.DRIVER_KILLED, 0, 3.0)]
    assert recovery_s([killed, resumed], struck, 0) == 5.0
    assert (redone([killed, resumed]), allowed([killed, resumed], struck)) == (2, 2)


def test_times_that_two_faults_share_are_not_measured() -> None:
    """While work of an earlier fault waits, or once a later one has struck, it may be either that gave it back."""
    program = [starts(0, 1.0), starts(1, 1.0), starts(0, 5.0), ends(0, 6.0), ends(1, 6.0)]
    struck = [Struck(Fault.WORKER_STOPPED, 0, 2.0), Struck(Fault.WORKER_KILLED, 0, 3.0)]
    assert [recovery_s([program], struck, number) for number in (0, 1)] == [None, None]


def test_what_is_damaged_or_late_may_run_again_too() -> None:
    """A damaged payload is one segment more, and so is each second run."""
    program = [starts(0, 1.0), starts(0, 1.5, is_second=True), ends(0, 2.0)]
    assert allowed([program], [Struck(Fault.PAYLOAD_DAMAGED, 0, 3.0)]) == 2


def test_a_worker_given_up_for_silence_takes_all_that_it_ran() -> None:
    """Whether a fault silenced it, or a busy machine did, as the program then says."""
    program = [starts(0, 1.0), starts(1, 1.0), ends(0, 9.0), ends(1, 9.0)]
    late = Said(8.0, {"event": "warning", "code": "deadline", "message": "no progress"})
    frozen = [Struck(Fault.WORKER_STOPPED, 0, 2.0)]
    assert allowed([[*program, late]], []) == 2
    assert allowed([program], frozen) == allowed([[*program, late]], frozen) == 4
