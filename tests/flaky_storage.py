"""A store that fails on command: an fsspec filesystem in memory, under ``flaky://``."""

import io
from collections import deque
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class FlakyFileSystem(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """Files in this process's memory, with faults to inject: one per call, in order, then none."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    on_read: ClassVar[deque[Exception | int | None]] = deque()  # an error, the most bytes to return, or None: no fault
    on_write: ClassVar[deque[Exception | None]] = deque()  # an error, or None for no fault
    reads: ClassVar[int] = 0  # the number of reads
    writes: ClassVar[int] = 0  # the number of uploaded files

    @classmethod
    def start_over(cls) -> None:
        """Remove all files and faults."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.on_read.clear()
        cls.on_write.clear()
        cls.reads = cls.writes = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("flaky:").lstrip("/")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file; reads get the injected faults."""
        if mode == "rb" and not self.exists(path):
            raise FileNotFoundError(path)
        if mode == "rb":
            return _FlakyFile(self.cat_file(path))
        return super().open(path, mode, **options)

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        """Upload a file, unless a fault is due."""
        type(self).writes += 1
        if (trouble := self.on_write.popleft() if self.on_write else None) is not None:
            raise trouble
        super().put_file(lpath, rpath, **options)


class _FlakyFile(io.BytesIO):
    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.size = len(content)

    def read(self, size: int | None = -1) -> bytes:
        FlakyFileSystem.reads += 1
        trouble = FlakyFileSystem.on_read.popleft() if FlakyFileSystem.on_read else None
        if isinstance(trouble, Exception):
            raise trouble
        return super().read(size if trouble is None else trouble)


fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
