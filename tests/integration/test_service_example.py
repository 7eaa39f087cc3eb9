"""examples/service: a web service on one fleet, used as its clients use it."""

import asyncio
import importlib.util
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from codecfleet import Fleet
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

APP = Path(__file__).parents[2] / "examples" / "service" / "app.py"
CLIPS = ["broken.mp4", "long.mp4", "short.mp4"]
QUICK = {"preset": 1, "height": 90}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example as a module, with the packages that only it needs."""
    for name in ("httpx", "fastapi", "uvicorn"):
        pytest.importorskip(name)
    found = importlib.util.spec_from_file_location("service_example", APP)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module  # pydantic and FastAPI look up the names of types there
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clip of one second and a clip of several minutes."""
    folder = tmp_path_factory.mktemp("clips")
    make_clip(folder / "short.mp4", Clip(times=constant_times(25)))
    make_clip(folder / "long.mp4", Clip(times=constant_times(5000), options=(("preset", "ultrafast"),)))
    (folder / "broken.mp4").write_bytes(b"no film at all" * 100)
    return folder


@pytest.fixture
def media(clips: Path, tmp_path: Path) -> Path:
    """The service's folder."""
    return Path(shutil.copytree(clips, tmp_path / "media"))


@asynccontextmanager
async def client(example: ModuleType, media: Path) -> AsyncIterator[Any]:
    """Open the service in this process with threads as workers; yield a client."""
    import httpx

    app = example.create_app(Fleet(pool=LocalPool(2)), media)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://s") as found:
        yield found


async def submitted(service: Any, source: str, **options: object) -> str:
    """Submit a job; return its address."""
    answer = await service.post("/jobs", json={"source": source, "output": "out.mp4", **QUICK, **options})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/jobs/{answer.json()['job']}"
    return str(answer.headers["location"])


def events_of(text: str) -> list[tuple[int, str, Any]]:
    """Return (number, kind, content) of server-sent events; the number is 0 if the event has none."""
    fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if block]
    return [(int(each.get("id", 0)), each["event"], json.loads(each["data"])) for each in fields]


def left_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def test_a_job_is_watched_until_it_ends(example: ModuleType, media: Path) -> None:
    """A job's events are numbered and end with its state; a client that reconnects gets the events it has not seen."""
    async with client(example, media) as service:
        job = await submitted(service, "short.mp4", codec="h264")
        stream = await service.get(f"{job}/events")
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = events_of(stream.text)
        numbers = [number for number, kind, _ in events if kind != "progress"]
        assert numbers == list(range(1, len(numbers) + 1))
        kinds = [kind for _, kind, _ in events]
        assert {"planned", "segment_finished", "done"} <= set(kinds)
        assert (kinds[-1], events[-1][2]["state"]) == ("end", "done")
        again = await service.get(f"{job}/events", headers={"Last-Event-ID": str(numbers[-2])})
        assert [each for each in events_of(again.text) if each[0]] == events[-1:]
        state = (await service.get(job)).json()
        assert (state["state"], state["report"]["frames"]) == ("done", 25)
        assert [each["job"] for each in (await service.get("/jobs")).json()] == [job.removeprefix("/jobs/")]
        assert (await service.delete(job)).json()["state"] == "done"
    assert (media / "out.mp4").stat().st_size


async def test_a_cancelled_job_leaves_nothing(example: ModuleType, media: Path) -> None:
    """Cancelling a job ends its stream of events; the fleet stays usable."""
    async with client(example, media) as service:
        job = await submitted(service, "long.mp4", preset=7)
        watching = asyncio.create_task(service.get(f"{job}/events"))
        answer = await service.delete(job)
        assert answer.json()["state"] == "cancelled"
        assert events_of((await watching).text)[-1][2]["state"] == "cancelled"
        assert left_in(media) == CLIPS
        assert events_of((await service.get(f"{await submitted(service, 'short.mp4')}/events")).text)[-1][1] == "end"


async def test_a_job_that_fails_says_why(example: ModuleType, media: Path) -> None:
    """The state of a failed job has the error's line and the advice."""
    async with client(example, media) as service:
        job = await submitted(service, "broken.mp4")
        *_, (_, kind, state) = events_of((await service.get(f"{job}/events")).text)
        assert (kind, state["state"]) == ("end", "failed")
        assert "broken.mp4" in state["error"]


@pytest.mark.parametrize(
    "asked",
    [
        {"source": "../secret.mp4", "output": "out.mp4"},
        {"source": "short.mp4", "output": "/etc/out.mp4"},
        {"source": "short.mp4", "output": "out.mp4", "codec": "mp3"},
        {"source": "short.mp4", "output": "out.mp4", "preset": 9},
        {"source": "short.mp4", "output": "out.exe"},
        {"output": "out.mp4"},
    ],
)
async def test_nonsense_is_refused(asked: dict[str, object], example: ModuleType, media: Path) -> None:
    """Wrong options and names outside the folder give status 422 or fail the job; nothing is written."""
    async with client(example, media) as service:
        answer = await service.post("/jobs", json=asked)
        if answer.status_code == 202:
            events = events_of((await service.get(f"{answer.headers['location']}/events")).text)
            assert events[-1][2]["state"] == "failed"
        else:
            assert answer.status_code == 422
        assert (await service.get("/jobs/none")).status_code == 404
    assert left_in(media) == CLIPS
