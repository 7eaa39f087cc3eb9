"""A headless Chromium, driven over its debugging pipe: what a page shows, as text, values and pictures."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

ANSWER_S: Final = 60.0
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)


def chromium_or_skip() -> str:
    """Return the program, or skip the test."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium; Debian's package is chromium")
    return found


class Tab:
    """One page. ``said`` has the lines of the page's console, ``asked`` the addresses that the page asked for."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session = ""
        self.said: list[str] = []
        self.asked: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size, and light or dark."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, script: str) -> Any:
        """Return a script's value; if the value is a promise, its result."""
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script: str, limit_s: float = ANSWER_S) -> Any:
        """Repeat a script until its value is true, and return the value."""
        until_s = time.monotonic() + limit_s
        while not (found := self.value(script)):
            assert time.monotonic() < until_s, f"not within {limit_s:g} s: {script}"
            time.sleep(0.05)
        return found

    def picture(self) -> bytes:
        """Return a PNG of the whole page."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def press(self, key: str) -> None:
        """Press a key: Tab or Enter."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._hear(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._back], [], [], ANSWER_S)[0], "Chromium does not answer"
            got = os.read(self._back, 1 << 16)
            assert got, "Chromium has ended"
            self._rest += got
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def _hear(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.said += [str(each.get("value", each.get("description"))) for each in found["args"]]
            case "Runtime.exceptionThrown":
                self.said.append(str(found["exceptionDetails"]))
            case "Log.entryAdded":
                self.said.append(f"{found['entry']['text']} {found['entry'].get('url', '')}".strip())
            case "Network.requestWillBeSent":
                self.asked.append(found["request"]["url"])


def _high(descriptor: int) -> int:
    """Move a descriptor out of the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextmanager
def open_tab() -> Iterator[Tab]:
    """Start Chromium with a new profile, and end it; skip the test if Chromium is not installed."""
    program = chromium_or_skip()
    theirs_in, to = map(_high, os.pipe())
    back, theirs_out = map(_high, os.pipe())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium expects the pipes' ends as descriptors 3 and 4.
        line = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        process = subprocess.Popen(
            ["/bin/bash", "-c", line, program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Tab(to, back)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            os.close(to)
            os.close(back)
