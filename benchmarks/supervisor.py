"""Time the supervisor's decisions: 10,000 jobs of 100 clients on 1,000 nodes with 8 GPUs each, without Ray.

``python benchmarks/supervisor.py``; README.md beside this file says what each number means.
"""

import argparse
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, cycle, islice

from bench.large_fleet import CORES, large_fleet
from bench.machine import describe_run, described_lines
from bench.processes import read_memory
from bench.table import number, save_results, table_lines

from codecfleet.actors.by_name import packed, unpacked
from codecfleet.cluster.fleet.leases.exchange import Exchange
from codecfleet.cluster.placement.model.demand import PLAIN_FRAMES, plain_demand
from codecfleet.cluster.placement.model.inventory import Node
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.device_report import DeviceKind
from codecfleet.cluster.releases import OURS
from codecfleet.cluster.supervisor.core.answering import Answers
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.placing import SETTLE_S
from codecfleet.cluster.supervisor.state import events
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import StationBook
from codecfleet.cluster.supervisor.status.status import Status, status_of
from codecfleet.cluster.worker.heartbeat import Heartbeat, WorkerFacts, speed_between

TICK_S = 0.25
SEGMENTS = 20
SEGMENTS_TIMED = 1000
BEATS = 1000
SOME = 20
"""How many clients and ticks a figure is the mean of."""


class World:
    """A core, and a cluster that carries out every effect at once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.now_s = 0.0
        self.core = Core(SupervisorSettings(), Policy(), 1, self.now_s)
        self.nodes = nodes
        self.gpus = {
            f"{node.node}/gpu#{index}": device.device
            for node in nodes
            for index, device in enumerate(each for each in node.devices if each.kind is not DeviceKind.CPU)
        }
        self.sequence = 0
        self.may_settle = True
        """Whether all may be placed again at once, as the runner has it between its rests."""
        self.listed: dict[str, RayNode] = {}
        self.answers, self.numbers = Answers(), count(1)

    def join(self) -> None:
        """Have Ray list every node, and each be probed."""
        self.listed = {
            node.node: RayNode(
                node=node.node, name=node.name, cores=CORES, free_cores=CORES, gpus=len(node.devices) - 1
            )
            for node in self.nodes
        }
        self.feed([self.look(), *(events.Probed(node) for node in self.nodes)])

    def look(self) -> events.NodesSeen:
        """Return what Ray lists."""
        return events.NodesSeen(tuple(self.listed.values()))

    def take_cores(self) -> None:
        """Have Ray list the cores of workers as taken, as it does once they run."""
        taken = Counter[str]()
        for book in self.core.state.stations.values():
            taken[book.station.node] += book.ready_slots if book.station.is_processor else book.reserved_cores
        self.listed = {name: replace(node, free_cores=CORES - taken[name]) for name, node in self.listed.items()}
        self.feed([self.look()])

    def feed(self, happened: Sequence[events.SupervisorEvent]) -> None:
        """Have the core take in events and conclude once, as its runner does; and all that follows."""
        while happened:
            effects = [effect for event in happened for effect in self.core.take_in(event, self.now_s)]
            effects += self.core.conclude(self.now_s, may_settle=self.may_settle)
            happened = [answer for effect in effects if (answer := self._answer(effect)) is not None]

    def _answer(self, effect: events.Effect) -> events.SupervisorEvent | None:
        match effect:
            case events.Reserve(worker, _, cores, _):
                return events.Reserved(worker, cores)
            case events.Start(worker, station, slots, _):
                return events.Started(worker, WorkerFacts(1, slots, self.gpus.get(station.station, "")))
        return None

    def report(self, client: str, jobs: tuple[JobReport, ...]) -> events.Renewed:
        """Return a client's next report."""
        self.sequence += 1
        return events.Renewed(ClientReport(client, client, self.sequence, jobs))

    def grants(self, client: str) -> Grants:
        """Return what a client is sent."""
        return grants_for(self.core.state, client, self.now_s)

    def serve(self, report: ClientReport) -> Grants:
        """Do for one report all that the supervisor's process does with it but Ray's part: bytes in, bytes out."""
        self.feed([events.Renewed(unpacked(packed(report)))])
        grants, book = self.grants(report.client), self.core.state.clients.get(report.client)
        told = {} if book is None else dict(book.told)
        numbered = replace(grants, number=next(self.numbers), heard=report.sequence)
        answer: Grants = unpacked(packed(self.answers.cut(report, numbered, told)))
        return answer

    def finish(self, driver: "Driver", segments: int) -> None:
        """Have segments of a driver end one by one, its jobs' in turn, each with a report of its own."""
        self.may_settle = False
        for job in islice(cycle(tuple(driver.jobs)), segments):
            driver.end_segment(job)
            driver.talk()
        self.may_settle = True

    def tick(self) -> None:
        """Let a tick pass."""
        self.now_s += TICK_S
        self.feed([events.Ticked()])

    def tick_often(self) -> None:
        """Let several ticks pass."""
        for _ in range(SOME):
            self.tick()

    def working(self) -> list[StationBook]:
        """Return the stations of workers that work, one of each node."""
        books = [book for name in self.core.state.targets if (book := self.core.state.stations[name]).facts is not None]
        return list({book.station.node: book for book in books}.values())

    def die(self, books: Sequence[StationBook]) -> None:
        """Have the workers of stations die, one after the other; Ray knows of their cores only later."""
        for book in books:
            self.feed([events.Died(book.worker, "it was killed")])

    def free_cores_of(self, books: Sequence[StationBook]) -> None:
        """Have Ray list the cores of dead workers as free, those of one after the other."""
        for book in books:
            node = self.listed[book.station.node]
            self.listed[node.node] = replace(node, free_cores=node.free_cores + book.station.slots)
            self.feed([self.look()])

    def lose(self, nodes: Sequence[str]) -> None:
        """Have nodes go, one after the other."""
        for node in nodes:
            del self.listed[node]
            self.feed([self.look()])

    def settle(self) -> None:
        """Let the time pass after which all is placed again."""
        self.now_s += SETTLE_S
        self.tick()


class Driver:
    """A driver that reports; one of an earlier release tells of all its jobs each time, and is told of all."""

    def __init__(self, world: World, name: str, jobs: int, *, tells_all: bool = False) -> None:
        self.world, self.name, self.tells_all = world, name, tells_all
        self.jobs = {f"job-{job:03d}": JobReport(plain_demand(f"job-{job:03d}", SEGMENTS)) for job in range(jobs)}
        self.exchange, self.acknowledged = Exchange(), 0

    def end_segment(self, job: str) -> None:
        """Have a segment of a job end; a job that has none left has as many as it began with."""
        said = self.jobs[job]
        left = said.demand.segments[1:] or (PLAIN_FRAMES,) * SEGMENTS
        self.jobs[job] = replace(said, demand=replace(said.demand, segments=left))

    def talk(self) -> None:
        """Report, and take the answer in."""
        self.world.sequence += 1
        jobs = tuple(self.jobs.values())
        report = ClientReport(
            self.name, self.name, self.world.sequence, jobs, acknowledged=self.acknowledged, release=OURS
        )
        sent = report if self.tells_all else self.exchange.cut(report)
        answer = self.world.serve(sent)
        if not self.tells_all:
            self.exchange.completed(sent, answer)
        self.acknowledged = answer.number


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args()
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    world, sizes = World(large_fleet(options.nodes, options.devices)), Sizes()
    rows = _measured(world, options.clients, options.jobs, sizes)
    rows |= _of_segments(world, options.jobs) | _of_looking(world, sizes)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    document |= {"nodes": options.nodes, "clients": options.clients, "jobs_each": options.jobs}
    document |= {"cpu_s": rows, "peak_mib": peak_mib, "sizes": sizes.found}
    print(f"\n{options.nodes} nodes x {options.devices} GPUs, {options.clients} clients x {options.jobs} jobs.\n")
    print("\n".join(table_lines(("CPU seconds for", "each"), [[name, number(row, 4)] for name, row in rows.items()])))
    print(f"\npeak memory: {peak_mib} MiB")
    for name, value in sizes.found.items():
        print(f"{name}: {value:.1f}")
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nodes", type=int, default=1000, metavar="N", help="machines (default: 1000)")
    add("--devices", type=int, default=8, metavar="N", help="GPUs of each (default: 8)")
    add("--clients", type=int, default=100, metavar="N", help="drivers (default: 100)")
    add("--jobs", type=int, default=100, metavar="N", help="jobs of each driver (default: 100)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


class Sizes:
    """What this process holds, and how large messages are, by name."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._held_kib = _held_kib()

    def grown(self, name: str, count: int) -> None:
        """Note by how many KiB the process has grown since the last note, for each of ``count``."""
        held_kib = _held_kib()
        self.found[f"KiB for each {name}"] = round((held_kib - self._held_kib) / count, 1)
        self._held_kib = held_kib

    def message(self, name: str, value: object) -> None:
        """Note the size of a message."""
        self.found[f"KiB of {name}"] = round(len(packed(value)) / 1024, 1)


def _held_kib() -> float:
    memory = read_memory(os.getpid())
    return 0.0 if memory is None else memory.total_bytes / 1024


def _of_segments(world: World, jobs: int) -> dict[str, float]:
    """Return what 1,000 segments take that end one by one, of drivers with one job and with many."""
    found = {}
    for each, tells_all in ((1, False), (jobs, False), (jobs, True)):
        name = f"of a driver with {each} job" + "s" * (each > 1) + ", told in each report" * tells_all
        driver = Driver(world, name, each, tells_all=tells_all)
        found[f"the jobs {name} come beside all others, and are placed"] = _timed(driver.talk)
        found[f"{SEGMENTS_TIMED} segments end, {name}"] = _timed(partial(world.finish, driver, SEGMENTS_TIMED))
        world.settle()
    return found


def _of_looking(world: World, sizes: Sizes) -> dict[str, float]:
    """Return what heartbeats and a status take, without Ray's part."""
    beat = Heartbeat(7, tuple((f"job-{number}", f"segment {number}") for number in range(8)), 8)

    def beats() -> None:
        before = beat
        for frames in range(BEATS):
            after: Heartbeat = unpacked(packed(replace(beat, frames_done=frames)))
            speed_between(before, after, 2.0)
            before = after

    def status() -> Status:
        found: Status = unpacked(packed(status_of(world.core.state, {}, (), world.now_s)))
        return found

    sizes.message("a status", status())
    sizes.message("a heartbeat", beat)
    return {f"{BEATS} heartbeats": _timed(beats), "a status": _timed(status)}


def _measured(world: World, clients: int, jobs: int, sizes: Sizes) -> dict[str, float]:
    wants = {
        f"client-{index:03d}": tuple(JobReport(plain_demand(f"job-{job:03d}", SEGMENTS)) for job in range(jobs))
        for index in range(clients)
    }
    some = list(wants)[:SOME]

    def say_all() -> None:
        for client in some:
            held = world.grants(client).slots
            said = tuple(replace(each, held=held.get(each.demand.job, {})) for each in wants[client])
            world.feed([world.report(client, said)])

    for_some = len(some)
    rows = {"all nodes join and are probed": _timed(world.join)}
    sizes.grown("node", len(world.nodes))
    come = partial(world.feed, [world.report(client, said) for client, said in wants.items()])
    rows["all jobs come, and their workers start"] = _timed(come)
    sizes.grown("job", clients * jobs)
    rows |= {
        "grants for a client": _timed(lambda: [world.grants(client) for client in some]) / for_some,
        "a report of work that has begun": _timed(say_all) / for_some,
        "a report that repeats the last one": _timed(say_all) / for_some,
        "a tick": _timed(world.tick_often) / SOME,
        "a worker dies, and its cores are free at once": _timed(lambda: world.die(world.working()[:SOME])) / SOME,
    }
    world.take_cores()
    world.settle()
    dying, going = world.working()[:SOME], [book.station.node for book in world.working()[-SOME:]]
    return rows | {
        "a worker dies, and its cores are taken": _timed(lambda: world.die(dying)) / SOME,
        "they are free, and its next process starts": _timed(lambda: world.free_cores_of(dying)) / SOME,
        "a node goes": _timed(lambda: world.lose(going)) / SOME,
        "all is placed again": _timed(world.settle),
    }


def _timed(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
