"""The short form of ``make rehearsal``: few jobs, all faults; and that its checks notice what is wrong."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet import QueueState
from codecfleet.cluster.queue.deciding import ended
from codecfleet.cluster.queue.values import QueuedCommand, QueuedJob, RunEnd
from tests.queue_cluster import obstacle
from tests.queue_progress import redone

from .checks import left_files, wrong_costs, wrong_ends
from .faults import Fault, Struck
from .rehearsal import Plan, rehearse
from .work import Ending, Wanted, sha256, transcodes

JOBS = 40


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_survive_every_fault() -> None:
    """Each job ends as it should, each fault costs what was in flight, and bills, shares and leftovers are right."""
    if reason := obstacle():
        pytest.skip(reason)
    result = rehearse(Plan(JOBS))
    assert result["problems"] == []
    assert [row["fault"] for row in result["faults"]] == [fault.value for fault in Fault]


def _job(job_id: str, end: RunEnd) -> QueuedJob:
    command = QueuedCommand(("transcode", "a.mkv", "b.mkv"), "/")
    job = QueuedJob(
        job_id=job_id, number=1, command=command, tenant="films", priority=0, due_s=None, submitted_s=0.0, attempt=1
    )
    return ended(replace(job, state=QueueState.RUNNING), end, 1.0)


def test_an_end_that_is_not_the_wanted_one_is_noticed(tmp_path: Path) -> None:
    """A lost job, a strange one, another state, another error and other bytes are a line each; a right end is none."""
    output = tmp_path / "out.mkv"
    output.write_bytes(b"picture")
    done = Wanted("one", "films", (), ((output, sha256(output)),))
    refused = Wanted("two", "films", (), (), QueueState.FAILED, "InputUnreadable")
    jobs = [_job("one", RunEnd(0)), _job("two", RunEnd(3, "InputUnreadable"))]
    assert list(wrong_ends([done, refused], jobs)) == []
    assert len(list(wrong_ends([done, refused], jobs[:1]))) == 1
    assert len(list(wrong_ends([done], jobs))) == 1
    assert len(list(wrong_ends([done, replace(refused, error="Unsupported")], jobs))) == 1
    assert len(list(wrong_ends([replace(done, state=QueueState.PARKED), refused], jobs))) == 1
    output.write_bytes(b"another")
    assert len(list(wrong_ends([done, refused], jobs))) == 1


@pytest.mark.parametrize("refused", [0, 1, 14])
def test_every_clip_is_in_a_job_and_long_ones_are_everywhere(tmp_path: Path, refused: int) -> None:
    """However many clips fail alone; a fault that needs a long clip finds one within a few jobs."""
    films = [tmp_path / f"{number}.mp4" for number in range(65)]
    long, bad = set(films[20:26]), set(films[:refused])
    ended = {
        (film, options): Ending("", "Unsupported") if film in bad else Ending("00", "", 10 if film in long else 1)
        for film in films
        for options in range(2)
    }
    jobs = [*transcodes(films, ended, tmp_path, 200)]
    sources = [Path(job.arguments[1]) for job in jobs]
    assert {*sources} == {*films}
    assert all(long & {*sources[first : first + 20]} for first in range(180))


def test_a_file_that_is_no_output_is_noticed(tmp_path: Path) -> None:
    """Of the temporary folder, only as many folders of Ray's as nodes were killed may stay."""
    outputs, temporary = tmp_path / "out", tmp_path / "tmp"
    for folder in (outputs / ".a.mkv.codecfleet", temporary / "pymp-1", temporary / "pymp-2"):
        folder.mkdir(parents=True)
    (outputs / "a.mkv").touch()
    wanted = Wanted("one", "films", (), ((outputs / "a.mkv", ""),))
    assert list(left_files(outputs, [wanted], temporary, 2)) == ["left beside the outputs: .a.mkv.codecfleet"]
    (outputs / ".a.mkv.codecfleet").rmdir()
    assert list(left_files(outputs, [wanted], temporary, 1)) == ["left in the temporary folder: pymp-2"]


def test_a_fault_that_costs_too_much_is_noticed() -> None:
    """Too many repeated segments, and a job without progress, give a line each."""
    assert list(wrong_costs([Struck(Fault.NODE_KILLED, [], 2, redone=2, all_s=1.0)], [])) == []
    assert len(list(wrong_costs([Struck(Fault.NODE_KILLED, [], 2, redone=3, all_s=None)], []))) == 2


def test_segments_that_ran_again_are_counted_in_and_between_attempts() -> None:
    """A second run of a late segment is no repetition; a line that was cut counts as nothing."""
    events = [{"event": "journal", "redone": 0}, *({"event": "segment_started", "segment": n} for n in (0, 1, 1, 2, 2))]
    lines = [json.dumps({"is_second": number == 5, **event}) for number, event in enumerate(events)]
    again = json.dumps({"event": "journal", "redone": 1})
    assert redone("\n".join(["codecfleet: attempt 1", *lines, '{"event": "seg'])) == 1
    assert redone("\n".join(["codecfleet: attempt 1", *lines, "codecfleet: attempt 2", again])) == 2
