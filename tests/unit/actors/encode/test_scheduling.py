"""No encoder takes real-time priority, and the capability for it returns afterwards."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.encode.scheduling import ordinary_scheduling
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.settle.request import settle
from codecfleet.actors.settle.software import software_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these rights")

SYS_NICE = 1 << 23


def rights() -> int:
    """Return the calling thread's effective capabilities, as the kernel reports them."""
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    return int(line.split()[1], 16)


def policies() -> set[int]:
    """Return the scheduling policies of this process's threads."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.add(os.sched_getscheduler(int(task.name)))
        except ProcessLookupError:
            continue
    return found


@pytest.mark.parametrize("codec", Codec)
def test_an_encoder_leaves_its_threads_as_they_are(codec: Codec) -> None:
    """SVT-AV1 would put root's threads on SCHED_FIFO with priority 99."""
    before = rights(), policies()
    size = VideoFormat(128, 96, "yuv420p", Fraction(25))
    settings = settle(software_request(codec, preset=1), size, Fraction(1, 25))
    with SoftwareEncoder(settings):
        assert (rights(), policies()) == before
    assert (rights(), policies()) == before


def test_the_right_comes_back_after_an_error() -> None:
    """The capability is missing only during the block, and only in the block's thread."""
    before = rights()

    def fail(elsewhere: ThreadPoolExecutor) -> None:
        with ordinary_scheduling():
            assert rights() == before & ~SYS_NICE
            assert elsewhere.submit(rights).result() == before
            raise ZeroDivisionError

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(rights).result()  # the other thread starts before the block
        with pytest.raises(ZeroDivisionError):
            fail(elsewhere)
    assert rights() == before
