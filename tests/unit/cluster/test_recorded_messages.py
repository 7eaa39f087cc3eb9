"""What another release sent is understood, as long as it speaks one of the protocols that this one understands."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codecfleet.actors.by_name import unpacked
from codecfleet.cluster.releases import OLDEST, PROTOCOL
from codecfleet.cluster.supervisor.state.kept import unpack_orders, unpack_quarantines
from codecfleet.cluster.worker.blobs import unpack

from .recorded_messages import FOLDER, messages, plain, record, recordings

READ: dict[str, Callable[[bytes], object]] = {
    "work": lambda content: unpack(content, ()),
    "orders": unpack_orders,
    "quarantines": lambda content: unpack_quarantines(content, 1000.0),
}
"""How a message is read; all others as Ray hands them over."""
UNDERSTOOD = range(OLDEST, PROTOCOL + 1)


def test_every_kind_of_message_is_recorded(tmp_path: Path) -> None:
    """Those of the protocol that is spoken now, so that the next release is held to them; no older one is kept."""
    if os.environ.get("UPDATE_GOLDEN"):
        record(PROTOCOL, tmp_path)
    assert recordings(PROTOCOL).keys() == messages(tmp_path).keys()
    assert {path.stem for path in FOLDER.iterdir()} == {f"protocol-{number}" for number in UNDERSTOOD}


@pytest.mark.parametrize("protocol", UNDERSTOOD)
def test_what_a_release_sent_is_read_as_it_was_meant(protocol: int) -> None:
    """Every field that there still is has the value that it was sent with."""
    for name, recorded in recordings(protocol).items():
        found = plain(READ.get(name, unpacked)(recorded["bytes"]))
        assert _missing(recorded["holds"], found, name) == []


def _missing(sent: Any, found: Any, at: str = "") -> list[str]:
    """Return what was sent and did not arrive."""
    if isinstance(sent, dict) and isinstance(found, dict):
        both = sent.keys() & found.keys()
        return [line for name in both for line in _missing(sent[name], found[name], f"{at}.{name}")]
    if isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        pairs = enumerate(zip(sent, found, strict=True))
        return [line for number, (one, other) in pairs for line in _missing(one, other, f"{at}[{number}]")]
    return [] if sent == found else [f"{at}: {sent} was sent, {found} arrived"]
