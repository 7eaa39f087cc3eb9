"""Files that the Ray of a node leaves behind."""

import socket
import tempfile
import time
from pathlib import Path

import pytest

from codecfleet.cluster.node.keeping import remove_dead_listeners


@pytest.fixture
def folder() -> Path:
    """A folder for sockets with short paths, in the place of temporary files."""
    return Path(tempfile.mkdtemp(prefix="pymp-"))


def bound(path: Path) -> socket.socket:
    """Return a socket that is bound to a path."""
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(path))
    return found


def test_only_sockets_of_no_process_are_removed(folder: Path) -> None:
    """Live sockets and files stay; a closed socket is removed, and at last the folder."""
    bound(folder / "listener-dead").close()
    (folder / "listener-file").touch()
    with bound(folder / "listener-live"):
        remove_dead_listeners(0)
        assert {each.name for each in folder.iterdir()} == {"listener-live", "listener-file"}
    (folder / "listener-file").unlink()
    remove_dead_listeners(time.time() + 1)
    assert (folder / "listener-live").exists()  # it is older than the given time
    remove_dead_listeners(0)
    assert not folder.exists()
