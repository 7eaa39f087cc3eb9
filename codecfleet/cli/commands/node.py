"""The commands ``node ...``, for this machine as a node of a Ray cluster and for the cluster's nodes."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ...cluster.logs.actions import LogAction
from ...cluster.logs.writing import is_logged, log
from ...cluster.node.ray_start import DASHBOARD_HOST, DASHBOARD_PORT, DRAIN_S, PORT, NodeOptions
from ...cluster.node.spot import Spot
from ...cluster.placement.labels import parse_labels, parse_zone
from ...errors import UsageError
from ...jobs.request.values import parse_choice, parse_count, parse_path
from ..failures import Failure, failure_of, print_failure
from ..interrupts import Interrupts
from ..params import JSON, flag, usual_address_of, valued
from ..question import Question
from ..services import Commands, Machines, Offering, Services
from . import cluster, driver, supervisor
from .submit import QUEUE

if TYPE_CHECKING:
    from ...cluster.node.orders import PreparedNode

_HEAD, _OFFER, _DRIVER = "With --head", "What the node offers", "Jobs of a queue"
_PORT_MAX: Final = 65_535
_DAY_S: Final = 86_400

_ADDRESS = usual_address_of("The head's address: host:port. Default: RAY_ADDRESS, or the configuration's address.")
_CPUS = valued("--cpus", "N", "CPUs to offer. Default: those that this process may use.", _OFFER)
_ZONE = valued("--zone", "NAME", "Zone of this machine: Ray's label ray.io/availability-zone.", _OFFER)
_LABELS = valued("--label", "KEY=VALUE", "A custom label. Repeatable.", _OFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNode:
    """A parsed ``node start --block``, which runs the node in this process."""

    options: NodeOptions
    offered: Offering

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the node until a signal ends it; return exit code 0. Events are logged on stderr."""
        del stdout
        with Interrupts(services.exit_now) as interrupts:
            interrupts.attach_here()
            try:
                node = services.prepare_node(self.options, self.offered)
            except BaseException as error:  # noqa: BLE001 - outermost level: every error becomes a line and an exit code
                return _failed(failure_of(error, interrupts.exit_code), error, stderr)
        return _keep(node, stderr)


def _failed(failure: Failure, error: BaseException, stderr: TextIO) -> int:
    log(LogAction.NODE_FAILED, failure.message)
    return print_failure(failure, error, stderr)


def _keep(node: "PreparedNode", stderr: TextIO) -> int:
    def say(action: LogAction, line: str) -> None:
        if is_logged():
            log(action, line)
        else:
            with suppress(OSError):  # nobody reads stderr any more
                print(f"codecfleet: {line}", file=stderr, flush=True)

    for note in node.notes:
        say(LogAction.NODE_STARTING, note)
    try:
        node.run(
            lambda: say(LogAction.NODE_UP, "the node is up"),
            lambda line: say(LogAction.NODE_DRIVING, f"driver: {line}"),
        )
    except Exception as error:  # noqa: BLE001 - outermost level: every error becomes a line and an exit code
        return _failed(failure_of(error), error, stderr)
    say(LogAction.NODE_DOWN, "the node is down")
    return 0


def _start(
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTIONS]", help="Everything after -- is passed to `ray start` unchanged.", show_default=False
        ),
    ] = None,
    *,
    head: bool = flag("--head", "Start a new cluster instead of joining one."),
    address: str | None = _ADDRESS,
    block: bool = flag("--block", "Stay in the foreground until SIGTERM, for containers and services."),
    ip: str | None = valued(
        "--ip", "ADDRESS", "The address by which other nodes reach this one. Default: Ray's choice."
    ),
    drain_seconds: str | None = valued(
        "--drain-seconds", "N", "How many seconds a stopping node waits for its work to finish. Default: 60."
    ),
    spot: str | None = valued(
        "--spot",
        "CLOUD",
        "Drain the node when this cloud announces the machine's end: aws, gcp, auto (whichever answers) or off. "
        "aws and gcp also label the node as a spot instance. Default: auto.",
    ),
    temp_dir: str | None = valued(
        "--temp-dir",
        "DIR",
        "Folder for Ray's logs and sockets. Default: the folder ray in RAY_TMPDIR, else in TMPDIR, else in /tmp.",
    ),
    insecure: bool = flag(
        "--insecure", "Start without a token: anyone who reaches this node can run any program on it."
    ),
    port: str | None = valued("--port", "N", "Port of the cluster's control service (GCS). Default: 6379.", _HEAD),
    dashboard_host: str | None = valued(
        "--dashboard-host", "ADDRESS", "Address of the dashboard and job server. Default: 127.0.0.1.", _HEAD
    ),
    dashboard_port: str | None = valued(
        "--dashboard-port", "N", "Port of the dashboard and job server. Default: 8265.", _HEAD
    ),
    cpus: str | None = _CPUS,
    zone: str | None = _ZONE,
    label: list[str] | None = _LABELS,
    jobs_at_once: str | None = valued(
        "--jobs-at-once",
        "N",
        "Run a driver of a queue on this node, with up to this many jobs at once: docs/queue.md. Default: no driver.",
        _DRIVER,
    ),
    queue: str | None = QUEUE,
    free_memory_gb: str | None = driver.FREE_MEMORY,
    free_disk_gb: str | None = driver.FREE_DISK,
    as_json: bool = JSON,
) -> Question | KeepNode:
    of_head = {"--port": port, "--dashboard-host": dashboard_host, "--dashboard-port": dashboard_port}
    if unfit := [name for name, value in of_head.items() if value is not None and not head]:
        raise UsageError(f"{unfit[0]} requires --head", "Give the head's address as --address host:port.")
    if not head and not address:
        raise UsageError(
            "neither --address nor --head is given", "Give --address HOST:PORT of a cluster, or --head to begin one."
        )
    if rest and not rest[0].startswith("-"):
        raise UsageError(f"{rest[0]} is not an option of `ray start`", "Put options for `ray start` after --.")
    if block and as_json:
        raise UsageError("--block and --json exclude each other", "Leave one of them out.")
    offered = _offered(cpus, zone, label)
    drives = _driver_words(jobs_at_once, queue, free_memory_gb, free_disk_gb)
    if drives and head and offered.cpus == 0:
        raise UsageError("--jobs-at-once: a head with --cpus 0 does no work", "Give --jobs-at-once to the other nodes.")
    options = NodeOptions(
        address="" if head or address is None else address,
        ip=ip or "",
        port=_number("--port", port, PORT),
        dashboard_host=dashboard_host or DASHBOARD_HOST,
        dashboard_port=_number("--dashboard-port", dashboard_port, DASHBOARD_PORT),
        temp_dir="" if temp_dir is None else str(Path(parse_path("--temp-dir", temp_dir)).absolute()),
        drain_s=_number("--drain-seconds", drain_seconds, DRAIN_S, _DAY_S),
        spot=Spot(parse_choice("--spot", spot or Spot.AUTO.value, [each.value for each in Spot])),
        is_open=insecure,
        rest=tuple(rest or ()),
        driver=drives,
    )
    if block:
        return KeepNode(options=options, offered=offered)
    return Question(ask=lambda services, _progress: services.start_node(options, offered), as_json=as_json)


def _driver_words(
    at_once: str | None, queue: str | None, memory_gb: str | None, disk_gb: str | None
) -> tuple[str, ...]:
    """Return the options of the node's driver, checked; () for no driver."""
    from ...cluster.queue.places import queue_file

    options = {"--jobs-at-once": at_once, "--queue": queue, "--free-memory-gb": memory_gb, "--free-disk-gb": disk_gb}
    words = tuple(word for name, value in options.items() if value is not None for word in (name, value))
    if words and at_once is None:
        raise UsageError(f"{words[0]} requires --jobs-at-once", "Say how many jobs the node's driver runs at once.")
    if words:
        checked = driver.parse_driver(
            queue=queue,
            at_once=at_once,
            lease_seconds=None,
            idle_minutes=None,
            free_memory_gb=memory_gb,
            free_disk_gb=disk_gb,
        )
        queue_file(checked.queue)
    return words


def _number(name: str, text: str | None, default: int, most: int = _PORT_MAX) -> int:
    return default if text is None else parse_count(name, text, most=most)


def _offered(cpus: str | None, zone: str | None, label: list[str] | None) -> Offering:
    return Offering(
        cpus=None if cpus is None else parse_count("--cpus", cpus),
        zone=parse_zone(zone or ""),
        labels=parse_labels(label or ()),
    )


def _env(
    *, cpus: str | None = _CPUS, zone: str | None = _ZONE, label: list[str] | None = _LABELS, as_json: bool = JSON
) -> Question:
    offered = _offered(cpus, zone, label)
    return Question(ask=lambda services, _progress: services.node_env(offered), as_json=as_json)


def _list(*, address: str | None = _ADDRESS, every: bool = cluster.EVERY, as_json: bool = JSON) -> Question:
    if not address:
        raise UsageError("no cluster is named", "Give --address HOST:PORT, or set RAY_ADDRESS.")
    machines = Machines(address=address, software=False)
    return Question(ask=lambda services, _progress: cluster.inventory(services, machines, every=every), as_json=as_json)


def _stop(*, as_json: bool = JSON) -> Question:
    return Question(ask=lambda services, _progress: services.stop_nodes(), as_json=as_json)


COMMANDS: Final[Commands] = {
    "start": (
        _start,
        [
            "node start --head --ip 10.0.0.1",
            "node start --address 10.0.0.1:6379 --block",
            "node start --head -- --metrics-export-port 9100",
        ],
    ),
    "stop": (_stop, ["node stop"]),
    "list": (_list, ["node list --address 10.0.0.1:6379"]),
    "drain": (supervisor.COMMANDS["drain"][0], ["node drain gpu-node-3 --address 10.0.0.1:6379"]),
    "env": (_env, ["node env --zone rack-3"]),
}
