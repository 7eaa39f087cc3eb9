"""A cluster has one version of codecfleet; another version is refused in one line, with the next step."""

import pytest

from codecfleet.cluster.supervisor.runner.actor import refuse_others
from codecfleet.cluster.version import VERSION, makes_alike, refuse_client, refuse_worker
from codecfleet.errors import VersionRefused


class Supervisor:
    """A supervisor of some version, called as Ray's actors are: ``await supervisor.version.remote()``."""

    def __init__(self, version: str) -> None:
        self._said = version
        self.version = self

    async def remote(self) -> str:
        return self._said


async def test_a_client_asks_for_the_version_before_anything_else() -> None:
    """A client uses only a supervisor of the same version."""
    await refuse_others(Supervisor(VERSION))
    with pytest.raises(VersionRefused, match=f"this client is codecfleet {VERSION}, .* supervisor is codecfleet 0.9.0"):
        await refuse_others(Supervisor("0.9.0"))


def test_a_checkout_without_a_version_is_equal_to_itself() -> None:
    """An unknown version equals only another unknown version."""
    refuse_client("", "")
    refuse_worker("", "")
    with pytest.raises(VersionRefused, match=r"a codecfleet of unknown version.*codecfleet 0\.1\.0.*docs/nodes\.md"):
        refuse_client("", "0.1.0")


def test_a_worker_of_another_version_is_refused() -> None:
    """The line says what to install, and where."""
    with pytest.raises(VersionRefused) as refused:
        refuse_worker("0.2.0", "0.1.0")
    assert str(refused.value) == (
        "its node has codecfleet 0.2.0, and the supervisor is codecfleet 0.1.0. "
        "Install the supervisor's version on that node: docs/nodes.md."
    )


def test_unknown_versions_of_pyav_are_not_told_apart() -> None:
    """Only two known versions that differ make different bytes."""
    assert makes_alike("18.1.0", "18.1.0")
    assert makes_alike("", "18.1.0")
    assert makes_alike("18.1.0", "")
    assert not makes_alike("18.1.0", "18.2.0")
