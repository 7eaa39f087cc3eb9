"""The errors of PyNvVideoCodec's encoder become our errors."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.nvenc.errors import EncoderEvidence, nvenc_error
from codecfleet.errors import (
    CodecfleetError,
    DeviceError,
    DeviceLost,
    DeviceMemory,
    EngineFailed,
    EngineHung,
    EngineUnfit,
    SessionLimit,
)

MEBIBYTE = 1 << 20
OPENING = EncoderEvidence(opening=True, own_sessions=0, needed_bytes=100 * MEBIBYTE, free_bytes=1000 * MEBIBYTE)
RUNNING = EncoderEvidence(opening=False, own_sessions=1, needed_bytes=100 * MEBIBYTE, free_bytes=1000 * MEBIBYTE)


def encoder_says(code: int) -> Exception:
    """Return an exception in PyNvVideoCodec's words for an NVENCSTATUS."""
    return RuntimeError(
        f"NvEncoder : m_nvenc.nvEncOpenEncodeSessionEx(&encodeSessionExParams, &hEncoder) returned error {code}\n"
        f"Error code : {code}\nError Type : NV_ENC_ERR\nat NvEncoder_130.cpp:95"
    )


def cuda_says(code: int) -> Exception:
    """Return an exception in PyNvVideoCodec's words for a CUresult."""
    return RuntimeError(f"CUDA driver API error at line 12\nError code : {code}")


@pytest.mark.parametrize(
    ("code", "evidence", "kind"),
    [
        (1, OPENING, EngineUnfit),
        (2, OPENING, EngineUnfit),
        (3, RUNNING, DeviceLost),
        (5, RUNNING, DeviceLost),
        (8, OPENING, EngineUnfit),
        (8, RUNNING, EngineFailed),
        (12, OPENING, EngineUnfit),
        (15, OPENING, EngineUnfit),
        (18, RUNNING, EngineFailed),
        (20, RUNNING, EngineFailed),
        (10, RUNNING, DeviceMemory),  # the session is already open, so the session limit is not the reason
        (21, OPENING, EngineUnfit),
        (21, replace(OPENING, own_sessions=3), SessionLimit),  # the words of some drivers for a session above the limit
        (21, RUNNING, EngineFailed),
        (22, OPENING, EngineUnfit),
    ],
)
def test_an_encoder_status_has_one_meaning(code: int, evidence: EncoderEvidence, kind: type[CodecfleetError]) -> None:
    """Each status of the encoder becomes one of our errors, depending on when it came."""
    error = nvenc_error(encoder_says(code), evidence)
    assert type(error) is kind
    assert str(code) in error.message


@pytest.mark.parametrize(
    ("code", "kind"), [(2, DeviceMemory), (700, DeviceLost), (702, EngineHung), (999, DeviceLost), (1, EngineFailed)]
)
def test_a_cuda_result_is_not_read_as_an_encoder_status(code: int, kind: type[CodecfleetError]) -> None:
    """Number 2 is "out of memory" from CUDA, and "no encoder" from NVENC."""
    assert type(nvenc_error(cuda_says(code), RUNNING)) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("OUT_OF_MEMORY", DeviceMemory),
        ("LAUNCH_TIMEOUT", EngineHung),
        ("ILLEGAL_ADDRESS", DeviceLost),
        ("UNKNOWN", DeviceLost),
        ("INVALID_CONTEXT", DeviceLost),
        ("NOT_SUPPORTED", EngineUnfit),
        ("PEER_ACCESS_UNSUPPORTED", EngineFailed),
        ("INVALID_VALUE", EngineFailed),
    ],
)
def test_cudas_own_name_says_more_than_the_status(name: str, kind: type[CodecfleetError]) -> None:
    """A fault of CUDA under the encoder is always status 20; CUDA's name tells lack of memory from a lost device."""
    text = f"AllocateInputBuffers : Error code : 20 Error Type : CUDA driver API error CUDA_ERROR_{name} at NvEncoder"
    assert type(nvenc_error(RuntimeError(text), RUNNING)) is kind


@pytest.mark.parametrize(
    ("free", "own", "kind"),
    [
        (1000 * MEBIBYTE, 0, SessionLimit),
        (1000 * MEBIBYTE, 3, SessionLimit),
        (99 * MEBIBYTE, 3, DeviceMemory),
        (None, 0, DeviceMemory),
        (None, 2, SessionLimit),
    ],
)
def test_a_session_too_many_is_told_from_too_little_memory(
    free: int | None, own: int, kind: type[CodecfleetError]
) -> None:
    """Status 10 has two meanings: the free memory decides, or if it is unknown, whether this process has encoders."""
    evidence = EncoderEvidence(opening=True, own_sessions=own, needed_bytes=100 * MEBIBYTE, free_bytes=free)
    error = nvenc_error(encoder_says(10), evidence)
    assert type(error) is kind
    assert f"{own} encoders of this process are open" in error.message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Current Driver Version does not support this NvEncodeAPI version, please upgrade driver", EngineUnfit),
        ("YUV444 format isn't supported by AV1 encoder", EngineUnfit),
    ],
)
def test_words_without_a_number_are_read_too(text: str, kind: type[CodecfleetError]) -> None:
    """Refusals of the package without a number are understood too."""
    assert type(nvenc_error(RuntimeError(text), OPENING)) is kind
    assert isinstance(nvenc_error(RuntimeError("general error"), RUNNING), EngineFailed)


@given(st.text(), st.integers(0, 2000), st.booleans())
def test_every_fault_becomes_one_of_ours_and_pickles(text: str, code: int, opening: bool) -> None:  # noqa: FBT001
    """Any fault becomes one of our errors, which can be pickled."""
    evidence = EncoderEvidence(opening=opening, own_sessions=0, needed_bytes=1)
    error = nvenc_error(RuntimeError(f"{text} returned error {code}"), evidence)
    assert isinstance(error, DeviceError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - just pickled
    assert (type(again), again.message, again.next_step) == (type(error), error.message, error.next_step)
