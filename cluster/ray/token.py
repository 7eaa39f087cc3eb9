"""Finds and makes the token with which a Ray cluster admits programs and nodes.

Ray 2.60 takes the token from RAY_AUTH_TOKEN, or else from the file named in RAY_AUTH_TOKEN_PATH, or else from
~/.ray/auth_token. Anyone with the token can run any code on every node.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...errors import FleetUnavailable

MODE: Final = "RAY_AUTH_MODE"
TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
_BY_TOKEN: Final = "token"  # noqa: S105 - Ray's name for this mode
_TOKEN_BYTES: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def token_file(around: Mapping[str, str]) -> Path:
    """Return the file in which Ray looks for a token if RAY_AUTH_TOKEN is not set."""
    named = around.get(TOKEN_PATH)
    return Path(named) if named else Path(around.get("HOME") or Path.home()) / ".ray" / "auth_token"


def read_token(around: Mapping[str, str]) -> str:
    """Return the token that Ray would find; "" if there is no token."""
    if given := around.get(TOKEN, "").strip():
        return given
    try:
        return token_file(around).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def sign_in(around: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that makes a program present its token; {} without a token, or if RAY_AUTH_MODE is set."""
    return {MODE: _BY_TOKEN} if MODE not in around and read_token(around) else {}


def lacks_token(around: Mapping[str, str]) -> bool:
    """Return whether RAY_AUTH_MODE requires a token, but there is none."""
    return around.get(MODE, "").lower() == _BY_TOKEN and not read_token(around)


def make_token(around: Mapping[str, str]) -> Path:
    """Write a new token where Ray looks for it, readable only by this user; return the file.

    Raises FleetUnavailable if the file cannot be written.
    """
    file = token_file(around)
    begun = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as content:
            content.write(secrets.token_hex(_TOKEN_BYTES))
        begun.replace(file)
    except OSError as error:
        with suppress(OSError):
            begun.unlink()
        message = f"the cluster's token cannot be written to {file}: {error.strerror}"
        raise FleetUnavailable(message, f"Set {TOKEN_PATH} to a file that you can write, or set {TOKEN}.") from None
    return file


def close_to_others(around: Mapping[str, str]) -> bool:
    """Make this user's token file unreadable for other users; return whether they could read it before."""
    if around.get(TOKEN, "").strip():
        return False
    with suppress(OSError):  # the file may be missing, or on a read-only mount
        file = token_file(around)
        found = file.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            file.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
            return True
    return False
