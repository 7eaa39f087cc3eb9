"""The commands ``node ...`` against fakes: what is asked for, and what is said."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Answer, Offering, Services
from codecfleet.cluster.node.listed import ListedNode
from codecfleet.cluster.node.ray_start import NodeOptions
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.probes.node import NodeReport, SilentNode
from codecfleet.errors import FleetUnavailable

Captured = pytest.CaptureFixture[str]
JOINING = NodeOptions(address="head:6379")
LISTED = ListedNode(
    node="ab",
    address="10.0.0.1",
    is_head=True,
    state=DeviceState.DRAINING,
    resources={"CPU": 2.0},
    labels={"team": "a"},
)


@dataclass
class Node:
    """A node that comes up and ends at once, or does not start."""

    error: FleetUnavailable | None = None
    notes: tuple[str, ...] = ("this node joins head:6379",)

    def run(self, on_start: Callable[[], object]) -> None:
        """Come up and end."""
        if self.error is not None:
            raise self.error
        on_start()


class Machine:
    """Remembers what it is asked for."""

    def __init__(self, error: FleetUnavailable | None = None) -> None:
        self.asked: list[object] = []
        self._error = error

    def services(self) -> Services:
        """Return what the commands call."""
        return Services(
            prepare_node=lambda *asked: Node(self._error) if self._note("keep", *asked) else Node(),
            start_node=lambda *asked: self._note("start", *asked),
            stop_nodes=lambda: self._note("stop"),
            node_env=lambda asked: self._note("env", asked),
            order=self._note,
            list_nodes=self._listed,
        )

    def _note(self, *asked: object) -> Answer:
        self.asked.append(asked)
        return Answer(["done"], {"schema": 1})

    def _listed(self, address: str) -> list[tuple[NodeReport | SilentNode, ListedNode]]:
        self._note("list", address)
        return [(SilentNode("gpu-1", "no report within 150 s"), LISTED)]


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("node start --address head:6379", ("start", JOINING, Offering())),
        ("node start --head", ("start", NodeOptions(), Offering())),
        ("node start --address head:6379 --block", ("keep", JOINING, Offering())),
        (
            "node start --head --ip 10.0.0.1 --port 6380 --dashboard-host 10.0.0.1 --dashboard-port 80 --insecure",
            (
                "start",
                NodeOptions(ip="10.0.0.1", port=6380, dashboard_host="10.0.0.1", dashboard_port=80, is_open=True),
                Offering(),
            ),
        ),
        (
            "node start --address head:6379 --drain-seconds 300 --temp-dir /r --cpus 3 --label a=b --label c=d",
            (
                "start",
                replace(JOINING, drain_s=300, temp_dir="/r"),
                Offering(cpus=3, labels={"a": "b", "c": "d"}),
            ),
        ),
        (
            "node start --address head:6379 -- --metrics-export-port 9100",
            ("start", replace(JOINING, rest=("--metrics-export-port", "9100")), Offering()),
        ),
        ("node stop", ("stop",)),
        ("node env --cpus 3 --zone z --label a=b", ("env", Offering(cpus=3, zone="z", labels={"a": "b"}))),
        ("node drain gpu-1 --address head:6379", ("head:6379", "drain", "gpu-1")),
        ("node list --address head:6379", ("list", "head:6379")),
    ],
)
def test_what_is_asked_for_arrives(line: str, asked: tuple[object, ...]) -> None:
    """Every option reaches the service that it is for."""
    machine = Machine()
    assert run(line.split(), machine.services()) == 0
    assert machine.asked == [asked]


def test_the_environments_cluster_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address it is RAY_ADDRESS; a head ignores that."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    machine = Machine()
    assert run(["node", "start"], machine.services()) == run(["node", "start", "--head"], machine.services()) == 0
    assert machine.asked == [("start", JOINING, Offering()), ("start", NodeOptions(), Offering())]


def test_a_node_in_the_foreground_says_what_happens(capsys: Captured) -> None:
    """Its log has what it offers, and when it came and went; stdout stays empty."""
    assert run(["node", "start", "--address", "head:6379", "--block"], Machine().services()) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "codecfleet: this node joins head:6379",
        "codecfleet: the node is up",
        "codecfleet: the node is down",
    ]


def test_a_node_that_does_not_start_is_an_error(capsys: Captured) -> None:
    """What keeps it running restarts it by the exit code."""
    machine = Machine(FleetUnavailable("Ray did not start: no space left"))
    assert run(["node", "start", "--head", "--block"], machine.services()) == 5
    assert capsys.readouterr().err.splitlines()[-1] == "codecfleet: error: Ray did not start: no space left."


@pytest.mark.parametrize("line", ["nodes --address head:6379", "node list --address head:6379"])
def test_a_clusters_nodes_have_state_and_labels(line: str, capsys: Captured) -> None:
    """People and programs see what Ray counts on each node, whether it takes work, and its labels."""
    assert run(line.split(), Machine().services()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "in the cluster gpu-1: head at 10.0.0.1, draining, 2 CPUs and 0 GPUs for Ray; team=a" in said
    assert run([*line.split(), "--json"], Machine().services()) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["node"], node["ray"]) == ("gpu-1", LISTED.to_json())


def test_a_nodes_log_has_the_asked_style(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what collects a container's output: one entry a line, with time and action."""
    monkeypatch.setenv("CODECFLEET_LOG", "json")
    assert run(["node", "start", "--address", "head:6379", "--block"], Machine().services()) == 0
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["action"], each["message"]) for each in entries] == [
        ("node.starting", "this node joins head:6379"),
        ("node.up", "the node is up"),
        ("node.down", "the node is down"),
    ]
