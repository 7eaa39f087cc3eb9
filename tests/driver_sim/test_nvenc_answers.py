"""What the simulated NVENC refuses, how its faults look through the real package, and what its interface answers."""

import dataclasses
import json
from importlib.util import find_spec
from typing import Any

import pytest

from .nvenc_pictures import decoded, psnr_db, unpacked
from .nvenc_programs import PRELUDE, WORKSTATION, lines
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import run_simulated

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")


@pytest.mark.parametrize(("driver", "variant"), [("535.183.01", "_121."), ("580.95.05", "_130.")])
def test_the_driver_decides_which_interface_is_used(driver: str, variant: str) -> None:
    """The package loads the variant for the driver's interface, and both encode 10 bits as 10 bits."""
    program = """
import numpy as np
print([line for line in open("/proc/self/maps") if "PyNvVideoCodec_1" in line][0].split("/")[-1])
pictures = ((nv12(n).astype(np.uint16) << 8).view(np.uint8) for n in range(4))
print(packed(encoded(encoder("hevc", "P010"), pictures)))
"""
    found = lines(program, dataclasses.replace(WORKSTATION, driver=driver))

    assert variant in found[0]
    assert [frame.format.name for frame in decoded("hevc", unpacked(found[-1]))] == ["yuv420p10le"] * 4


def test_an_old_driver_is_refused_by_the_package() -> None:
    """A driver whose interface is older than the package knows is told apart at import."""
    result = run_simulated("import PyNvVideoCodec", dataclasses.replace(WORKSTATION, driver="525.60.13"))

    assert result.exit_code == 1
    assert "too old" in result.stderr


REFUSAL = """
try:
    kept = [encoder() for _ in range(int(sys.argv[1]))]
except nvc.PyNvVCException as error:
    print("refused", len(str(error)) and str(error).replace("\\n", " "))
else:
    print("granted")
"""


def test_a_device_without_an_encoder_says_so() -> None:
    """Opening an encoder on a GPU that has none fails with the status of an unsupported device."""
    (told,) = lines(REFUSAL, Scenario(machine=machine("h200-l40s", "h200")), "1")

    assert "nvEncOpenEncodeSessionEx" in told
    assert "returned error 2" in told


def test_no_more_sessions_than_the_driver_allows() -> None:
    """The package's transient session counts too: with a limit of two, one encoder is granted and a second is not."""
    whole = WORKSTATION.machine
    limited = tuple(dataclasses.replace(each, encoder_sessions_max=2) for each in whole.devices)
    scenario = Scenario(machine=dataclasses.replace(whole, devices=limited))

    (one,) = lines(REFUSAL, scenario, "1")
    (three,) = lines(REFUSAL, scenario, "3")

    assert one == "granted"
    assert "returned error 10" in three


def broken(*faults: Fault) -> Scenario:
    """Return the workstation with something wrong on it."""
    return dataclasses.replace(WORKSTATION, faults=faults)


ATTEMPTS = """
session = encoder(bf=0)
for n in range(8):
    try:
        session.Encode(nv12(n))
    except nvc.PyNvVCException as error:
        print(n, str(error).split("Error code :")[1].split()[0])
"""


def test_a_fault_with_a_status_is_an_error_of_that_status() -> None:
    """The N-th picture fails with the scenario's status, and the next because the package left its surface mapped."""
    fault = Fault(function="NvEncEncodePicture", action=Action.STATUS, value=18, call=3)

    told = lines(ATTEMPTS, broken(fault))

    assert told[:2] == ["2 18", "3 16"]


def test_a_lost_device_stays_lost() -> None:
    """From the call that loses the GPU on, every picture is refused."""
    fault = Fault(function="NvEncEncodePicture", action=Action.LOSE, call=3)

    result = run_simulated(PRELUDE + ATTEMPTS, broken(fault))

    assert result.stdout.splitlines()[:6] == [f"{picture} 20" for picture in range(2, 8)]


def test_a_fault_can_end_the_process() -> None:
    """The process ends with the exit code of the scenario, as a driver that crashes would end it."""
    fault = Fault(function="NvEncLockBitstream", action=Action.EXIT, value=41, call=1)

    assert run_simulated(PRELUDE + ATTEMPTS, broken(fault)).exit_code == 41


def test_a_fault_can_hang() -> None:
    """A call that hangs never returns, and only a kill ends the process."""
    fault = Fault(function="NvEncEncodePicture", action=Action.HANG, call=2)

    result = run_simulated(PRELUDE + ATTEMPTS, broken(fault), timeout_s=4)

    assert result.exit_code is None
    assert len(result.calls("NvEncEncodePicture")) == 2


def test_a_short_bitstream_is_cut_in_one_packet() -> None:
    """The packet that the fault meets is cut to a half, and the others are as without it."""
    program = "print(packed(encoded(encoder(bf=0), map(nv12, range(8)))))"
    fault = Fault(function="NvEncEncodePicture", action=Action.SHORT, call=4)

    (whole,) = lines(program)
    (cut,) = lines(program, broken(fault))

    pairs = zip(unpacked(whole), unpacked(cut), strict=True)
    sizes = [(len(left["data"]), len(right["data"])) for left, right in pairs]
    assert [right / left for left, right in sizes[:3] + sizes[4:]] == [1] * 7
    assert sizes[3][1] == sizes[3][0] // 2


CLIENT = """
import ctypes, struct
library, cuda = ctypes.CDLL("libnvidia-encode.so.1"), ctypes.CDLL("libcuda.so.1")
def version(number, major=13, top=0):
    return major | number << 16 | 7 << 28 | top << 31
def structure(size, *fields):
    made = ctypes.create_string_buffer(size)
    for offset, layout, value in fields:
        struct.pack_into(layout, made, offset, value)
    return made
def call(slot, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(arguments))(table[slot])(*arguments)
table = (ctypes.c_uint64 * 320)(version(2))
"""


def test_a_client_of_its_own_is_answered_by_the_interface() -> None:
    """The function table has no hole; wrong versions, keys, devices and orders of calls get the interface's answers."""
    program = """
print(library.NvEncodeAPICreateInstance(table), [n for n in range(1, 44) if table[n] == 0])
print(library.NvEncodeAPICreateInstance((ctypes.c_uint64 * 320)(version(2, major=14))))
context, session = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
def opened(of=version(1), kind=1, device=context.value, key=0, interface=13):
    params = structure(1552, (0, "I", of), (4, "I", kind), (8, "Q", device), (16, "Q", key), (24, "I", interface))
    return call(30, ctypes.addressof(params), ctypes.addressof(session))
print(opened(of=version(1, major=14)), opened(interface=14), opened(kind=0), opened(device=0), opened(key=1), opened())
picture = structure(3344, (0, "I", version(7, top=1)))
print(call(17, session, ctypes.addressof(picture)), call(29, session, 0), call(29, 4096, 0), call(29, None, 0))
print(call(28, session), call(28, session))
"""
    told = lines(CLIENT + program)

    assert told[0] == "0 [34]"  # a slot that the interface reserves
    assert told[1] == "15"
    assert told[2] == "15 15 2 4 21 0"
    assert told[3] == "11 22 3 6"  # not initialized, not implemented, no such session, no session at all
    assert told[4] == "0 3"


def test_buffers_of_the_library_take_pictures() -> None:
    """A client that has the library make its buffers, and sets no configuration, gets the preset's stream."""
    program = """
library.NvEncodeAPICreateInstance(table)
context, session = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
opening = structure(1552, (0, "I", version(1)), (4, "I", 1), (8, "Q", context.value), (24, "I", 13))
assert call(30, ctypes.addressof(opening), ctypes.addressof(session)) == 0
def made(slot, *arguments):
    answer = call(slot, session, *[ctypes.addressof(each) for each in arguments])
    assert answer == 0, (slot, answer)
    return arguments[0]
h264 = struct.pack("<IHH", 0x6BC82762, 0x4E63, 0x4CA4) + bytes.fromhex("aa851e50f321f6bf")
first = struct.pack("<IHH", 0xFC0A8D3E, 0x45F8, 0x4CF8) + bytes.fromhex("80c7298871590ebf")
sizes = [(36, "I", WIDTH), (40, "I", HEIGHT), (52, "I", 25), (56, "I", 1), (64, "I", 1), (136, "I", 2)]
made(12, structure(1800, (0, "I", version(7, top=1)), (4, "16s", h264), (20, "16s", first), *sizes))
surface = made(13, structure(776, (0, "I", version(1)), (4, "I", WIDTH), (8, "I", HEIGHT), (16, "I", 1)))
surface = struct.unpack_from("Q", surface, 24)[0]
bitstream = struct.unpack_from("Q", made(15, structure(776, (0, "I", version(1)))), 16)[0]
packets = []
for n in range(4):
    locked = made(20, structure(1544, (0, "I", version(1)), (8, "Q", surface)))
    assert call(20, session, ctypes.addressof(locked)) == 8  # it is locked already
    address, pitch = struct.unpack_from("QI", locked, 16)
    for row, samples in enumerate(nv12(n)):
        ctypes.memmove(address + row * pitch, samples.ctypes.data, WIDTH)
    call(21, session, surface)
    given = [(24, "Q", 100 + n), (40, "Q", surface), (48, "Q", bitstream)]
    made(17, structure(3344, (0, "I", version(7, top=1)), *given))
    told = made(18, structure(1544, (0, "I", version(2, top=1)), (8, "Q", bitstream)))
    (size,), (stamp,) = struct.unpack_from("I", told, 36), struct.unpack_from("Q", told, 40)
    data, kind = struct.unpack_from("QI", told, 56)
    packets.append({"data": ctypes.string_at(data, size), "timestamp": stamp, "picture_type": kind})
    assert call(19, session, bitstream) == 0
print(packed(packets))
print(call(28, session))
"""
    text, destroyed = lines(CLIENT + program)

    packets = unpacked(text)

    assert [packet["timestamp"] for packet in packets] == [100, 101, 102, 103]
    assert [packet["picture_type"] for packet in packets] == [3, 0, 0, 0]
    assert all(psnr_db(frame, index) > 35 for index, frame in enumerate(decoded("h264", packets)))
    assert destroyed == "0"


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"bf": 6}, 8),
        ({"rc": "constqp", "constqp": 60}, 8),
        ({"rc": "vbr", "bitrate": 2_000_000, "maxbitrate": 1_000_000}, 8),
        ({"tuning_info": "uhq"}, 12),
        ({"s": "64x32"}, 8),
    ],
)
def test_settings_beyond_the_hardware_are_refused(settings: dict[str, Any], status: int) -> None:
    """What the hardware cannot do fails at initialisation, with the status that the interface has for it."""
    program = """
try:
    encoder(**json.loads(sys.argv[1]))
except nvc.PyNvVCException as error:
    print(str(error).replace("\\n", " "))
"""
    (told,) = lines(program, WORKSTATION, json.dumps(settings))

    assert f"nvEncInitializeEncoder(m_hEncoder, &m_initializeParams) returned error {status}" in told
