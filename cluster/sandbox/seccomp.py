"""seccomp: a process, with its children, gives up the system calls that no job on local files needs.

Sources: linux/seccomp.h, linux/filter.h, linux/audit.h, and the table of calls of each architecture.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_CALLS: Final = {
    # Calls that make sockets. Codecfleet's processes use connected pairs, which another call makes.
    "socket": (41, 198),
    # Calls that open sockets and files despite this filter, or that reach into other processes.
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    # Parts of the kernel that have had many vulnerabilities.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Mounts and namespaces.
    "mount": (165, 40),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "unshare": (272, 97),
    "setns": (308, 268),
}
"""The numbers of the refused calls on x86_64 and aarch64."""
_CLONE3: Final = 435
"""A filter cannot see the flags of clone3, so the call is reported as missing; the C library then uses clone."""
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The position of each architecture's numbers in ``_CALLS``, and the architecture's number in linux/audit.h."""
_SECOND_ABI: Final = 1 << 30  #: The lowest number of a call in the x32 ABI

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of BPF: load a word, three comparisons with a constant, return."""
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
#: The offsets of the lower halves of arguments, which both architectures store first
_FIRST_ARGUMENT, _SECOND_ARGUMENT = 16, 24
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EACCES
_MISSING: Final = 0x00050000 | errno.ENOSYS


class RefusedCall(NamedTuple):
    """A call that is refused if the word at ``offset`` passes one of ``tests``, which are (kind, constant) pairs."""

    number: int
    offset: int
    tests: tuple[tuple[int, int], ...]


_BY_ARGUMENT: Final[Mapping[str, tuple[tuple[int, int], int, tuple[tuple[int, int], ...]]]] = {
    # The CLONE_NEW* flags for namespaces: in a new namespace, a process may have all rights.
    "clone": ((56, 220), _FIRST_ARGUMENT, ((_HAS_BITS, 0x7E020000),)),
    # TIOCSTI and TIOCLINUX insert input into the terminal of the command.
    "ioctl": ((16, 29), _SECOND_ARGUMENT, ((_EQUAL, 0x5412), (_EQUAL, 0x541C))),
    # prlimit64 can set limits of other processes; the kernel kills a process that exceeds a limit on CPU time.
    "prlimit64": ((302, 261), _FIRST_ARGUMENT, ((_AT_LEAST, 1),)),
}
_SET_MODE_FILTER, _TSYNC = 1, 1
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}


def has_seccomp() -> bool:
    """Return whether system calls can be refused on this machine."""
    return platform.machine() in _ARCHITECTURES and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def refuse_calls() -> None:
    """Refuse ``_CALLS``, clone3, and the uses in ``_BY_ARGUMENT`` to all threads of this process, for good.

    Raises OSError if the kernel cannot do this.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"codecfleet has no table of system calls for {machine}")
    place, architecture = _ARCHITECTURES[machine]
    by_argument = [RefusedCall(numbers[place], offset, tests) for numbers, offset, tests in _BY_ARGUMENT.values()]
    program = filter_program(
        architecture, sorted(numbers[place] for numbers in _CALLS.values()), by_argument, [_CLONE3]
    )
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    call = ctypes.CDLL(None, use_errno=True).syscall
    failed = call(ctypes.c_long(_SECCOMP[machine]), ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_TSYNC), described)
    if failed:
        raise OSError(ctypes.get_errno(), "the kernel refuses a filter of system calls")


def filter_program(
    architecture: int, numbers: Sequence[int], by_argument: Sequence[RefusedCall], missing: Sequence[int]
) -> bytes:
    """Return a BPF program that refuses these calls and all other architectures, and reports ``missing`` as ENOSYS."""
    # each step: (kind, the ending to jump to if true, how many steps to skip if false, constant)
    checks = [(_EQUAL, _REFUSE, 0, number) for number in numbers] + [(_AT_LEAST, _REFUSE, 0, _SECOND_ABI)]
    checks += [(_EQUAL, _MISSING, 0, number) for number in missing]
    for number, offset, tests in by_argument:
        checks += [(_EQUAL, 0, len(tests) + 2, number), (_LOAD, 0, 0, offset)]
        checks += [*((kind, _REFUSE, 0, constant) for kind, constant in tests), (_LOAD, 0, 0, _NUMBER_OFFSET)]
    ends = (_ALLOW, _REFUSE, _MISSING)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *(
            (kind, len(checks) - place - 1 + ends.index(end) if end else 0, others, constant)
            for place, (kind, end, others, constant) in enumerate(checks)
        ),
        *((_RETURN, 0, 0, end) for end in ends),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
