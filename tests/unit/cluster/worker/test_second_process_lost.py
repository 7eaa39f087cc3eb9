"""A second process that ends, hangs, lies, or cannot be started."""

import threading
import time

import pytest

from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.cluster.process.child import ChildDied
from codecfleet.cluster.worker.helpers.helper import QUIET_S, STARTING_S
from codecfleet.cluster.worker.helpers.messages import HelperCancel, HelperRun

from ..second_processes import PATIENCE_S, Second, _no_gpu, _Peer, _Unreadable, _until, second

__all__ = ["second"]


def test_one_that_cannot_open_its_gpu_is_never_ready(second: Second) -> None:
    """The worker continues alone, and nothing is lost."""
    second.gpu = Gpu(_no_gpu)
    second.process.start()
    _until(lambda: second.refused != [])
    assert second.refused == ["there is no GPU"]
    assert not second.process.is_ready
    assert second.lost == []


def test_one_that_ends_is_lost() -> None:
    """Its worker gets the reason, and so does what waits for its work."""
    peer = _Peer()
    process = peer.ready()
    peer.close()
    assert peer.told.get(timeout=PATIENCE_S) == ("lost", "it was killed by SIGKILL")
    assert not process.is_ready
    with pytest.raises(ChildDied):
        process.submit("run", b"", ()).result(PATIENCE_S)
    process.cancel("run")
    assert peer.told.empty()


@pytest.mark.parametrize("error", [OSError("no more processes"), TypeError("a path that is none")])
def test_one_that_cannot_be_started_is_never_ready(error: Exception) -> None:
    """Its worker learns why, continues alone, and does not try again."""
    peer = _Peer(error)
    peer.process.start()
    kind, why = peer.told.get(timeout=PATIENCE_S)
    assert (kind, str(error) in why) == ("refused", True)
    peer.process.start()
    peer.process.look(1e9)
    assert not peer.process.is_ready
    assert peer.told.empty()


def test_one_that_sends_nonsense_is_lost() -> None:
    """A process that cannot be understood is given up, and its worker does not wait for it."""
    peer = _Peer()
    peer.ready()
    peer.theirs.send(_Unreadable())
    kind, why = peer.told.get(timeout=PATIENCE_S)
    assert (kind, "ValueError" in why) == ("lost", True)
    _until(lambda: peer.kills > 0)


def test_one_that_does_not_listen_delays_no_caller() -> None:
    """A worker's event loop sends to it, and answers for the whole worker; what was sent arrives in order."""
    peer = _Peer()
    process = peer.ready()
    sends = threading.Thread(target=lambda: [process.submit("run", bytes(8 << 20), ()), process.cancel("run")])
    sends.start()
    sends.join(PATIENCE_S)
    assert not sends.is_alive()
    run, cancel = (peer.theirs.receive(time.monotonic() + PATIENCE_S) for _ in range(2))
    assert (type(run), len(run.packed_work)) == (HelperRun, 8 << 20)
    assert cancel == HelperCancel("run")
    peer.close()


def test_one_that_says_nothing_is_lost() -> None:
    """A call that holds its interpreter stops it as a whole, while the worker's heartbeat would continue."""
    peer = _Peer()
    process = peer.ready()
    process.look(100.0)
    process.look(100.0 + QUIET_S - 1)
    assert peer.told.empty()
    process.look(100.0 + QUIET_S)
    assert peer.told.get(timeout=PATIENCE_S) == ("lost", "it has said nothing for 20 s")
    _until(lambda: peer.kills > 0)


def test_one_that_reports_while_idle_is_well(second: Second) -> None:
    """It says so also when it has no work."""
    process = second.ready()
    process.look(100.0)
    before = process._messages
    second.ticks.release()
    _until(lambda: process._messages > before)
    process.look(100.0 + QUIET_S)
    assert process.is_ready


def test_one_that_never_opens_its_gpu_is_ended() -> None:
    """It holds memory of the GPU; its worker, which never needed it, continues."""
    peer = _Peer()
    peer.process.start()
    peer.process.look(100.0)
    peer.process.look(100.0 + STARTING_S - 1)
    assert peer.told.empty()
    _until(lambda: peer.process._child is not None)
    peer.process.look(100.0 + STARTING_S)
    assert peer.told.get(timeout=PATIENCE_S) == ("refused", "it has said nothing for 300 s")
    _until(lambda: peer.kills > 0)
