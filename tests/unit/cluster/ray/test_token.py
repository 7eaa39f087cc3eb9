"""Where the token of a cluster is, and how a new token is made."""

import stat
from pathlib import Path

import pytest

from codecfleet.cluster.ray.ray_environment import cluster_variables
from codecfleet.cluster.ray.token import close_to_others, lacks_token, make_token, read_token, sign_in, token_file
from codecfleet.errors import FleetUnavailable


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user without a token."""
    return {"HOME": str(tmp_path)}


def mode(file: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(file.stat().st_mode)


def test_ray_looks_in_three_places(home: dict[str, str], tmp_path: Path) -> None:
    """A token is in a variable, in the file that a variable names, or in the home folder; an empty file has none."""
    assert not read_token(home)
    assert read_token({**home, "RAY_AUTH_TOKEN": "a"})
    named = tmp_path / "secret"
    named.write_text(" \n")
    assert not read_token({**home, "RAY_AUTH_TOKEN_PATH": str(named)})
    named.write_text("a")
    assert read_token({**home, "RAY_AUTH_TOKEN_PATH": str(named)})
    assert token_file(home) == tmp_path / ".ray" / "auth_token"


def test_a_new_token_is_its_users_alone(home: dict[str, str]) -> None:
    """The file and its folder are closed to other users, and two tokens differ."""
    file = make_token(home)
    first = file.read_text()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert len(first) == 64
    assert read_token(home)
    assert make_token(home).read_text() != first
    assert [each.name for each in file.parent.iterdir()] == ["auth_token"]


def test_a_token_that_cannot_be_written_is_one_line(home: dict[str, str], tmp_path: Path) -> None:
    """The error names the file, and the variable to set instead."""
    (tmp_path / ".ray").write_text("in the way")
    with pytest.raises(FleetUnavailable, match="auth_token") as caught:
        make_token(home)
    assert "RAY_AUTH_TOKEN_PATH" in caught.value.next_step


def test_a_token_that_others_could_read_is_closed(home: dict[str, str]) -> None:
    """Ray writes its file with the usual permissions; a change is reported only if there was one."""
    file = make_token(home)
    assert not close_to_others(home)
    file.chmod(0o644)
    assert not close_to_others({**home, "RAY_AUTH_TOKEN": "another counts"})
    assert close_to_others(home)
    assert mode(file) == 0o600
    assert not close_to_others({"HOME": "/nowhere"})


def test_a_program_shows_the_token_that_it_has(home: dict[str, str]) -> None:
    """A driver with a token presents it, unless the user chose a mode."""
    assert sign_in(home) == {}
    has = {**home, "RAY_AUTH_TOKEN": "a"}
    assert sign_in(has) == {"RAY_AUTH_MODE": "token"}
    assert sign_in({**has, "RAY_AUTH_MODE": "disabled"}) == {}
    assert [lacks_token({**at, "RAY_AUTH_MODE": "token"}) for at in (home, has)] == [True, False]
    assert not lacks_token(home)
    assert cluster_variables(has)["RAY_AUTH_MODE"] == "token"
