"""How a failed segment is retried, and which other segments wait meanwhile."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.device.work import UNCONSTRAINED, Constraints
from codecfleet.errors import (
    CodecfleetError,
    DeadlineMissed,
    DeviceLost,
    DeviceMemory,
    EncoderFailed,
    EngineHung,
    EngineUnfit,
    InputUnreadable,
    NodeEnded,
    ProcessKilled,
    SessionLimit,
    Unsupported,
    WorkAbandoned,
    WorkerBroken,
    WorkerLost,
    WorkError,
)
from codecfleet.jobs.board.board import Board, decide, start_next
from codecfleet.jobs.board.events import Fail, Finished, Lost, Run
from codecfleet.jobs.board.retries import ATTEMPTS, LOSSES, MOVES, Attempt, FaultKind, next_step

GPU = "node/gpu#0:7"
ERRORS = (
    *(
        NodeEnded,
        WorkAbandoned,
        WorkerLost,
        WorkerBroken,
        ProcessKilled,
        DeviceLost,
        EngineHung,
        DeviceMemory,
        SessionLimit,
        EngineUnfit,
    ),
    *(DeadlineMissed, EncoderFailed, WorkError, InputUnreadable, Unsupported),
)


def raised(kind: type[CodecfleetError], where: str = GPU) -> CodecfleetError:
    """Return an error as a pool raises it."""
    error = kind("it went wrong", "")
    error.where = where
    return error


def climbed(
    *kinds: type[CodecfleetError], software: bool = True, first: Constraints = UNCONSTRAINED
) -> list[Constraints | None]:
    """Return the step after each of these errors, one attempt after the other."""
    history: tuple[Attempt, ...] = ()
    steps: list[Constraints | None] = [first]
    for number, kind in enumerate(kinds, 1):
        constraints = steps[-1]
        assert constraints is not None, f"it was given up before {kind}"
        error = raised(kind, f"node/gpu#{number}:{number}")
        history = (*history, Attempt.of(number, constraints, error))
        steps.append(next_step(history, software=software))
    return steps[1:]


@pytest.mark.parametrize("kind", [DeviceLost, EngineHung, WorkerBroken])
def test_a_device_that_failed_makes_suspect_and_software_ends_it(kind: type[CodecfleetError]) -> None:
    """After a device failure suspects run alone on the same kind of device, and after a second one in software."""
    alone, software, none = climbed(kind, DeviceLost, DeviceLost)
    assert alone == Constraints(alone=True, same_kind_as="node/gpu#1:1", avoid=frozenset({"node/gpu#1"}))
    assert software is not None
    assert software.alone
    assert software.same_kind_as == ""
    assert software.software == "the device failed: it went wrong"
    assert none is None


def test_a_neighbours_failure_is_not_charged_to_work_that_was_alone() -> None:
    """If the worker beside it breaks, work that ran alone is not blamed, and runs alone on a device again."""
    alone, again, software = climbed(DeviceLost, WorkerBroken, DeviceLost)
    assert again == alone
    assert software is not None
    assert software.software


def test_what_software_cannot_replace_is_tried_alone_elsewhere() -> None:
    """Work that only DLAs can do is tried a few times, away from the DLAs that failed."""
    steps = climbed(*[DeviceLost] * ATTEMPTS, software=False)
    assert [step and (step.alone, len(step.avoid), step.software) for step in steps] == [
        (True, 1, ""),
        (True, 2, ""),
        None,
    ]


def test_a_first_silent_death_is_not_held_against_the_work() -> None:
    """After one silent death work runs beside others again, after the second alone; many end the job."""
    steps = climbed(*[WorkerLost] * LOSSES)
    assert steps[0] == UNCONSTRAINED
    assert steps[1] == Constraints(alone=True)
    assert steps[-2:] == [Constraints(alone=True), None]


@pytest.mark.parametrize("move", [NodeEnded, WorkAbandoned])
def test_what_is_no_fault_of_the_work_is_not_charged(move: type[CodecfleetError]) -> None:
    """Moves count for nothing, however they mix with failures; only very many of them end the job."""
    for kinds in ([WorkerLost] * LOSSES, [DeviceLost] * 3, [DeadlineMissed] * ATTEMPTS):
        moved = climbed(*[each for kind in kinds for each in (move, move, kind)])
        ways = [[step and (step.alone, step.software) for step in steps] for steps in (moved[2::3], climbed(*kinds))]
        assert ways[0] == ways[1]
        assert moved[0::3] == moved[1::3]
    assert climbed(*[move] * MOVES) == [UNCONSTRAINED] * (MOVES - 1) + [None]


def test_what_kills_its_own_process_is_tried_in_software_and_then_given_up() -> None:
    """A crash while work ran alone is charged to that work at once."""
    steps = climbed(WorkerLost, WorkerLost, ProcessKilled, ProcessKilled)
    assert [step and (step.alone, bool(step.software)) for step in steps] == [
        (False, False),
        (True, False),
        (True, True),
        None,
    ]


@pytest.mark.parametrize("kind", [ProcessKilled, DeviceLost])
def test_work_that_software_decoded_from_the_start_may_fail_alone_twice(kind: type[CodecfleetError]) -> None:
    """One death from outside does not end a job that is decoded in software because a segment broke a device."""
    why = "another segment broke the device"
    steps = climbed(WorkerBroken, kind, kind, first=Constraints(software=why))
    assert [step and (step.alone, step.software) for step in steps] == [(True, why), (True, why), None]


def test_an_error_that_leaves_its_process_sound_climbs_by_devices() -> None:
    """After an error that leaves the process sound: a fresh session, another device, software; no separate process."""
    same, other, software, none = climbed(*[DeviceMemory] * (ATTEMPTS + 1))
    assert same == UNCONSTRAINED
    assert other == Constraints(avoid=frozenset({"node/gpu#1", "node/gpu#2"}))
    assert software is not None
    assert software.software
    assert none is None
    (elsewhere,) = climbed(EngineUnfit)
    assert elsewhere == Constraints(avoid=frozenset({"node/gpu#1"})), "a device that cannot is not asked again"


def test_work_that_hangs_is_tried_elsewhere() -> None:
    """Hung work avoids every station where it hung, and fails at the third hang."""
    other, third, none = climbed(*[DeadlineMissed] * ATTEMPTS)
    assert other == Constraints(avoid=frozenset({"node/gpu#1"}))
    assert third == Constraints(avoid=frozenset({"node/gpu#1", "node/gpu#2"}))
    assert none is None


@given(st.lists(st.sampled_from(ERRORS), min_size=1, max_size=40), st.booleans())
def test_every_ladder_ends(kinds: list[type[CodecfleetError]], software: bool) -> None:  # noqa: FBT001 - Hypothesis gives it
    """Every ladder is short, keeps its constraints, and blames no device for the input."""
    history: tuple[Attempt, ...] = ()
    constraints = UNCONSTRAINED
    for number, kind in enumerate(kinds, 1):
        history = (*history, Attempt.of(number, constraints, raised(kind)))
        step = next_step(history, software=software)
        if issubclass(kind, InputUnreadable | Unsupported):
            assert step is None
        if step is None:
            break
        assert bool(step.software) >= bool(constraints.software), "what left a device does not come back to it"
        assert software or not step.software
        constraints = step
    assert len(history) <= LOSSES + 3 * ATTEMPTS
    assert copy.copy(history) == history


def failing(board: Board, runs: dict[int, Run], segment: int, kind: type[CodecfleetError]) -> Board:
    """Let a running segment fail without ending the job."""
    attempt = runs.pop(segment).attempt
    board, effects = decide(board, Lost(segment, raised(kind), attempt=attempt))
    assert effects == []
    return board


def started(board: Board, runs: dict[int, Run], at_once: int = 8) -> tuple[Board, list[int]]:
    """Start all segments that may start; return the board and these segments."""
    board, new = start_next(board, at_once)
    runs |= {run.segment: run for run in new}
    return board, [run.segment for run in new]


def ended(board: Board, runs: dict[int, Run], segment: int) -> Board:
    """Let a running segment succeed."""
    attempt = runs.pop(segment).attempt
    return decide(board, Finished(segment, segment, (), (), at_start=True, attempt=attempt))[0]


def test_suspects_go_first_one_by_one_and_hold_back_the_rest() -> None:
    """Until one suspect has run without breaking anything, no other segment of the file gets a device."""
    runs: dict[int, Run] = {}
    board, _ = started(Board.of([1] * 8), runs, 3)
    board = failing(board, runs, 1, DeviceLost)
    board = failing(board, runs, 0, WorkerBroken)
    board = failing(board, runs, 2, WorkerBroken)
    board, new = started(board, runs)
    assert new == [0]
    assert runs[0].constraints.alone
    assert runs[0].history[0].fault is FaultKind.SUSPECT
    board = ended(board, runs, 0)
    board, new = started(board, runs)
    assert new == [1, 2], "one is cleared: the others need not wait for each other"
    board = ended(board, runs, 1)
    assert started(board, runs)[1] == []
    board = ended(board, runs, 2)
    board, new = started(board, runs)
    assert new == [3, 4, 5, 6, 7]
    assert all(run.constraints == UNCONSTRAINED for run in runs.values())
    assert board.software == ""


def test_a_guilty_segment_takes_its_file_to_software() -> None:
    """A segment that breaks the device alone, and all later ones of its file, decode in software, with the reason."""
    runs: dict[int, Run] = {}
    board, _ = started(Board.of([1] * 4), runs, 2)
    board = failing(board, runs, 0, DeviceLost)
    board = failing(board, runs, 1, WorkerBroken)
    board, _ = started(board, runs)
    board = failing(board, runs, 0, DeviceLost)
    assert board.software == "the device failed: it went wrong"
    board, new = started(board, runs)
    assert new == [0], "what it does in software is to be seen first"
    assert (runs[0].constraints.alone, runs[0].constraints.software) == (True, board.software)
    board = ended(board, runs, 0)
    board, new = started(board, runs)
    assert new == [1, 2, 3]
    assert all(run.constraints == Constraints(software=board.software) for run in runs.values())


def test_a_segment_that_ends_every_process_says_so() -> None:
    """If a segment ends every process, the job's error names the segment and what to send."""
    board = Board.of([1])
    kinds = [WorkerLost, WorkerLost, ProcessKilled, ProcessKilled]
    for kind in kinds:
        board, (run,) = start_next(board, 1)
        board, effects = decide(board, Lost(0, raised(kind), attempt=run.attempt))
    (fail,) = effects
    assert isinstance(fail, Fail)
    assert fail.error.message == "segment 0 killed every process that ran it, 4 in all, last: it went wrong"
    assert "--keep-evidence" in fail.error.next_step
