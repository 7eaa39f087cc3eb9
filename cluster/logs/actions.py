"""The actions of log entries: a fixed vocabulary by which entries are found. docs/logs.md has the table."""

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class ActionKind:
    """An action's word, its level as ``logging`` has it, and what it says."""

    word: str
    level: int
    says: str


def _usual(word: str, says: str) -> ActionKind:
    return ActionKind(word, logging.INFO, says)


def _warns(word: str, says: str) -> ActionKind:
    return ActionKind(word, logging.WARNING, says)


def _fails(word: str, says: str) -> ActionKind:
    return ActionKind(word, logging.ERROR, says)


class LogAction(Enum):
    """What happened. Each has one level."""

    # A cluster's supervisor.
    SUPERVISOR_UP = _usual("supervisor.up", "a supervisor begins, and takes over what an earlier one left")
    SUPERVISOR_REPLACED = _warns("supervisor.replaced", "another supervisor took over, or this one is cut off: it ends")
    SUPERVISOR_ENDED = _usual("supervisor.ended", "a supervisor ends everything that it runs on")
    NODE_JOINED = _usual("node.joined", "a node came to the cluster")
    NODE_PROBED = _usual("node.probed", "what a node's probes found")
    NODE_UNPROBED = _warns("node.unprobed", "a node's probes failed, or its GPUs could not be polled")
    NODE_ORDERED = _usual("node.ordered", "a user has cordoned, drained or uncordoned a node")
    NODE_LEAVING = _warns("node.leaving", "Ray was told when a node ends")
    NODES_WANTED = _usual("nodes.wanted", "another number of nodes of a group is wanted")
    NODES_REFUSED = _warns("nodes.refused", "Ray takes no orders for nodes")
    NODE_GIVEN_UP = _usual("node.given-up", "a node has nothing to do, and is to end")
    NODE_GONE = _warns("node.gone", "a node is not in the cluster any more")
    CLIENT_CAME = _usual("client.came", "a driver uses the cluster")
    CLIENT_LEFT = _usual("client.left", "a driver is done")
    CLIENT_LOST = _warns("client.lost", "a driver fell silent: its slots are released")
    LEASE_GRANTED = _usual("lease.granted", "a job that had no slot got its first")
    LEASE_ENDED = _usual("lease.ended", "a job that had slots has none any more")
    WORKER_UP = _usual("worker.up", "a worker process is ready, or holds a GPU that must not be used")
    WORKER_ADOPTED = _usual("worker.adopted", "a supervisor took over an earlier one's worker")
    WORKER_LOST = _warns("worker.lost", "a worker process died, hung or did not start; another replaces it")
    WORKER_UNRESERVED = _warns("worker.unreserved", "Ray reserved nothing for a worker")
    WORKER_DUE = _usual("worker.due", "a worker process is replaced once it is idle")
    WORKER_ENDED = _usual("worker.ended", "a worker was given back, or ended with its node")
    WORKER_QUARANTINED = _fails("worker.quarantined", "a place of workers rests, since its processes keep dying")
    WORKER_TRUSTED = _usual("worker.trusted", "a place of workers is used again")
    DEVICE_FAULTED = _warns("device.faulted", "a GPU's driver reported an error (Xid)")
    DEVICE_TRIED = _usual("device.tried", "a device in doubt is put to a trial")
    DEVICE_QUARANTINED = _fails("device.quarantined", "a device gets no work")
    DEVICE_LIMITED = _usual("device.limited", "how many encoder sessions a device, or its node, takes")
    DEVICE_TRUSTED = _usual("device.trusted", "a device passed its trial and gets work again")
    # A worker process.
    WORKER_STARTED = _usual("worker.started", "this process is a worker")
    WORKER_FENCED = _fails("worker.fenced", "no supervisor has renewed this worker: it ends itself")
    WORKER_BROKEN = _fails("worker.broken", "what broke in this process stays broken: it ends")
    WORK_FAILED = _warns("work.failed", "a piece of work ended with an error")
    # A job.
    JOB_PLANNED = _usual("job.planned", "a job's cuts and encoder are fixed")
    JOB_RESUMED = _usual("job.resumed", "a job goes on from what an earlier run had finished")
    JOB_WARNED = _warns("job.warned", "what the user should know: a loss, damage, a fallback, a wait")
    JOB_DONE = _usual("job.done", "the output is proven and published")
    JOB_FAILED = _fails("job.failed", "a job ended without an output")
    JOB_CANCELLED = _warns("job.cancelled", "a job was cancelled")
    SEGMENT_DONE = _usual("segment.done", "a segment is encoded and on disk")
    SEGMENT_FAILED = _warns("segment.failed", "a try at a segment failed")
    SEGMENT_RETRIED = _usual("segment.retried", "a segment is tried again")
    SEGMENT_DOUBLED = _usual("segment.doubled", "a segment is late, and runs a second time elsewhere")
    # A batch.
    FILE_DONE = _usual("file.done", "a batch's file is done")
    FILE_FAILED = _fails("file.failed", "a batch's file failed")
    FILE_RETRIED = _warns("file.retried", "a batch's file is tried again")
    # A node that this process keeps.
    NODE_STARTING = _usual("node.starting", "what a node offers, and to whom")
    NODE_UP = _usual("node.up", "the node has joined its cluster")
    NODE_DRAINING = _usual("node.draining", "the node was told to end, and lets its work finish")
    NODE_DOWN = _usual("node.down", "the node has ended, as it was told to")
    NODE_FAILED = _fails("node.failed", "the node did not start, or ended by itself")
    # The log itself.
    DEFECT = _fails("defect", "a defect of codecfleet's own: report it")
    LOG_SUPPRESSED = _warns("log.suppressed", "entries were left out, since there were too many")

    @property
    def word(self) -> str:
        """What entries call it."""
        return self.value.word

    @property
    def level(self) -> int:
        """Its level, as ``logging`` has it."""
        return self.value.level

    @property
    def says(self) -> str:
        """What it says."""
        return self.value.says


LEVELS: Final = {logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
"""What entries call the levels."""
