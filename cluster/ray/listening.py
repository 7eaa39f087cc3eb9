"""The TCP addresses on which processes listen, from /proc."""

import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from .orphan_reaper import open_files

_LISTEN = "0A"
"""TCP_LISTEN of linux/net/tcp_states.h, as proc_pid_net(5) prints it."""


def listening_addresses(processes: Iterable[int]) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses on which any of ``processes`` listens, without those that have ended."""
    sockets = {str(file) for process in processes for file in open_files(process)}
    return frozenset(
        address
        for table in ("tcp", "tcp6")
        for address, inode in _listeners(Path("/proc/net") / table)
        if f"socket:[{inode}]" in sockets
    )


def _listeners(table: Path) -> list[tuple[IPv4Address | IPv6Address, str]]:
    """Return address and inode of each listening socket of a table; a machine without IPv6 has no second table."""
    with suppress(OSError):
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        return [(_address(row[1].partition(":")[0]), row[9]) for row in rows if row[3] == _LISTEN]
    return []


def _address(text: str) -> IPv4Address | IPv6Address:
    """Read an address that the kernel printed as 32-bit words of its own byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    found = ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
