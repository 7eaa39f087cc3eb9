"""The requests of each command: every option reaches its service, and the answer is printed."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codecfleet.actors.stills.look import StillFormat
from codecfleet.cli.app import run
from codecfleet.cli.files import VerifyRequest
from codecfleet.cli.plan import PlanOn
from codecfleet.cli.services import Answer, Machines, Offering, Services
from codecfleet.cluster.node.listed import ListedNode
from codecfleet.cluster.node.ray_start import NodeOptions
from codecfleet.cluster.node.spot import Spot
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.probes.node import SilentNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.supervisor.status import Status
from codecfleet.jobs.ladder.spec import LadderSpec
from codecfleet.jobs.package.values import Layout
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.stills.spec import StillsSpec
from codecfleet.testing.fleet.simulated_report import simulated_report

from .kept_node import KeptNode

Captured = pytest.CaptureFixture[str]
JOINING = NodeOptions(address="head:6379")
DRIVES = ("--jobs-at-once", "4", "--queue", "postgresql://db/q")
PLANNED = TranscodeSpec(source="a.mkv", output="a-codecfleet.mp4")
STILLS = StillsSpec(source="film.mkv", output="thumbs", every_s=Fraction(10))
EVERY_STILLS_OPTION = (
    "stills film.mkv thumbs --scene --scene-threshold 7 --scene-seconds 1.5 --scale 180p --format webp --quality 70 "
    "--sheet 10x8 --start 1:30 --end 1:40.5 --video-track 1 --workers 3 --device cpu --priority 5 --overwrite "
    "--address head:6379"
)
LADDER_LINE = (
    "ladder film.mkv sizes --preset own.toml --packaged-seconds 4 --layout files --keyframe-interval 2 --start 1:30 "
    "--audio copy --deinterlace auto --crop auto --workers 3 --strict --restart --overwrite --address head:6379"
)
LISTED = ListedNode(
    node="ab",
    address="10.0.0.1",
    is_head=True,
    state=DeviceState.DRAINING,
    resources={"CPU": 2.0},
    labels={"team": "a"},
)
IDLE = Status(pid=1, host="head", nodes=(), devices=(), workers=(), jobs=(), quarantine=(), log=())
DONE = Answer(["done"], {"schema": 1})
ANSWERS: dict[str, Callable[[], Any]] = {
    "reports": lambda: (simulated_report(load_fleet("a100-mig").nodes[0]),),
    "list_nodes": lambda: [(SilentNode("gpu-1", "no report within 150 s"), LISTED)],
    "status": lambda: IDLE,
    "watch": lambda: asyncio.sleep(0),
    "prepare_node": KeptNode,
}
ANSWERED = (
    *("probe", "plan", "verify", "ladder", "stills", "infer", "work", "queue_jobs", "ray_jobs", "keep_events", "order"),
    *("up", "down", "start_node", "stop_nodes", "node_env"),
)


@dataclass
class Recorder:
    """Services that record their arguments, except callables, and answer at once."""

    asked: list[tuple[object, ...]]

    def services(self) -> Services:
        """Return them."""
        return Services(**{name: partial(self._note, name) for name in (*ANSWERS, *ANSWERED)})

    def _note(self, name: str, *asked: object) -> object:
        self.asked.append((name, *(each for each in asked if not callable(each))))
        return ANSWERS.get(name, lambda: DONE)()


def asked_by(line: str) -> list[tuple[object, ...]]:
    """Run a command line that succeeds, and return its requests."""
    recorder = Recorder([])
    assert run(line.split(), recorder.services()) == 0
    return recorder.asked


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("probe in.mkv", ("probe", "in.mkv")),
        ("plan a.mkv", ("plan", PLANNED, PlanOn())),
        ("plan a.mkv --fleet f --policy p.toml", ("plan", PLANNED, PlanOn(fleet="f", policy="p.toml"))),
        ("plan a.mkv --address auto", ("plan", PLANNED, PlanOn(address="auto"))),
        ("plan a.mkv --autoscale a.toml", ("plan", PLANNED, PlanOn(autoscale="a.toml"))),
        (
            "plan s3://b/film.one.mkv",
            ("plan", TranscodeSpec(source="s3://b/film.one.mkv", output="film.one-codecfleet.mp4"), PlanOn()),
        ),
        (
            "verify a b --start 1:30 --end 2:00 --video-track 1 --audio-track 2 --audio-track 0 --report r.json",
            (
                "verify",
                VerifyRequest(
                    source="a",
                    output="b",
                    video_track=1,
                    audio_tracks=(2, 0),
                    start_s=Fraction(90),
                    end_s=Fraction(120),
                    report_path="r.json",
                ),
            ),
        ),
        ("ladder film.mkv sizes", ("ladder", LadderSpec(source="film.mkv", output="sizes"), None)),
        (
            LADDER_LINE,
            (
                "ladder",
                LadderSpec(
                    source="film.mkv",
                    output="sizes",
                    preset="own.toml",
                    packaged_s=Fraction(4),
                    layout=Layout.FILES,
                    keyframe_interval_s=Fraction(2),
                    start_s=Fraction(90),
                    audio="copy",
                    deinterlace="auto",
                    crop="auto",
                    workers=3,
                    strict=True,
                    restart=True,
                    overwrite=True,
                ),
                "head:6379",
            ),
        ),
        ("stills film.mkv thumbs --every 10s", ("stills", STILLS, None)),
        (
            EVERY_STILLS_OPTION,
            (
                "stills",
                StillsSpec(
                    source="film.mkv",
                    output="thumbs",
                    scene=True,
                    scene_threshold=7,
                    scene_shortest_s=Fraction(3, 2),
                    scale=(None, 180),
                    format=StillFormat.WEBP,
                    quality=70,
                    sheet=(10, 8),
                    start_s=Fraction(90),
                    end_s=Fraction(201, 2),
                    video_track=1,
                    workers=3,
                    device="cpu",
                    priority=5,
                    overwrite=True,
                ),
                "head:6379",
            ),
        ),
        ("jobs unfinished", ("work", "unfinished", ".")),
        ("jobs clean films", ("work", "clean", "films")),
        ("jobs list", ("queue_jobs", "list", "", None, None)),
        ("jobs show j --queue q", ("queue_jobs", "show", "j", None, "q")),
        ("jobs priority j 5", ("queue_jobs", "priority", "j", 5, None)),
        ("jobs priority j -- -5", ("queue_jobs", "priority", "j", -5, None)),
        ("jobs list --address http://head:8265", ("ray_jobs", "list", "", "http://head:8265")),
        ("jobs cancel j --address http://head:8265", ("ray_jobs", "cancel", "j", "http://head:8265")),
        ("up", ("up", None, 30)),
        ("up --workers 4 --idle-minutes 120", ("up", 4, 120)),
        ("down", ("down",)),
        ("doctor", ("reports", Machines())),
        ("doctor --fresh", ("reports", Machines(fresh=True))),
        ("doctor --address 10.0.0.1:6379", ("reports", Machines(address="10.0.0.1:6379"))),
        ("nodes --fleet fleet.toml", ("reports", Machines(fleet="fleet.toml", software=False))),
        ("nodes --address head:6379", ("list_nodes", "head:6379")),
        ("devices --mig --fleet fleet.toml", ("reports", Machines(fleet="fleet.toml"))),
        ("status", ("status", None)),
        ("status --address head:6379", ("status", "head:6379")),
        ("status --address head:6379 --events late.events", ("keep_events", "head:6379", "late.events")),
        ("top --address head:6379", ("status", "head:6379")),
        ("drain gpu-3", ("order", None, "drain", "gpu-3")),
        ("cordon gpu-3 --address auto", ("order", "auto", "cordon", "gpu-3")),
        ("uncordon --address=auto 25ad036c", ("order", "auto", "uncordon", "25ad036c")),
        ("node start --address head:6379", ("start_node", JOINING, Offering())),
        ("node start --head", ("start_node", NodeOptions(), Offering())),
        ("node start --address head:6379 --block", ("prepare_node", JOINING, Offering())),
        (
            "node start --head --ip 10.0.0.1 --port 6380 --dashboard-host 10.0.0.1 --dashboard-port 80 --insecure",
            (
                "start_node",
                NodeOptions(ip="10.0.0.1", port=6380, dashboard_host="10.0.0.1", dashboard_port=80, is_open=True),
                Offering(),
            ),
        ),
        (
            "node start --address head:6379 --drain-seconds 300 --temp-dir /r --cpus 3 --label a=b --label c=d",
            (
                "start_node",
                NodeOptions(address="head:6379", drain_s=300, temp_dir="/r"),
                Offering(cpus=3, labels={"a": "b", "c": "d"}),
            ),
        ),
        (
            "node start --head -- --metrics-export-port 9100",
            ("start_node", NodeOptions(rest=("--metrics-export-port", "9100")), Offering()),
        ),
        (
            "node start --address head:6379 --spot aws",
            ("start_node", NodeOptions(address="head:6379", spot=Spot.AWS), Offering()),
        ),
        (
            "node start --address h:1 --jobs-at-once 4 --queue postgresql://db/q --free-memory-gb 2 --free-disk-gb 9",
            (
                "start_node",
                NodeOptions(address="h:1", driver=(*DRIVES, "--free-memory-gb", "2", "--free-disk-gb", "9")),
                Offering(),
            ),
        ),
        ("node stop", ("stop_nodes",)),
        ("node env --cpus 3 --zone z --label a=b", ("node_env", Offering(cpus=3, zone="z", labels={"a": "b"}))),
        ("node drain gpu-1 --address head:6379", ("order", "head:6379", "drain", "gpu-1")),
        ("node list --address head:6379", ("list_nodes", "head:6379")),
    ],
)
def test_what_is_asked_for_arrives(
    line: str, asked: tuple[object, ...], capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option reaches its service once and unchanged; the line of the answer is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('[[rendition]]\nname = "a"\n')
    assert asked_by(line) == [asked]
    assert asked[0] not in ANSWERED or capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize(
    ("variables", "options", "asked"),
    [
        ({"RAY_ADDRESS": "http://a"}, "", ("ray_jobs", "list", "", "http://a")),
        ({"RAY_ADDRESS": "http://a", "RAY_API_SERVER_ADDRESS": "http://b"}, "", ("ray_jobs", "list", "", "http://b")),
        ({"RAY_ADDRESS": "http://a"}, " --address http://c", ("ray_jobs", "list", "", "http://c")),
        ({"RAY_ADDRESS": "http://a", "CODECFLEET_QUEUE": "q"}, "", ("ray_jobs", "list", "", "http://a")),
        ({"CODECFLEET_QUEUE": "q"}, "", ("queue_jobs", "list", "", None, "q")),
        ({"RAY_ADDRESS": "http://a", "CODECFLEET_QUEUE": "q"}, " --queue r", ("queue_jobs", "list", "", None, "r")),
    ],
)
def test_jobs_are_on_a_cluster_if_one_is_named_and_else_in_a_queue(
    variables: dict[str, str], options: str, asked: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option takes precedence over the environment's cluster, which takes precedence over the configured queue."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert asked_by(f"jobs list{options}") == [asked]


def test_the_environments_cluster_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an option, the address is RAY_ADDRESS, which a head ignores."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert asked_by("node start") == [("start_node", JOINING, Offering())]
    assert asked_by("node start --head") == [("start_node", NodeOptions(), Offering())]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "probe a",
            "plan a",
            "verify a b",
            "ladder a b",
            "stills a b --count 2",
            "jobs list",
            "up",
            "down",
            "doctor",
            "status",
        ),
        *("devices --vgpu", "drain a", "node stop", "node list --address h:1", "nodes --address h:1"),
    ],
)
def test_an_answer_for_programs_is_one_document(line: str, capsys: Captured) -> None:
    """``--json`` prints one document and nothing else."""
    asked_by(f"{line} --json")
    out, err = capsys.readouterr()
    assert (isinstance(json.loads(out), dict), err) == (True, "")


@pytest.mark.parametrize("line", ["nodes --address head:6379", "node list --address head:6379"])
def test_a_clusters_nodes_have_state_and_labels(line: str, capsys: Captured) -> None:
    """People and programs see what Ray counts on each node, whether the node takes work, and its labels."""
    asked_by(line)
    said = " ".join(capsys.readouterr().out.split())
    assert "gpu-1: head at 10.0.0.1, draining, 2 CPUs and 0 GPUs for Ray; team=a" in said
    asked_by(f"{line} --json")
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["node"], node["ray"]) == ("gpu-1", LISTED.to_json())
