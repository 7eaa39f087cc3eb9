"""The fuzzing harness, and a short run of it."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .mutations import MUTATIONS, boxes, mutated
from .sandbox import Ending, Step
from .verdicts import Outcome, judge

HARNESS = Path(__file__).with_name("fuzz.py")
CORPUS = {"a.mp4": struct.pack(">I4s", 16, b"moov") + struct.pack(">I4s", 8, b"stsd") + bytes(400), "b.ts": b"G" * 940}
DONE = tuple(Step(command, 0, "") for command in ("probe", "plan", "transcode", "verify"))


def ended(*steps: Step, ended_by: int = 0, left: tuple[str, ...] = (), processes: int = 0) -> Ending:
    """Return an ending."""
    return Ending(steps=steps, signal=ended_by, left_files=left, left_processes=processes)


def test_a_seed_makes_the_same_film_again() -> None:
    """Equal seeds give equal files, many seeds use every mutation, and none fails on a tiny or foreign file."""
    made = [mutated(seed, CORPUS) for seed in range(400)]
    assert made == [mutated(seed, CORPUS) for seed in range(400)]
    assert {name for _, names, _ in made for name in names.split("+")} == {each.__name__ for each in MUTATIONS}
    assert len({data for _, _, data in made}) > 200
    for seed in range(200):
        mutated(seed, {"x": b"\0"})


def test_boxes_are_found_inside_boxes() -> None:
    """A box in a container is found, and broken lengths end the walk."""
    assert [box.kind for box in boxes(CORPUS["a.mp4"])] == [b"moov", b"stsd"]
    assert list(boxes(b"\xff" * 40)) == []


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (ended(*DONE), Outcome.EXACT),
        (ended(*DONE[:2], Step("transcode", 4, "codecfleet: error: no. Do.\n")), Outcome.REFUSED),
        (ended(*DONE[:2], Step("transcode", 5, "codecfleet: error: unexpected KeyError.\n")), Outcome.DEFECT),
        (ended(*DONE[:2], Step("transcode", 3, "codecfleet: error: a.\nand b\n")), Outcome.DEFECT),
        (ended(Step("probe", 1, "Traceback"), *DONE[1:]), Outcome.DEFECT),
        (ended(*DONE[:3], Step("verify", 1, "FAILED   frames.count: expected 2, found 1\n")), Outcome.DIFFERS),
        (ended(*DONE[:3], Step("verify", 5, "codecfleet: error: x.\n")), Outcome.UNVERIFIED),
        (ended(*DONE, Step("noise", 0, "Exception ignored in: x")), Outcome.NOISE),
        (ended(*DONE[:1], ended_by=signal.SIGALRM), Outcome.HANG),
        (ended(*DONE[:2], ended_by=signal.SIGSEGV), Outcome.CRASH),
        (ended(*DONE[:1]), Outcome.CRASH),
        (ended(*DONE, left=("tmp/x",)), Outcome.LEFTOVER),
        (ended(*DONE, processes=1), Outcome.LEFTOVER),
    ],
)
def test_only_exact_output_or_one_line_is_right(ending: Ending, outcome: Outcome) -> None:
    """Every other ending is a finding."""
    assert judge(ending)[0] is outcome
    assert outcome.is_finding == (outcome not in (Outcome.EXACT, Outcome.REFUSED))


def harness(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the harness on our own clips."""
    command = [sys.executable, str(HARNESS), "--own", *options]
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_a_case_ends_well(tmp_path: Path) -> None:
    """One mutated film goes through every command."""
    done = harness("--seed", "1", "--cases", "1", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "findings: 0" in done.stdout


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(400)
def test_thirty_cases_end_well(tmp_path: Path) -> None:
    """Thirty mutated films end in exact output or in one line."""
    done = harness("--seed", "100", "--cases", "30", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 cases" in done.stdout
