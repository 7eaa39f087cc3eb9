"""The dashboard in a real browser, and beside a working fleet."""

import asyncio
import json
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from codecfleet.actors.device.pieces import RECENT_S
from codecfleet.dashboard.answers import Gate
from codecfleet.dashboard.looking import Looking
from codecfleet.dashboard.server import listening_socket, serve

from ..chromium import Tab, open_tab
from ..unit.dashboard.hostile_fleet import ATTACK, FakeFleet, hostile_status
from .local_jobs import film
from .ray_cluster import ray_cluster
from .test_warm_fleet import places

if TYPE_CHECKING:
    import subprocess

__all__ = ["film", "places"]

TOKEN = "s3cret-token"  # noqa: S105 - a test's own
PATIENCE_S = 90
SHOWN = "!document.getElementById('main').hidden"
TEXT = "document.body.innerText"


@contextmanager
def served(token: str = "") -> Iterator[tuple[str, FakeFleet]]:
    """Serve a hostile fleet from another thread; yields the page's address, and the fleet."""
    fleet = FakeFleet(hostile_status())
    bound, ready = listening_socket("127.0.0.1", 0), threading.Event()
    loop = asyncio.new_event_loop()
    serving = loop.create_task(serve(bound, Gate(token), Looking(fleet.desk), ready.set))

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/", fleet
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        bound.close()
        loop.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    until_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def is_clean(tab: Tab, url: str) -> None:
    """Check that only the dashboard was requested and that the browser reports no error."""
    assert tab.said == []
    assert {each for each in tab.asked if not each.startswith("data:")} == {url, f"{url}fleet.json"}


@pytest.mark.slow
def test_hostile_names_are_text_in_a_browser() -> None:
    """Names that are scripts are shown as text at any width, load nothing, and do not move between updates."""
    places_of = "JSON.stringify([...document.querySelectorAll('h2, details')].map((each) => each.offsetTop))"
    with served() as (url, fleet), open_tab() as tab:
        for width in (400, 1280):
            tab.size(width, 900)
            tab.open(url)
            tab.until(SHOWN)
            assert ATTACK in tab.value(TEXT)
            assert tab.value("document.querySelectorAll('img, script').length") == 1
            assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.value("document.querySelectorAll('#timeline g.bar').length") > 500
        tab.value("document.querySelector('summary').focus()")
        tab.press("Enter")
        tab.until("document.querySelectorAll('details[open] tbody tr').length === 20")
        before, looks = tab.value(places_of), len(fleet.asked)
        wait_until(lambda: len(fleet.asked) >= looks + 4)
        assert tab.value("document.querySelectorAll('details[open] tbody tr').length") == 20
        assert tab.value("document.activeElement.tagName") == "SUMMARY"
        assert tab.value(places_of) == before
        is_clean(tab, url)


@pytest.mark.slow
def test_a_browser_is_asked_for_the_token() -> None:
    """Without the token the page shows nothing; a wrong one is refused; the right one stays in the tab."""
    with served(TOKEN) as (url, _), open_tab() as tab:
        tab.open(url)
        tab.until("!document.getElementById('ask').hidden")
        assert "script" not in tab.value(TEXT)
        for typed, then in (("wrong", "This is not the cluster's token."), (TOKEN, "slots in use")):
            tab.value(f"document.getElementById('token').value = {json.dumps(typed)}")
            tab.value("document.querySelector('#ask button').click()")
            tab.until(f"document.body.innerText.includes({json.dumps(then)})")
        assert tab.value("document.getElementById('ask').hidden")
        assert tab.value("location.href + document.cookie + JSON.stringify(localStorage)") == f"{url}{{}}"
        tab.open(url)
        tab.until(SHOWN)
        assert all("401" in line for line in tab.said), "the browser tells of the two refusals"
        assert all(TOKEN not in each for each in tab.asked)


@pytest.mark.slow
def test_the_page_says_when_it_is_old() -> None:
    """When the dashboard ends, the page says that its data is old, and why."""
    with open_tab() as tab:
        with served() as (url, _):
            tab.open(url)
            tab.until(SHOWN)
            assert tab.value("document.getElementById('age').textContent") == "live"
        tab.until("document.getElementById('trouble').textContent.includes('does not answer')")
        assert "What is below is old." in tab.value(TEXT)
        tab.until("document.getElementById('age').textContent.startsWith('STALE')")
        assert tab.value("document.body.classList.contains('stale')")


def fleet_at(url: str) -> dict[str, Any]:
    """Return the dashboard's data about its fleet; {} if there is none."""
    with urllib.request.urlopen(f"{url}fleet.json", timeout=30) as answer:  # noqa: S310 - our own server
        found: dict[str, Any] = json.load(answer)["document"]["fleet"] or {}
    return found


@contextmanager
def running(shown: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield the address of a started dashboard's page; Ctrl-C ends it silently with exit code 0."""
    with shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        try:
            found = re.search(r"http://\S+", shown.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            shown.send_signal(signal.SIGINT)
        assert shown.wait(30) == 0
        assert shown.stderr.read() == ""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_shows_a_cluster_at_work(film: Path, tmp_path: Path) -> None:
    """The dashboard waits for a supervisor, shows its work, and then that of its successor."""
    kept = {"CODECFLEET_IDLE_S": "300"}  # no worker is released meanwhile
    with ray_cluster(2, env=kept) as cluster, running(cluster.start("dashboard", "--port", "0")) as url:
        assert fleet_at(url) == {}
        done = cluster.run("transcode", str(film), str(tmp_path / "out.mp4"), "--segment-seconds", "2")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: {("segment 0", "done"), ("segment 1", "done")} <= set(pieces(url)))
        wait_until(lambda: all(ended_s > RECENT_S for ended_s in ages_s(url)))
        shown, before = sorted(pieces(url)), cluster.status()
        fastest_fps = max(fps for _, fps in fleet_at(url)["speeds"])
        os.kill(before["pid"], signal.SIGKILL)
        after = cluster.status_once(lambda status: status["pid"] != before["pid"], PATIENCE_S)
        wait_until(lambda: sorted(pieces(url)) == shown)
        lines = [line for _, line in after["log"]]
        assert lines[: len(before["log"])] == [line for _, line in before["log"]]
        assert re.fullmatch("the supervisor of term [0-9]+ takes over", lines[len(before["log"])])
        assert fastest_fps > 0
        wait_until(lambda: max(fps for _, fps in fleet_at(url)["speeds"]) == fastest_fps)


def pieces(url: str) -> list[tuple[str, str]]:
    """Return label and ending of all bars on the timeline."""
    rows = fleet_at(url).get("timeline", [])
    return [(label, ending) for row in rows for _, _, _, _, label, ending in row["pieces"]]


def ages_s(url: str) -> list[float]:
    """Return how long ago each bar on the timeline ended."""
    return [piece[2] or 0.0 for row in fleet_at(url).get("timeline", []) for piece in row["pieces"]]
