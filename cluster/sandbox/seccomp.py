"""seccomp: a process gives up calls of the kernel that no job on local files needs, for itself and what it starts.

Sources: linux/seccomp.h, linux/filter.h, linux/audit.h, and each architecture's table of calls.
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Final

_CALLS: Final = {
    # Sockets. A pair of connected ones, on which our own processes speak, is another call.
    "socket": (41, 198),
    # They open sockets and files past this filter, or reach into other processes.
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    # Parts of the kernel in which its defects were.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Other views of the machine.
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
}
"""The numbers of the calls that are refused, on x86_64 and aarch64."""
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The place of a machine's numbers, and its name in linux/audit.h."""
_SECOND_ABI: Final = 1 << 30
"""Numbers from here on are those of x32."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""BPF: load a word, compare with a constant, end."""
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EACCES
_SET_MODE_FILTER, _TSYNC = 1, 1
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}


def has_seccomp() -> bool:
    """Return whether calls can be refused here."""
    return platform.machine() in _ARCHITECTURES and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")  # noqa: PTH110


def refuse_calls() -> None:
    """Refuse the calls of ``_CALLS`` to all threads of this process, which can gain no rights.

    Raises:
        OSError: the kernel has no filters, or another architecture runs here.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of calls for {machine}")
    place, architecture = _ARCHITECTURES[machine]
    program = filter_program(architecture, sorted(numbers[place] for numbers in _CALLS.values()))
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    call = ctypes.CDLL(None, use_errno=True).syscall
    failed = call(ctypes.c_long(_SECCOMP[machine]), ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_TSYNC), described)
    if failed:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of calls")


def filter_program(architecture: int, numbers: list[int]) -> bytes:
    """Return a BPF program that refuses these calls, and all of other architectures."""
    checks = [(_EQUAL, number) for number in numbers] + [(_AT_LEAST, _SECOND_ABI)]
    refuse = len(checks)  # how far behind the first check the instruction that refuses is, less the one that allows
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *((kind, refuse - place, 0, value) for place, (kind, value) in enumerate(checks)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
