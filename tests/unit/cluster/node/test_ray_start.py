"""The command and environment with which Ray starts, and what prevents the start of an open cluster."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from codecfleet import UsageError
from codecfleet.cluster.node.offer import Offer
from codecfleet.cluster.node.orders import check_port
from codecfleet.cluster.node.ray_start import (
    NodeOptions,
    check_options,
    export_lines,
    exports,
    offer_words,
    ray_arguments,
    ray_variables,
)
from codecfleet.cluster.node.spot import Spot
from codecfleet.cluster.placement.labels import parse_labels, parse_zone
from codecfleet.errors import FleetUnavailable

OFFER = Offer(cpus=16, gpus=2, cuda_visible="MIG-a,MIG-b", labels={"codecfleet/kind": "nvdec", "team": "a"}, zone="z1")
HEAD, WORKER = NodeOptions(), NodeOptions(address="10.0.0.1:6379")
TOKEN = {"RAY_AUTH_TOKEN": "secret"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (HEAD, "--head --port 6379 --dashboard-host 127.0.0.1 --dashboard-port 8265 LABELS"),
        (
            NodeOptions(dashboard_host="10.0.0.1", rest=("--metrics-export-port", "9100")),
            "--head --port 6379 --dashboard-host 10.0.0.1 --dashboard-port 8265 LABELS --metrics-export-port 9100",
        ),
        (WORKER, "--address 10.0.0.1:6379 LABELS"),
        (
            NodeOptions(address="10.0.0.1:6379", ip="10.0.0.2", temp_dir="/run/ray"),
            "--address 10.0.0.1:6379 --node-ip-address 10.0.0.2 --temp-dir /run/ray LABELS",
        ),
    ],
)
def test_ray_is_told_what_a_node_has_and_is(options: NodeOptions, words: str) -> None:
    """A worker gets no ports of the head, a dashboard listens on loopback, and options for Ray come last."""
    words = words.replace("LABELS", "--labels codecfleet/kind=nvdec,team=a")
    assert ray_arguments(OFFER, options) == f"start --block --num-cpus 16 --num-gpus 2 {words}".split()


def test_the_environment_asks_for_the_token_and_does_not_hold_it() -> None:
    """Nodes require a token, offer the chosen GPUs, start no Ray Client, and drain for the given time."""
    variables = ray_variables(OFFER, NodeOptions(address="10.0.0.1:6379", drain_s=90), {})
    assert variables == {
        "RAY_AUTH_MODE": "token",
        "RAY_NODE_ZONE": "z1",
        "CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "90",
        "RAY_START_HOOK": "codecfleet.cluster.ray.private.nodes.without_client_port",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    assert ray_variables(OFFER, NodeOptions(is_open=True), {})["RAY_AUTH_MODE"] == "disabled"
    secret, plain = ({"CODECFLEET_QUEUE": f"postgresql://{user}@db/films"} for user in ("queue:pass", "queue"))
    assert ray_variables(OFFER, NodeOptions(), secret)["CODECFLEET_QUEUE"] == ""
    assert "CODECFLEET_QUEUE" not in ray_variables(OFFER, NodeOptions(), plain)


def test_a_drivers_jobs_run_on_the_nodes_cluster() -> None:
    """Also on a head, whose own address Ray may have chosen."""
    assert WORKER.cluster == "10.0.0.1:6379"
    assert NodeOptions(ip="10.0.0.1", port=7000).cluster == "10.0.0.1:7000"
    assert NodeOptions().cluster == "127.0.0.1:6379"
    assert ray_variables(OFFER, HEAD, {})["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "0"


@pytest.mark.parametrize("spot", list(Spot))
def test_a_promised_spot_instance_has_rays_label(spot: Spot) -> None:
    """Naming the cloud says that it may take the machine back; a head is never watched."""
    variables = ray_variables(OFFER, NodeOptions(address="10.0.0.1:6379", spot=spot), {})
    assert variables.get("RAY_NODE_MARKET_TYPE") == ("spot" if spot in (Spot.AWS, Spot.GCP) else None)
    assert NodeOptions(address="10.0.0.1:6379", spot=spot).watched is spot
    assert NodeOptions(spot=spot).watched is Spot.OFF


def test_what_a_launcher_says_of_the_machine_becomes_what_was_found() -> None:
    """A launcher's group and market stay; its resources and its claims about GPUs are replaced."""
    labels = {"codecfleet/group": "g6", "ray.io/market-type": "spot", "codecfleet/kind": "nvenc"}
    around = {"RAY_OVERRIDE_LABELS": json.dumps(labels), "RAY_OVERRIDE_RESOURCES": '{"CPU": 99}'}
    variables = ray_variables(OFFER, WORKER, around)
    assert json.loads(variables["RAY_OVERRIDE_RESOURCES"]) == {"CPU": 16, "GPU": 2}
    assert json.loads(variables["RAY_OVERRIDE_LABELS"]) == {**labels, **OFFER.labels}
    assert variables["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "60"


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1", "localhost"])
def test_a_node_is_reached_from_others(ip: str) -> None:
    """A loopback address is refused, since Ray would replace it; the error names the command for a single machine."""
    for options in (NodeOptions(ip=ip), NodeOptions(ip=ip, address="10.0.0.1:6379")):
        with pytest.raises(UsageError, match="other nodes cannot reach") as caught:
            check_options(options, TOKEN)
        assert "codecfleet up" in caught.value.next_step


def test_it_takes_a_token_to_get_in(tmp_path: Path) -> None:
    """A worker without a token and RAY_AUTH_MODE=disabled are refused; a head without a token makes one."""
    nothing = {"HOME": str(tmp_path)}
    assert check_options(HEAD, nothing) is True
    assert check_options(HEAD, {**nothing, **TOKEN}) is False
    assert check_options(WORKER, {**nothing, **TOKEN}) is False
    with pytest.raises(UsageError, match="no token"):
        check_options(WORKER, nothing)
    with pytest.raises(UsageError, match="would admit everyone"):
        check_options(HEAD, {**nothing, "RAY_AUTH_MODE": "disabled"})


def test_insecure_is_taken_at_its_word(tmp_path: Path) -> None:
    """With --insecure there is no token, and none is made."""
    for options in (NodeOptions(is_open=True), NodeOptions(is_open=True, address="10.0.0.1:6379")):
        assert check_options(options, {"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}) is False


@pytest.mark.parametrize("option", ["--num-gpus", "--dashboard-host=0.0.0.0", "--ray-client-server-port", "--block"])
def test_what_is_set_here_is_not_set_twice(option: str) -> None:
    """After --, an option of Ray that codecfleet sets is refused."""
    with pytest.raises(UsageError, match=option.partition("=")[0]):
        check_options(NodeOptions(rest=(option, "1")), TOKEN)


def test_a_shell_reads_the_exports_as_they_are_meant() -> None:
    """The lines set the variables for another program's `ray start`, whatever characters the values have."""
    offer = Offer(cpus=8, gpus=1, cuda_visible="GPU-a", labels={"team": "it's"}, zone="z 1")
    script = "\n".join(
        [*export_lines(exports(offer, {})), 'printf "%s\\n" "$RAY_OVERRIDE_RESOURCES" "$RAY_OVERRIDE_LABELS"']
    )
    resources, labels = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert json.loads(resources) == {"CPU": 8, "GPU": 1}
    assert json.loads(labels) == {"team": "it's"}
    assert exports(offer, {})["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert exports(offer, {})["RAY_NODE_ZONE"] == "z 1"
    assert "CUDA_VISIBLE_DEVICES" not in exports(Offer(cpus=1), {})


def test_an_offer_is_one_line() -> None:
    """An offer is one readable line, in which codecs are joined."""
    labels = {"codecfleet/kind": "nvenc", "codecfleet/encodes-av1": "nvenc", "codecfleet/encodes-hevc": "nvenc"}
    offer = Offer(cpus=1, gpus=2, labels=labels, zone="z1")
    assert offer_words(offer) == "1 CPU and 2 GPUs; kind=nvenc, zone=z1, encodes av1 hevc"
    assert offer_words(Offer(cpus=2)) == "2 CPUs and 0 GPUs"


@pytest.mark.parametrize(
    "text", ["team", "=a", "te am=a", "team=a b", "ray.io/zone=a", "-team=a", "Te_am.de/x=1", "a=é"]
)
def test_what_ray_would_refuse_as_a_label_is_refused_first(text: str) -> None:
    """The error names the wrong label and shows the syntax of a label."""
    with pytest.raises(UsageError, match="label"):
        parse_labels([text])


def test_labels_and_zones() -> None:
    """A label may have a domain before its name, and an empty value; if a key is repeated, the last value counts."""
    assert parse_labels(["a=1", "example.com/b=", "a=2"]) == {"a": "2", "example.com/b": ""}
    assert parse_zone("eu-1a") == "eu-1a"
    with pytest.raises(UsageError, match="zone"):
        parse_zone("rack 3")


def test_labels_that_a_launcher_states_stay_but_for_those_that_are_probed() -> None:
    """Labels of a launcher are kept, except those that probes decide."""
    stated = {"codecfleet/group": "g6", "team": "video", "codecfleet/kind": "nvenc", "codecfleet/encodes-av1": "nvenc"}
    offer = Offer(cpus=1, labels={"codecfleet/kind": "cpu", "team": "ours"})
    found = json.loads(exports(offer, {"RAY_OVERRIDE_LABELS": json.dumps(stated)})["RAY_OVERRIDE_LABELS"])
    assert found == {"codecfleet/group": "g6", "team": "ours", "codecfleet/kind": "cpu"}
    for wrong in ("g6", "[1]", '{"a": 1}'):
        with pytest.raises(UsageError, match="RAY_OVERRIDE_LABELS is not a JSON object of labels"):
            exports(offer, {"RAY_OVERRIDE_LABELS": wrong})


def test_a_port_in_use_is_refused_at_once() -> None:
    """A port in use is refused at once; Ray would wait a minute for its control service, and only name a log."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(FleetUnavailable, match=f"no head can listen on port {port}: Address already in use"):
            check_port(port)
    check_port(port)
