"""What a worker's heartbeat tells of its work, piece by piece."""

import asyncio
import time
from typing import TYPE_CHECKING

from codecfleet.actors.device.pieces import RECENT_S, EndedPieces, Piece, PieceEnding
from codecfleet.actors.device.work import Constraints
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.ray_worker import RayWorker
from codecfleet.testing.fleet.fake_worker import in_thread
from codecfleet.testing.works import Count

if TYPE_CHECKING:
    from codecfleet.cluster.worker.heartbeat import Heartbeat


def test_work_of_all_processes_is_told_with_its_age() -> None:
    """What ran in the worker and what ran alone beside it is told by run and label, in seconds before the heartbeat."""

    async def beat() -> "Heartbeat":
        worker = RayWorker(2, spawn_lone=in_thread)
        await worker.run("c:1", BlobCache(bytes).pack(Count(job="j", label="segment 1", frames=3))[0])
        await worker.run(
            "c:2", BlobCache(bytes).pack(Count(job="j", label="segment 2", frames=3))[0], Constraints(alone=True)
        )
        return await worker.heartbeat()

    told = asyncio.run(beat()).pieces
    assert {(run, label, ending) for run, _, label, _, _, ending in told} == {
        ("c:1", "segment 1", "done"),
        ("c:2", "segment 2", "done"),
    }
    assert all(ended_s is not None and -RECENT_S <= began_s <= ended_s <= 0 for *_, began_s, ended_s, _ in told)


def test_what_ended_long_ago_is_not_told() -> None:
    """Only the last seconds are told, so that a heartbeat stays small."""
    ended = EndedPieces()
    ended.add(Piece("c:1", "j", "segment 1", 0.0), PieceEnding.DONE)
    assert [piece.run for piece in ended.recent()] == ["c:1"]
    assert [piece.run for piece in ended.recent(time.monotonic() + RECENT_S + 1)] == []
