"""An fsspec filesystem of shipped files: ``codecfleet-ship://HOST:PORT/READER/path``.

HOST:PORT is the address of Ray's control service, and READER is the name of the actor that reads the file. Ray carries
the bytes, so its token and its TLS also protect them.
"""

import os
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from ..ray.public.actors import NoSuchActor, answer_of, join_from_child, named_actor
from ..ray.ray_failures import cause_of

PROTOCOL: Final = "codecfleet-ship"
ANSWER_S: Final = 30
"""How long an answer of up to 2 MiB may take."""


def shipped_url(address: str, path: str) -> str:
    """Return the URL of an absolute ``path`` for the reader at ``address`` (HOST:PORT/READER)."""
    return f"{PROTOCOL}://{address}{quote(os.fsencode(path))}"


def register() -> None:
    """Register the filesystem of shipped files with fsspec. Idempotent."""
    fsspec.register_implementation(PROTOCOL, ShippedFiles, clobber=True)


class ShippedFiles(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """Files of other machines. Raises the OSErrors of the reader and the errors of Ray."""

    protocol = PROTOCOL
    cachable = False

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return the size of a file, and its version under ``mtime``."""
        size_bytes, version = self.ask("info", path)
        return {"name": path, "type": "file", "size": size_bytes, "mtime": version}

    def ask(self, method: str, path: str, *arguments: int) -> Any:
        """Return the answer of a file's reader."""
        host, name, quoted = self._strip_protocol(path).split("/", 2)
        return self.answer(f"{host}/{name}", method, os.fsdecode(unquote_to_bytes("/" + quoted)), *arguments)

    def answer(self, address: str, method: str, file: str, *arguments: int) -> Any:
        """Return the answer of the reader at ``address``."""
        cluster, _, name = address.partition("/")
        join_from_child(cluster)
        try:
            reader = named_actor(name)
        except NoSuchActor:
            raise ConnectionError(f"{name}, which reads files for other machines, has ended") from None
        try:
            return answer_of(getattr(reader, method).remote(file, *arguments), ANSWER_S)
        except Exception as error:
            if isinstance(cause := cause_of(error), OSError):
                raise cause from None
            raise

    def _open(self, path: str, mode: str = "rb", *_: object, **__: object) -> "_ShippedFile":
        return _ShippedFile(self, path, mode, cache_type="none")


class _ShippedFile(AbstractBufferedFile):  # type: ignore[misc] # fsspec has no types
    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs.ask("read", self.path, start, end - start))
