"""Makes the command line, environment and exports with which Ray starts on a node."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from ...errors import UsageError
from ..fleet_variables import QUEUE
from ..grouping import counted
from ..placement.labels import ARCHITECTURE, DECODES, DLAS, ENCODES, KIND
from ..probes.gpus.visible_device import CUDA_VARIABLE
from ..queue.values import has_password
from ..ray.private.nodes import LABELS, RESOURCES, START_HOOK
from ..ray.token import MODE, TOKEN, TOKEN_PATH, read_token
from .listed import label_words
from .offer import Offer
from .spot import Spot

DRAIN_S: Final = 60  #: How long a stopping node waits for its work
PORT, DASHBOARD_PORT, DASHBOARD_HOST = 6379, 8265, "127.0.0.1"
_SET_HERE: Final = (
    *("--head", "--address", "--block", "--node-ip-address", "--port", "--num-cpus", "--num-gpus", "--labels"),
    *("--dashboard-host", "--dashboard-port", "--temp-dir", "--ray-client-server-port"),
)
"""Options of ``ray start`` that codecfleet sets."""
_FOUND: Final = (KIND, ARCHITECTURE, DLAS, ENCODES, DECODES)
_ZONE: Final = "RAY_NODE_ZONE"  #: The variable from which Ray sets its label ray.io/availability-zone
_MARKET: Final = "RAY_NODE_MARKET_TYPE"  #: The variable from which Ray sets its label ray.io/market-type


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of ``codecfleet node start``."""

    address: str = ""  #: the address of the head; "" if this node is the head
    ip: str = ""  #: the address by which other nodes reach this node; "" for Ray's choice
    port: int = PORT  #: the port of the head's control service
    dashboard_host: str = DASHBOARD_HOST  #: the address on which the head's dashboard listens
    dashboard_port: int = DASHBOARD_PORT
    temp_dir: str = ""  #: the folder for Ray's files; "" for Ray's choice
    drain_s: int = DRAIN_S  #: how long the stopping node waits for its work
    spot: Spot = Spot.AUTO  #: which metadata server is asked whether this machine will end
    is_open: bool = False  #: whether the cluster needs no token
    rest: tuple[str, ...] = ()  #: further arguments of ``ray start``
    driver: tuple[str, ...] = ()  #: options of the driver that the node runs; () for no driver

    @property
    def is_head(self) -> bool:
        """Whether this node starts a cluster."""
        return not self.address

    @property
    def cluster(self) -> str:
        """The address by which programs on this machine reach the cluster."""
        return self.address or f"{self.ip or '127.0.0.1'}:{self.port}"

    @property
    def notice_s(self) -> int:
        """How long the stopping node waits for its work: 0 for a head, because the cluster ends with the head."""
        return 0 if self.is_head else self.drain_s

    @property
    def watched(self) -> Spot:
        """Which metadata server is asked: none for a head, because a head does not drain."""
        return Spot.OFF if self.is_head else self.spot


def check_options(options: NodeOptions, around: Mapping[str, str]) -> bool:
    """Check the options of a node; return whether a token must be made.

    Raises UsageError: the options contradict each other, or would let strangers in.
    """
    refused = [each for each in options.rest if each.partition("=")[0] in _SET_HERE]
    if refused:
        raise UsageError(f"{refused[0]} is set by codecfleet", "Use codecfleet's option: `codecfleet node --help`.")
    if _is_loopback(options.ip):
        message = f"--ip {options.ip}: other nodes cannot reach a loopback address"
        next_step = "Give an address that other nodes can reach. To use only this machine, run `codecfleet up`."
        raise UsageError(message, next_step)
    if options.is_open:
        return False
    mode = around.get(MODE, "token")
    if mode.lower() != "token":
        message = f"{MODE}={mode} would admit everyone who can reach this node"
        raise UsageError(message, f"Unset {MODE}; or give --insecure, if no stranger can reach this node.")
    if read_token(around):
        return False
    if not options.is_head:
        message = "this node has no token for the cluster"
        step = f"Copy the head's ~/.ray/auth_token here, or set {TOKEN} or {TOKEN_PATH}; --insecure needs no token."
        raise UsageError(message, step)
    return True


def ray_arguments(offer: Offer, options: NodeOptions) -> list[str]:
    """Return the arguments of the ``ray`` command that runs a node in the foreground."""
    # If Ray counted the cores, it would ignore a CPU quota.
    words = ["start", "--block", "--num-cpus", str(offer.cpus), "--num-gpus", str(offer.gpus)]
    if options.is_head:
        words += ["--head", "--port", str(options.port)]
        words += ["--dashboard-host", options.dashboard_host, "--dashboard-port", str(options.dashboard_port)]
    else:
        words += ["--address", options.address]
    if options.ip:
        words += ["--node-ip-address", options.ip]
    if options.temp_dir:
        words += ["--temp-dir", options.temp_dir]
    if offer.labels:
        words += ["--labels", ",".join(f"{key}={value}" for key, value in offer.labels.items())]
    return [*words, *options.rest]


def ray_variables(offer: Offer, options: NodeOptions, around: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set for the ``ray`` command; they never contain the token.

    If a cluster launcher has set resources or labels in ``around``, those of ``exports`` replace them.
    """
    return {
        **(exports(offer, around) if {RESOURCES, LABELS} & around.keys() else {}),
        **({_MARKET: "spot"} if options.spot.is_promised else {}),
        **({QUEUE: ""} if has_password(around.get(QUEUE, "")) else {}),  # every process of Ray could read the password
        MODE: "disabled" if options.is_open else "token",
        **_names(offer),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(options.notice_s),
        **START_HOOK,
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def exports(offer: Offer, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that make another program's ``ray start`` offer the same resources and labels.

    They override the program's options. Labels in ``environment``, such as those of a cluster launcher, are kept,
    except labels that probes decide. Raises UsageError if the labels cannot be read.
    """
    stated = {key: value for key, value in _stated(environment).items() if not key.startswith(_FOUND)}
    return {
        RESOURCES: json.dumps({"CPU": offer.cpus, "GPU": offer.gpus}),
        LABELS: json.dumps({**stated, **offer.labels}),
        **START_HOOK,
        **_names(offer),
    }


def _stated(environment: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(environment.get(LABELS) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError(f"{LABELS} is not a JSON object of labels", "Correct it, or unset it.")
    return found


def export_lines(variables: Mapping[str, str]) -> list[str]:
    """Return variables as lines of a POSIX shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _names(offer: Offer) -> dict[str, str]:
    zone = {_ZONE: offer.zone} if offer.zone else {}
    return zone if offer.cuda_visible is None else {**zone, CUDA_VARIABLE: offer.cuda_visible}


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def offer_words(offer: Offer) -> str:
    """Return an offer in one line: ``16 CPUs and 2 GPUs; kind=nvenc, architecture=ada``."""
    count = f"{counted(offer.cpus, 'CPU')} and {counted(offer.gpus, 'GPU')}"
    zone = {"zone": offer.zone} if offer.zone else {}
    return "; ".join([count, *label_words({**offer.labels, **zone})])
