"""Starts and ends this machine's nodes of Ray clusters."""

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...actors.process.process import start_program
from ...errors import FleetUnavailable
from ..fleet.meeting_place import end_all
from ..probes.gpus.visible_device import CUDA_VARIABLE
from ..probes.node import probe_node
from ..ray.embedded import check_joinable
from ..ray.token import MODE, close_to_others, make_token, token_file
from .keeping import STOP_S, keep
from .offer import Offer, offer_of
from .own_driver import OwnDriver, driver_command
from .ray_start import NodeOptions, check_options, offer_words, ray_arguments, ray_variables
from .registry import kept_nodes, registered
from .spot import Spot
from .spot_watch import SpotWatch

PROGRAM: Final = "codecfleet.cluster.node.program"
_KILLED_AFTER_S: Final = 10  #: How long a node may still run after its deadline


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """A node that is ready to start."""

    arguments: tuple[str, ...]  # the arguments of ``ray``
    variables: dict[str, str]  # the environment variables to set for ``ray``
    notice_s: int  # how long the node drains after a signal
    notes: tuple[str, ...] = ()  # lines to print
    spot: Spot = Spot.OFF  # which metadata server is asked whether this machine will end
    has_gpus: bool = False
    driver: tuple[str, ...] = ()  # options of the queue's driver that the node runs; () for no driver
    cluster: str = ""  # the address of the cluster for that driver's jobs

    def run(self, on_start: Callable[[], object], tell: Callable[[str], object] = str) -> None:
        """Run the node until a signal ends it; call ``tell`` with each line of its driver.

        Raises FleetUnavailable: Ray did not start, or ended by itself.
        """
        with registered(self.notice_s + STOP_S):
            watch = SpotWatch(self.spot, has_gpus=self.has_gpus)
            around = {**os.environ, "CODECFLEET_ADDRESS": self.cluster, MODE: self.variables[MODE]}
            driver = OwnDriver(driver_command(self.driver) if self.driver else (), around, tell)
            keep(self.arguments, self.variables, notice_s=self.notice_s, watch=watch, driver=driver, on_start=on_start)


def machines_offer(*, cpus: int | None, labels: Mapping[str, str], zone: str) -> Offer:
    """Probe this machine and return its offer. The arguments are those of ``offer_of``."""
    report = probe_node(software=False)
    return offer_of(report, cpus=cpus, labels=labels, zone=zone, cuda_visible=os.environ.get(CUDA_VARIABLE))


def prepare_node(survey: Callable[[], Offer], options: NodeOptions) -> PreparedNode:
    """Return a node that can start and has a token; make a token for a head that has none.

    ``survey`` returns the machine's offer; it is slow, so it is called last. Raises UsageError: the options contradict
    each other, or the cluster would be open to strangers; FleetUnavailable: the token cannot be written, another
    program uses the head's port, or the head refuses this user's token.
    """
    notes = []
    if check_options(options, os.environ):
        notes.append(f"a new token for the cluster is in {make_token(os.environ)}; every other node needs a copy")
    if not options.is_open and close_to_others(os.environ):
        notes.append(f"{token_file(os.environ)} was readable by other users; its mode was changed")
    if options.is_head:
        check_port(options.port)
    else:
        check_joinable(options.address)
    offer = survey()
    joins = "begins a cluster" if options.is_head else f"joins {options.address}"
    notes.append(f"this node {joins} with {offer_words(offer)}")
    notes += filter(None, [offer.driver_choice])
    arguments = tuple(ray_arguments(offer, options))
    variables = ray_variables(offer, options, os.environ)
    return PreparedNode(
        arguments,
        variables,
        options.notice_s,
        tuple(notes),
        options.watched,
        offer.gpus > 0,
        options.driver,
        options.cluster,
    )


def check_port(port: int) -> None:
    """Raise FleetUnavailable if a head cannot listen on a port.

    Ray would fail only after a minute, without a message.
    """
    with socket.socket() as tried:
        # Without this option, the port would seem to be in use just after its last connections have ended.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
            tried.listen()
        except OSError as error:
            message = f"no head can listen on port {port}: {error.strerror}"
            step = "Give another --port, or end the program that uses it; `codecfleet node stop` ends your nodes."
            raise FleetUnavailable(message, step) from None


def bring_node_up(node: PreparedNode) -> int:
    """Start a node in the background; when the node has joined, return the process that keeps the node.

    Raises FleetUnavailable if the node did not start.
    """
    try:
        settings = (node.arguments, node.variables, node.notice_s, node.spot.value, node.has_gpus)
        process = start_program(PROGRAM, *settings, node.driver, node.cluster, outlives=True)
    except OSError as error:
        raise FleetUnavailable(f"the node did not start: {error}", "Check the limits on processes.") from None
    if not (said := process.first_word()):
        raise FleetUnavailable(process.ended(), "Start the node with --block to see all of Ray's output.")
    return int(json.loads(said)["process"])


def take_nodes_down() -> list[int]:
    """End all of this user's nodes on this machine, and Ray with them; return the processes that kept them.

    Raises FleetUnavailable: other users could enter the directory that lists the nodes.
    """
    return end_all({process: ends_within_s + _KILLED_AFTER_S for process, ends_within_s in kept_nodes().items()})
