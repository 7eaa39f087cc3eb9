"""A batch on a cluster without workers: nodes join for the batch, and leave when it is done."""

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from codecfleet import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .autoscaled_cluster import NodeLog, autoscaled_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "autoscaling.json"
NODES_MAX = 2
FILES = 8
FRAMES = 120
GROUPS = f"""
finish_within_s = 60
idle_s = 10
turn_s = 10

[[groups]]
name = "small"
labels = {{ group = "small" }}
cores = 1
memory_gib = 2
speed = 0.1
nodes_max = {NODES_MAX}
price_per_hour = 0.1
start_s = 20
"""


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of films of five seconds."""
    folder = tmp_path / "in"
    folder.mkdir()
    clip = Clip(times=constant_times(FRAMES), keyframes=frozenset(range(0, FRAMES, 24)), width=640, height=360)
    make_clip(folder / "0.mkv", clip)
    for number in range(1, FILES):
        shutil.copy(folder / "0.mkv", folder / f"{number}.mkv")
    return folder


def test_a_batch_grows_the_cluster_from_nothing_and_back(films: Path, tmp_path: Path) -> None:
    """The cluster grows from 0 workers to all and back; each file is done once and exact, and no process is left."""
    groups, out = tmp_path / "groups.toml", tmp_path / "out"
    groups.write_text(GROUPS)
    settings = {"CODECFLEET_AUTOSCALE": str(groups), "CODECFLEET_IDLE_S": "2"}
    with autoscaled_cluster({"small": NODES_MAX}, settings) as cluster:
        with cluster.node_log() as log:
            cluster.wait_for(log, 0)
            began_s = time.time()
            done = cluster.run("batch", films, "--output", out, "--json")
            assert done.returncode == 0, done.stderr
            cluster.wait_for(log, 0)
        assert max(there for _, there, _ in log.seen) == max(asked for _, _, asked in log.seen) == NODES_MAX
        stopped = cluster.run("node", "stop")
        assert stopped.returncode == 0, stopped.stderr
        assert cluster.processes() == []
    assert all(verify(film, out / film.name).exact for film in films.iterdir())
    events = [event for line in done.stdout.splitlines() if (event := json.loads(line))["event"] == "file_done"]
    assert [event["tries"] for event in events] == [1] * FILES
    ends = ends_of(out)
    assert len(ends) == FILES
    if os.environ.get("UPDATE_DOCS") == "1":
        keep(log, ends, began_s)


def ends_of(out: Path) -> list[float]:
    """Return when each file was done at its first try, in seconds of UTC, from the batch's database."""
    database = sqlite3.connect(f"file:{out}/codecfleet-batch.sqlite?mode=ro", uri=True)
    rows = database.execute("SELECT ended_s FROM entries WHERE state = 'done' AND tries = 1").fetchall()
    database.close()
    return sorted(at_s for (at_s,) in rows)


def keep(log: NodeLog, ends: list[float], began_s: float) -> None:
    """Keep the log of nodes for docs/images/autoscaling.py, in seconds since the batch began."""
    seen = [(round(max(0.0, at_s - began_s), 1), there, asked) for at_s, there, asked in log.seen]
    kept = {
        "nodes": [(at_s, there) for at_s, there, _ in seen],
        "wanted": [(at_s, asked) for at_s, _, asked in seen],
        "files": [(round(at_s - began_s, 1),) for at_s in ends],
    }
    RESULT.write_text(json.dumps(kept) + "\n")
