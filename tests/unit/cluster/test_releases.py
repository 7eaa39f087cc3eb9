"""Which releases work together on a cluster, and what those are told that do not."""

import pickle
from dataclasses import replace

import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.cluster.releases import OLDEST, OURS, PROTOCOL, UNNUMBERED, Release, apart, makes_alike
from codecfleet.cluster.supervisor.core.granting import refused
from codecfleet.cluster.supervisor.runner.client import refuse_others
from codecfleet.cluster.supervisor.state.messages import ClientReport
from codecfleet.cluster.worker.blobs import BlobCache, unpack
from codecfleet.errors import VersionRefused
from codecfleet.testing.works import Count

THIRD = Release(3, 2, "0.3.0")


@pytest.mark.parametrize(
    ("other", "works"),
    [
        (Release(1, 1, "0.1.0"), False),
        (Release(2, 1, "0.2.0"), True),
        (THIRD, True),
        (Release(4, 3, "0.4.0"), True),
        (Release(4, 4, "0.4.0"), False),
        (Release(5, 4, "0.5.0"), False),
        (UNNUMBERED, False),
    ],
)
def test_a_release_works_with_the_one_before_and_the_one_after(other: Release, *, works: bool) -> None:
    """Whichever of the two is the client; a release may leave out the one before."""
    assert (apart(THIRD, other) is None) is works
    assert (apart(other, THIRD) is None) is works


def test_the_window_is_one_release_wide() -> None:
    """What is written in docs/upgrades.md."""
    assert OLDEST in (PROTOCOL, PROTOCOL - 1)


def test_it_is_said_which_side_to_upgrade() -> None:
    """The older one, to the version of the newer."""
    newer = apart(THIRD, Release(5, 4, "0.5.0"))
    assert newer is not None
    assert "client is codecfleet 0.3.0 (protocol 3), and the cluster's supervisor is codecfleet 0.5.0" in newer.reason
    assert newer.next_step == "Upgrade codecfleet to 0.5.0 where the command runs."
    older = apart(THIRD, UNNUMBERED)
    assert older is not None
    assert older.next_step.startswith("Upgrade the cluster to 0.3.0, one release at a time")


class Supervisor:
    """A supervisor of some release, called as Ray's actors are."""

    def __init__(self, *said: object) -> None:
        self.release = self
        self._said = said

    async def remote(self) -> tuple[object, ...]:
        """Say what it is."""
        return self._said


async def test_a_client_looks_before_it_asks_for_anything() -> None:
    """A supervisor in the window is used, also if it says more than we know; others are refused."""
    await refuse_others(Supervisor(PROTOCOL, OLDEST, "0.1.0"))
    await refuse_others(Supervisor(PROTOCOL + 1, PROTOCOL, "0.2.0", "what a later release says"))
    with pytest.raises(VersionRefused, match=r"Upgrade codecfleet to 0\.9\.0 where the command runs"):
        await refuse_others(Supervisor(PROTOCOL + 2, PROTOCOL + 1, "0.9.0"))
    with pytest.raises(VersionRefused, match="Upgrade the cluster"):
        await refuse_others(object())


def test_a_supervisor_tells_a_client_why_it_gets_nothing() -> None:
    """Also one that did not ask, or of a supervisor that was replaced while it ran."""
    report = ClientReport("me", "host process 7", 1, ())
    assert refused(replace(report, release=OURS)) is None
    grants = refused(report)
    assert grants is not None
    assert "of unknown version (protocol 0)" in grants.unrecoverable
    assert grants.what_next.startswith("Upgrade codecfleet")


def test_a_worker_refuses_the_work_of_a_client_that_it_does_not_understand() -> None:
    """Before it reads the work; that of its own release, or of the next, it does."""
    mine = BlobCache(bytes).pack(Count(job="j", label="a", frames=3))[0]
    work = mine[len(pickle.dumps((OURS.protocol, OURS.oldest, OURS.version))) :]
    assert unpack(mine, ()).run(WorkContext()) == 3
    assert unpack(pickle.dumps((PROTOCOL + 1, PROTOCOL, "0.2.0", "more")) + work, ()).run(WorkContext()) == 3
    for said in ((PROTOCOL + 2, PROTOCOL + 1, "0.9.0"), "no release at all"):
        with pytest.raises(VersionRefused, match="the worker is codecfleet"):
            unpack(pickle.dumps(said) + b"no pickle", ())


def test_unknown_versions_of_pyav_are_not_told_apart() -> None:
    """Only two that are known to differ make other bytes."""
    assert makes_alike("18.1.0", "18.1.0")
    assert makes_alike("", "18.1.0")
    assert makes_alike("18.1.0", "")
    assert not makes_alike("18.1.0", "18.2.0")
