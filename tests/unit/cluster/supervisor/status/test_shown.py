"""What ``codecfleet status`` shows about jobs and versions."""

from dataclasses import replace

from codecfleet.cluster.supervisor.state.events import Probed
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of
from codecfleet.cluster.version import VERSION

from ..core_worlds import World, node, wants


def test_a_job_has_the_name_of_its_input_and_its_progress() -> None:
    """A job shows the finished part, and the time left at its share of its workers' speed."""
    world = World(node("a"))
    said = wants("j", 4)
    left = sum(said.demand.segments)
    world.say("one", replace(said, demand=replace(said.demand, title="film.mkv", frames_total=4 * left)))
    (worker,) = {worker for book in world.core.state.clients.jobs() for worker in book.promised}
    book = world.core.state.clients.jobs()[0]
    book.said = replace(book.said, held={worker: 1})
    status = status_of(world.core.state, {worker: left / 95}, (), world.now_s)
    (job,) = status.jobs
    assert (job.title, job.done_percent, job.left_s) == ("film.mkv", 75, 95.0)
    assert any("j film.mkv" in line and "75 % done, 0:01:35 to go" in line for line in status_lines(status))


def test_unknown_values_of_a_job_are_left_out() -> None:
    """A job without an input's name, a length, or a worker with a known speed has no such values."""
    world = World(node("a"))
    world.say("one", wants("j", 4))
    (job,) = status_of(world.core.state, {}, (), world.now_s).jobs
    assert (job.title, job.done_percent, job.left_s) == ("", None, None)


def test_supervisor_and_nodes_have_their_version() -> None:
    """Nodes with another version can be found; the version of a node is known once the node was probed."""
    world = World(node("a"), node("b"))
    book = world.core.state.nodes.get("b")
    assert book is not None
    world.feed(Probed(replace(book.node, release="9.9.9")))
    status = status_of(world.core.state, {}, (), world.now_s)
    assert {each.name: each.release for each in status.nodes} == {"host-a": "", "host-b": "9.9.9"}
    lines = list(status_lines(status))
    assert lines[0].endswith(f", codecfleet {VERSION}")
    assert [line.split()[0] for line in lines if line.endswith(", codecfleet 9.9.9")] == ["host-b"]
