"""Messages between a fleet and its host."""

import asyncio
import socket
from pickle import PickleBuffer

import numpy as np

from codecfleet.cluster.host.wire import MessageKind, WireChannel

LARGE_BYTES = 3 << 20
"""More than a socket's buffer holds."""


async def test_messages_arrive_whole_and_in_order() -> None:
    """Small and large, with any number of parts, also empty ones."""
    here, there = (WireChannel(end) for end in socket.socketpair())
    picture = np.arange(LARGE_BYTES, dtype=np.uint8)
    sent = [
        (MessageKind.CLOSE, 0, []),
        (MessageKind.SUBMIT, 7, [b"", b"a"]),
        (MessageKind.ANSWER, 2**40, [b"b", picture.tobytes()]),
        (MessageKind.CANCEL, 1, []),
    ]
    for kind, number, parts in sent:
        here.send(kind, number, *parts)
    here.send(MessageKind.ANSWER, 3, PickleBuffer(picture))
    writing = asyncio.create_task(here.write())
    read = [await there.read() for _ in range(5)]
    assert [(m.kind, m.number, [bytes(part) for part in m.parts]) for m in read[:4] if m] == sent
    assert read[4] is not None
    assert bytes(read[4].parts[0]) == picture.tobytes()
    await here.flushed()
    assert not here.is_behind
    writing.cancel()
    here.close()
    assert await there.read() is None
    there.close()


async def test_the_other_side_is_gone() -> None:
    """Nothing is raised: writing ends, and half a message is none."""
    here, end = socket.socketpair()
    channel = WireChannel(here)
    end.sendall(b"\0\0\0\1")
    end.close()
    assert await channel.read() is None
    channel.send(MessageKind.CLOSE)
    await channel.write()
    channel.close()
