"""How long a job with one slow worker takes, on the board and its paces with a simulated clock."""

from dataclasses import dataclass, field

import pytest

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.jobs.board.board import Board, decide, double, start_next
from codecfleet.jobs.board.deadlines import LOOK_S, Paces, Seen
from codecfleet.jobs.board.events import Finished, Run, Withdraw
from codecfleet.jobs.request.running import WaitOptions

FRAMES = 250
FPS = 50.0


@dataclass
class Play:
    """A job on workers with one slot and one station each, whose speeds are fractions of ``FPS``."""

    speeds: list[float]
    board: Board
    percent: int
    paces: Paces = field(default_factory=lambda: Paces(WaitOptions()))
    queue: list[Run] = field(default_factory=list)
    at_work: dict[int, Run] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    wasted_frames: float = 0.0

    def makespan_s(self) -> float:
        """Play the job to its end, one sample at a time."""
        now_s = 0.0
        while not self.board.is_done:
            self.board, runs = start_next(self.board, len(self.speeds))
            self.queue += runs
            self._double()
            self._hand_out()
            self._work()
            now_s += LOOK_S
            assert now_s < 10_000
        return now_s

    def _double(self) -> None:
        labels = {run.label: run.segment for run in self.at_work.values()}
        for label in self.paces.late():
            if self.board.running < len(self.speeds) or not self.board.waits:
                self.board, runs = double(self.board, labels[label], self.percent)
                self.queue += runs

    def _hand_out(self) -> None:
        """Give queued runs to free workers that do not lag."""
        for run in tuple(self.queue):
            free = [w for w in range(len(self.speeds)) if w not in self.at_work and f"{w}" not in self.paces.lagging]
            if free:
                self.queue.remove(run)
                self.at_work[free[0]], self.done[free[0]] = run, 0.0
                self.paces = self.paces.begun(free[0], run.label, FRAMES)

    def _work(self) -> None:
        for worker in self.at_work:
            self.done[worker] = min(FRAMES, self.done[worker] + self.speeds[worker] * FPS * LOOK_S)
        seen = {run.label: Seen(f"{worker}", int(self.done[worker])) for worker, run in self.at_work.items()}
        self.paces = self.paces.looked(seen, LOOK_S)
        for worker in [worker for worker in self.at_work if self.done[worker] >= FRAMES]:
            if worker in self.at_work:
                self._finish(worker, self.at_work.pop(worker))

    def _finish(self, worker: int, run: Run) -> None:
        self.paces = self.paces.ended(worker, delivered=True)
        after = () if run.until == len(self.board.segments) - 1 else (PictureHash(run.until + 1, b""),)
        before = (PictureHash(run.segment, b""),)
        event = Finished(run.segment, run.until, before, after, at_start=False, attempt=run.attempt)
        self.board, effects = decide(self.board, event)
        for effect in effects:
            if isinstance(effect, Withdraw):
                self._withdraw(effect)

    def _withdraw(self, effect: Withdraw) -> None:
        self.queue = [run for run in self.queue if (run.segment, run.attempt) != (effect.segment, effect.attempt)]
        for worker, run in tuple(self.at_work.items()):
            if (run.segment, run.attempt) == (effect.segment, effect.attempt):
                self.wasted_frames += self.done[worker]
                self.paces = self.paces.ended(worker, delivered=False, withdrawn=True)
                del self.at_work[worker]


def play(speeds: list[float], segments: int, percent: int = 25) -> Play:
    """Return a job of equal segments."""
    return Play(speeds, Board.of([FRAMES] * segments), percent)


@pytest.mark.parametrize("segments", [6, 20, 50, 111])
@pytest.mark.parametrize("others", [1, 2, 3, 7, 15])
def test_a_slow_worker_costs_less_than_a_third(others: int, segments: int) -> None:
    """With one worker at a tenth of the speed, a job takes at most 1.3 times as long as without that worker."""
    alone_s = play([1.0] * others, segments).makespan_s()
    slowed = play([1.0] * others + [0.1], segments)
    slowed_s = slowed.makespan_s()
    assert slowed_s <= 1.3 * alone_s, (slowed_s, alone_s)
    assert slowed.board.doubled <= -(-segments // 4)


@pytest.mark.parametrize("speeds", [[1.0] * 4, [1.0, 0.9, 0.8, 0.9]])
def test_even_workers_do_nothing_twice(speeds: list[float]) -> None:
    """No frame is encoded twice if no worker is slow."""
    even = play(speeds, 30)
    even.makespan_s()
    assert (even.board.doubled, even.wasted_frames) == (0, 0.0)
