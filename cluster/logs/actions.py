"""The actions of log entries: a fixed vocabulary for searches. docs/logs.md has a table of them."""

from enum import Enum
from logging import ERROR, INFO, WARNING
from typing import Final


class LogAction(Enum):
    """An action: its name in entries, its level as in ``logging``, and its meaning."""

    def __init__(self, word: str, level: int, says: str) -> None:
        self.word, self.level, self.says = word, level, says

    # A cluster's supervisor.
    SUPERVISOR_UP = "supervisor.up", INFO, "a supervisor starts, and adopts the workers of an earlier one"
    SUPERVISOR_REPLACED = (
        "supervisor.replaced",
        WARNING,
        "a supervisor ends: another took over, or this one is cut off from the cluster",
    )
    SUPERVISOR_ENDED = "supervisor.ended", INFO, "a supervisor ends, with all its workers"
    NODE_JOINED = "node.joined", INFO, "a node has joined the cluster"
    NODE_PROBED = "node.probed", INFO, "the results of a node's probes"
    NODE_UNPROBED = "node.unprobed", WARNING, "a node's probes failed, or its GPUs could not be polled"
    NODE_ORDERED = "node.ordered", INFO, "a user has cordoned, drained or uncordoned a node"
    NODE_LEAVING = "node.leaving", WARNING, "Ray was informed that a node will end"
    NODE_SKEWED = "node.skewed", WARNING, "a node's clock differs from the supervisor's clock by 2 s or more"
    NODES_WANTED = "nodes.wanted", INFO, "the requested size of a group of nodes has changed"
    NODES_REFUSED = "nodes.refused", WARNING, "Ray does not accept requests for nodes"
    NODE_GIVEN_UP = "node.given-up", INFO, "an idle node is being ended"
    NODE_GONE = "node.gone", WARNING, "a node has left the cluster"
    CLIENT_CAME = "client.came", INFO, "a driver has connected to the cluster"
    CLIENT_LEFT = "client.left", INFO, "a driver has disconnected"
    CLIENT_LOST = "client.lost", WARNING, "a driver no longer answers: its slots are released"
    LEASE_GRANTED = "lease.granted", INFO, "a job that had no slot got its first slot"
    LEASE_ENDED = "lease.ended", INFO, "a job lost its last slot"
    WORKER_UP = "worker.up", INFO, "a worker process is ready, or holds a GPU that must not be used"
    WORKER_ADOPTED = "worker.adopted", INFO, "a supervisor took over an earlier supervisor's worker"
    WORKER_LOST = "worker.lost", WARNING, "a worker process died, hung or did not start; another replaces it"
    WORKER_UNRESERVED = "worker.unreserved", WARNING, "Ray reserved nothing for a worker"
    WORKER_DUE = "worker.due", INFO, "a worker process will be replaced once it is idle"
    WORKER_ENDED = "worker.ended", INFO, "a worker was released, or ended with its node"
    WORKER_QUARANTINED = "worker.quarantined", ERROR, "a station is in quarantine, because its processes keep dying"
    WORKER_TRUSTED = "worker.trusted", INFO, "a station is used again"
    DEVICE_FAULTED = "device.faulted", WARNING, "a GPU's driver reported an error (Xid)"
    DEVICE_TRIED = "device.tried", INFO, "a suspected device is being tested"
    DEVICE_QUARANTINED = "device.quarantined", ERROR, "a device gets no work"
    DEVICE_LIMITED = "device.limited", INFO, "a device, or its node, accepts only a certain number of encoder sessions"
    DEVICE_TRUSTED = "device.trusted", INFO, "a device passed its test and gets work again"
    # A worker process.
    WORKER_STARTED = "worker.started", INFO, "this process is a worker"
    WORKER_FENCED = "worker.fenced", ERROR, "no supervisor has renewed this worker: it ends itself"
    WORKER_BROKEN = "worker.broken", ERROR, "this process cannot recover: it ends"
    WORK_FAILED = "work.failed", WARNING, "a segment or sound track ended with an error"
    # A job.
    JOB_PLANNED = "job.planned", INFO, "a job's cuts and encoder are fixed"
    JOB_RESUMED = "job.resumed", INFO, "a job continues from an earlier run's finished work"
    JOB_WARNED = "job.warned", WARNING, "a job warns of a loss, damage, a fallback or a wait"
    JOB_DONE = "job.done", INFO, "the output is checked and published"
    JOB_FAILED = "job.failed", ERROR, "a job ended without an output"
    JOB_CANCELLED = "job.cancelled", WARNING, "a job was cancelled"
    SEGMENT_DONE = "segment.done", INFO, "a segment is encoded and on disk"
    SEGMENT_FAILED = "segment.failed", WARNING, "an attempt at a segment failed"
    SEGMENT_RETRIED = "segment.retried", INFO, "a new attempt at a segment begins"
    SEGMENT_DOUBLED = "segment.doubled", INFO, "a late segment is also started on another worker"
    # A batch.
    FILE_DONE = "file.done", INFO, "a batch's file is done"
    FILE_FAILED = "file.failed", ERROR, "a batch's file failed"
    FILE_RETRIED = "file.retried", WARNING, "a batch's file will be tried again"
    # The actions below are about a node that this process keeps.
    NODE_STARTING = "node.starting", INFO, "a node starts: its resources, and the cluster that it joins"
    NODE_UP = "node.up", INFO, "the node has joined its cluster"
    NODE_DRAINING = "node.draining", INFO, "the node is ending, and waits for its work"
    NODE_UNWATCHED = (
        "node.unwatched",
        WARNING,
        "the cloud's metadata server does not say whether the cloud will end this node's machine",
    )
    NODE_DRIVING = "node.driving", INFO, "a line that the node's driver of a queue printed, or a change of that driver"
    NODE_DOWN = "node.down", INFO, "the node has ended as requested"
    NODE_FAILED = "node.failed", ERROR, "the node did not start, or ended by itself"
    # The log itself.
    DEFECT = "defect", ERROR, "a defect in codecfleet: please report it"
    LOG_SUPPRESSED = "log.suppressed", WARNING, "too many entries: some were left out"


LEVELS: Final = {INFO: "info", WARNING: "warning", ERROR: "error"}
