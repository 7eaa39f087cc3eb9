"""Watch a supervisor detect another program's NVDEC load, reduce its slots, and restore them.

``python benchmarks/live_health.py FILM``; README.md beside this file says what is recorded.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.decode_child import ChildWay, DecodeChildren
from bench.decode_fleet import DecodeFleet, FleetWay
from bench.failures import CommandFailed
from bench.film import Film, read_film
from bench.machine import describe_gpus, describe_run, described_lines
from bench.program import run_in_folder
from bench.table import save_results

from codecfleet.cluster.doctor.fleet_lines import doctor_lines
from codecfleet.cluster.probes.node.probe import probe_node
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.status.lines import STATUS_SCHEMA, status_lines

SESSIONS = 64
"""How many sessions are requested: more than any GPU takes, so that placement decides the number."""
LOOK_S = 1.0
SETTLE_S = 15.0
POLL_S = SupervisorSettings().health_s
POLLS = 3
"""The number of polls to wait for in a phase without its own duration."""


@dataclass(slots=True)
class Record:
    """The observations: a line each second, and the whole status at the end of each phase."""

    began_s: float
    samples: list[dict[str, Any]] = field(default_factory=list)
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def look(self, phase: str, fleet: DecodeFleet) -> dict[str, Any]:
        """Record the current state, and print it."""
        status = fleet.status()
        device = status.devices[0] if status.devices else None
        use = None if device is None else device.use.get("nvdec")
        sample = {
            "t_s": round(time.monotonic() - self.began_s, 1),
            "phase": phase,
            # The pool's count would include work still running on slots that were taken back.
            "slots": sum(job.granted_slots for job in status.jobs),
            "polled_ago_s": None if device is None else device.seen_s,
            "nvdec_percent": None if not use else use["percent"],
            "others_percent": None if not use else use["others_percent"],
            "told_by": "" if device is None else device.told_by,
            "workers_fps": sum(worker.fps or 0 for worker in status.workers),
        }
        self.samples.append(sample)
        print("  " + ", ".join(f"{name} {value}" for name, value in sample.items()), flush=True)
        return sample

    def keep_status(self, phase: str, fleet: DecodeFleet) -> None:
        """Keep the current output of ``codecfleet status --json`` and ``--watch``."""
        status = fleet.status()
        self.statuses[phase] = {"schema": STATUS_SCHEMA, "supervisor": status.to_json()}
        self.texts[phase] = "\n".join(status_lines(status))


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda _: asyncio.run(_measure(options)), None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", type=Path, help="an H.264 or HEVC film")
    add("--threads", type=int, default=14, metavar="N", help="sessions of the other program (default: 14)")
    add("--seconds", type=float, default=35.0, metavar="S", help="how long each of the two loads lasts (default: 35)")
    add(
        "--back",
        type=float,
        default=90.0,
        metavar="S",
        help="how long to wait for the slots to come back (default: 90)",
    )
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


async def _measure(options: argparse.Namespace) -> None:
    document = describe_run(None) | describe_gpus()
    print("\n".join(described_lines(document)), flush=True)
    film = read_film(options.file)
    document |= {"file": options.file.name, "poll_s": POLL_S} | film.described
    doctor = list(doctor_lines([await asyncio.to_thread(probe_node)]))
    print("\n".join(["", "$ codecfleet doctor", *doctor, ""]), flush=True)
    record = Record(time.monotonic())
    try:
        async with DecodeFleet([_gpu()], film) as fleet:
            await _watch(fleet, film, options, record)
    finally:
        document |= {
            "doctor": doctor,
            "samples": record.samples,
            "slots": _slots(record),
            "status": record.statuses,
            "watch": record.texts,
        }
        if options.save:
            print(f"\nsaved: {save_results(options.save, document)}")
    judge_slots(document["slots"])


def _gpu() -> str:
    """Return the name of the first GPU that is visible to this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"


async def _watch(fleet: DecodeFleet, film: Film, options: argparse.Namespace, record: Record) -> None:
    await fleet.settle(SESSIONS, SESSIONS, patience_s=SETTLE_S)
    await _look_for(POLL_S * POLLS, "idle", fleet, record)
    decoding = asyncio.create_task(_decode(fleet, options.seconds))
    await _look_for(options.seconds, "ours", fleet, record)
    await decoding
    await _look_for(POLL_S * POLLS, "idle again", fleet, record)
    with _raw_load(film, options.threads) as load:
        await _look_for(options.seconds, "others", fleet, record)
    record.statuses["others"]["raw_fps"] = load.fps
    print(f"  the other program decoded {load.fps:.0f} pictures a second", flush=True)
    slots_before = _slots(record)["idle again"]
    ends_s = time.monotonic() + options.back
    while time.monotonic() < ends_s:
        if record.look("after", fleet)["slots"] == slots_before:
            break
        await asyncio.sleep(LOOK_S)
    record.keep_status("after", fleet)
    print("\n".join(["", "$ codecfleet status --watch    # beside the other program", record.texts["others"]]))


async def _look_for(seconds: float, phase: str, fleet: DecodeFleet, record: Record) -> None:
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        record.look(phase, fleet)
        await asyncio.sleep(LOOK_S)
    record.keep_status(phase, fleet)


async def _decode(fleet: DecodeFleet, seconds: float) -> None:
    """Decode on the fleet's worker, with all slots, for about the given time."""
    ends_s = time.monotonic() + seconds - LOOK_S
    while time.monotonic() < ends_s:
        await fleet.run(FleetWay.DEVICE, max(fleet.slots, 1), 2)


@dataclass(slots=True)
class _Load:
    pictures: int = 0
    wall_s: float = 0.0
    failure: CommandFailed | None = None

    @property
    def fps(self) -> float:
        return self.pictures / self.wall_s if self.wall_s else 0.0


@contextmanager
def _raw_load(film: Film, threads: int) -> Iterator[_Load]:
    """Let another process decode with plain PyNvVideoCodec, without a pause, until the block ends."""
    load, stop = _Load(), threading.Event()
    children = DecodeChildren([_gpu()], film)

    def run() -> None:
        try:
            while not stop.is_set():
                pictures, wall_s = children.run(ChildWay.RAW, threads, 4)
                load.pictures, load.wall_s = load.pictures + pictures, load.wall_s + wall_s
        except CommandFailed as error:
            load.failure = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield load
    finally:
        stop.set()
        thread.join()
        children.close()
    if load.failure is not None:
        raise load.failure


def _slots(record: Record) -> dict[str, int]:
    """Return the slots at the end of each phase."""
    return {sample["phase"]: sample["slots"] for sample in record.samples}


def judge_slots(slots: dict[str, int]) -> None:
    """Print the result.

    Raises:
        CommandFailed: the slots did not shrink for the other program, shrank for our own load, or did not come back.
    """
    print("\nslots at the end of each phase: " + ", ".join(f"{phase} {count}" for phase, count in slots.items()))
    if slots["others"] >= slots["idle"]:
        message = "the other program's load did not reduce our slots"
        raise CommandFailed(message)
    if slots["ours"] < slots["idle"]:
        message = "our own load reduced our slots"
        raise CommandFailed(message)
    if slots["after"] < slots["idle"]:
        message = "the slots did not come back"
        raise CommandFailed(message)


if __name__ == "__main__":
    sys.exit(main())
