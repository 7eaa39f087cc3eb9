"""When the works of a ladder's renditions begin: they share what they can, and nothing waits for ever."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.ladder.sharing import LadderRoom, Next, OpenGroup, RenditionState, beginning

IDLE = RenditionState(left=9)
BUSY = RenditionState(runs=1, segments=1, left=9)
ENDING = RenditionState(runs=1, segments=1, left=1)


def group(number: int, lacks: str = "", segment: int | None = None) -> OpenGroup:
    """Return a group that lacks the renditions with these letters."""
    return OpenGroup(number=number, segment=number if segment is None else segment, lacks=frozenset(lacks))


@pytest.mark.parametrize(
    ("rendition", "slots", "expected"),
    [
        (RenditionState(), 1, Next.SURE),
        (RenditionState(runs=1, segments=1), 1, Next.NONE),
        (RenditionState(runs=1, segments=1), 2, Next.LIKELY),
        (RenditionState(runs=1, segments=1, runs_max=1), 2, Next.NONE),
        (IDLE, 0, Next.SURE),
        (RenditionState(left=0), 2, Next.NONE),
        (RenditionState(runs=2, segments=1, left=2), 4, Next.LIKELY),
        (ENDING, 4, Next.NONE),
    ],
)
def test_what_a_rendition_may_still_ask_for(rendition: RenditionState, slots: int, expected: Next) -> None:
    """It is known from its works, its segments and its limits."""
    assert rendition.next(slots) is expected


@pytest.mark.parametrize(
    ("groups", "renditions", "room", "expected"),
    [
        pytest.param([group(0), group(1)], {}, LadderRoom(slots=0), (0, 1), id="complete groups wait in the pool"),
        pytest.param(
            [group(0), group(1)], {}, LadderRoom(slots=4, runs_max=1), (0,), id="workers limit complete groups"
        ),
        pytest.param([group(0, "a")], {"a": IDLE}, LadderRoom(slots=2), (), id="a rendition without work will ask"),
        pytest.param(
            [group(0, "a")], {"a": BUSY}, LadderRoom(slots=2, running=1), (), id="a rendition with room may ask"
        ),
        pytest.param([group(0, "a")], {"a": BUSY}, LadderRoom(slots=2), (0,), id="but nothing waits if nothing runs"),
        pytest.param([group(0, "a")], {"a": BUSY}, LadderRoom(slots=1, running=1), (), id="no slot is free"),
        pytest.param(
            [replace(group(0, "a"), is_second=True)],
            {"a": BUSY},
            LadderRoom(slots=2, running=1),
            (0,),
            id="a late segment's second run does not wait",
        ),
        pytest.param(
            [group(0, "a")], {"a": ENDING}, LadderRoom(slots=2, running=1), (0,), id="it has nothing more to ask"
        ),
        pytest.param([group(0, "a")], {"a": BUSY}, LadderRoom(slots=0), (), id="no slot yet"),
        pytest.param(
            [group(0, "a", 5), group(1, "b", 3)],
            {"a": ENDING, "b": ENDING},
            LadderRoom(slots=1),
            (1,),
            id="earliest first",
        ),
        pytest.param(
            [group(0, "a", 0), group(1, "", 3)],
            {"a": ENDING},
            LadderRoom(slots=1),
            (1,),
            id="complete before incomplete",
        ),
        pytest.param([group(0, "a")], {"a": ENDING}, LadderRoom(slots=1, running=3), (), id="slots were taken away"),
    ],
)
def test_what_begins(
    groups: list[OpenGroup], renditions: dict[str, RenditionState], room: LadderRoom, expected: tuple[int, ...]
) -> None:
    """One case for each rule."""
    assert beginning(groups, renditions, room) == expected


_RENDITIONS = st.builds(
    lambda runs, doubled, left, most: RenditionState(
        runs=runs + doubled * bool(runs), segments=runs, left=left, runs_max=most
    ),
    st.integers(0, 3),
    st.integers(0, 1),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(1, 3),
)


@given(st.data())
def test_limits_hold(data: st.DataObject) -> None:
    """Nothing begins twice or beyond a limit; if nothing runs, only a rendition that is sure to ask is awaited."""
    renditions = data.draw(st.dictionaries(st.sampled_from("abc"), _RENDITIONS))
    lacks = st.frozensets(st.sampled_from(sorted(renditions)), max_size=3) if renditions else st.just(frozenset[str]())
    groups = [
        OpenGroup(number=number, segment=data.draw(st.integers(0, 3)), lacks=data.draw(lacks))
        for number in range(data.draw(st.integers(0, 5)))
    ]
    room = LadderRoom(
        slots=data.draw(st.integers(0, 4)),
        running=data.draw(st.integers(0, 4)),
        runs_max=data.draw(st.none() | st.integers(1, 3)),
    )
    begun = beginning(groups, renditions, room)
    by_number = {each.number: each for each in groups}
    assert len(set(begun)) == len(begun)
    assert set(begun) <= set(by_number)
    incomplete = [number for number in begun if by_number[number].lacks]
    assert not incomplete or room.running + len(begun) <= room.slots
    if room.runs_max is not None:
        assert not begun or room.running + len(begun) <= room.runs_max
    if groups and not begun and not room.running and room.slots:
        assert all(
            any(renditions[job].next(room.slots) is Next.SURE for job in each.lacks) for each in groups if each.lacks
        )


@dataclass
class Job:
    """A rendition that asks for its segments in order, as many at a time as the ladder has slots."""

    todo: list[int]
    runs: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)  # ended, but its job is still busy with the result

    @property
    def left(self) -> int:
        """The segments that are not encoded yet, as far as the ladder knows."""
        return len(self.todo) + len(self.runs) + len(self.late)


class Model:
    """A ladder without a pool: its renditions, its groups, and the events that may come next."""

    def __init__(self, jobs: dict[str, Job], slots: int) -> None:
        self.jobs = jobs
        self.slots = slots
        self.changes = 2  # how often the slots may still change; without slots they come back
        self.waiting: dict[int, set[str]] = {}
        self.running: dict[int, set[str]] = {}
        self.done: list[tuple[str, int]] = []
        self.decoded = 0

    def moves(self) -> list[tuple[str, str, int]]:
        """Return the events that may come next."""
        found = [("accept", name, segment) for name, job in self.jobs.items() for segment in sorted(job.late)]
        for name, job in self.jobs.items():
            if job.todo and len(job.runs) + len(job.late) < self.slots and job.todo[0] not in self.running:
                found.append(("ask", name, job.todo[0]))
        found += [("end", "", segment) for segment in self.running]
        return found + ([("slots", "", slots) for slots in range(4)] if self.changes or not self.slots else [])

    def take(self, event: str, name: str, number: int) -> None:
        """Apply an event, and begin what begins then."""
        match event:
            case "ask":
                job = self.jobs[name]
                job.todo.remove(number)
                job.runs.add(number)
                job.asked.add(number)
                self.waiting.setdefault(number, set()).add(name)
            case "accept":
                self.jobs[name].late.remove(number)
            case "end":
                for member in self.running.pop(number):
                    self.jobs[member].runs.remove(number)
                    self.jobs[member].late.add(number)
                    self.done.append((member, number))
            case "slots":
                self.slots, self.changes = number if self.changes else 1, max(0, self.changes - 1)
        self._begin()

    def _begin(self) -> None:
        at_work = {name: job for name, job in self.jobs.items() if job.left}
        groups = [
            group(each, "".join(name for name, job in at_work.items() if each not in job.asked))
            for each in self.waiting
        ]
        renditions = {
            name: RenditionState(runs=len(job.runs), segments=len(job.runs), left=job.left)
            for name, job in at_work.items()
        }
        for number in beginning(groups, renditions, LadderRoom(slots=self.slots, running=len(self.running))):
            assert number not in self.running
            self.running[number] = self.waiting.pop(number)
            self.decoded += 1


@given(st.data())
def test_every_ladder_ends(data: st.DataObject) -> None:
    """With any order of events, slots that come and go, and renditions that begin anywhere, each work runs once.

    If all renditions have the same segments, each segment is decoded once for all of them.
    """
    segments = list(range(data.draw(st.integers(1, 6))))
    is_same = data.draw(st.booleans())
    parts = st.just(segments) if is_same else st.lists(st.sampled_from(segments), unique=True)
    jobs = {name: Job(sorted(data.draw(parts))) for name in "abc"}
    wanted = sorted((name, segment) for name, job in jobs.items() for segment in job.todo)
    model = Model(jobs, data.draw(st.integers(0, 3)))
    while any(job.left for job in jobs.values()):
        moves = model.moves()
        assert moves, "work waits, and nothing will happen"
        model.take(*data.draw(st.sampled_from(moves)))
    assert sorted(model.done) == wanted
    assert not is_same or model.decoded == len(segments)
