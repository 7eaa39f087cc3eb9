"""This code, as a job takes it to a cluster whose machines lack it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).absolute().parents[2]


@contextmanager
def copied_package() -> Iterator[Path]:
    """Yield a folder ``codecfleet`` with this code and nothing else.

    Ray names what it ships by its content, and only what is not there yet is sent: so no compiled files, which differ
    from run to run. A wheel would be named by its version, and the code of a changed checkout would not be sent again.
    """
    with tempfile.TemporaryDirectory(prefix="codecfleet-") as folder:
        copy = Path(folder) / "codecfleet"
        # Links are followed: in a checkout our rooms are links.
        shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        yield copy
