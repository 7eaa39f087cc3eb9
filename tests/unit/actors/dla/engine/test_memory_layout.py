"""The layout of tensors and tasks in memory."""

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.dla.engine.tasks import TASK, DlaModule, DlaTask, Registration, TaskMemory
from codecfleet.actors.dla.engine.tensors import (
    TENSOR_DESCRIPTOR,
    DataCategory,
    DataFormat,
    DataType,
    PixelFormat,
    PixelMapping,
    TensorDescriptor,
)
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.errors import Unsupported

TYPES = [kind for kind in DataType if kind is not DataType.UNKNOWN]


def descriptor(**changes: Any) -> TensorDescriptor:
    """Return a descriptor, changed."""
    values: dict[str, Any] = {
        "name": "x",
        "size_bytes": 1 << 20,
        "n": 1,
        "c": 3,
        "h": 4,
        "w": 5,
        "data_format": DataFormat.NCHW,
        "data_type": DataType.FLOAT,
        "data_category": DataCategory.FEATURE,
        "pixel_format": PixelFormat.FEATURE,
        "pixel_mapping": PixelMapping.PITCH_LINEAR,
    }
    return TensorDescriptor(**values | changes)


@st.composite
def described(draw: st.DrawFn) -> TensorDescriptor:
    """Draw a tensor of any shape, type and order, with or without its own strides."""
    n, c, h, w = (draw(st.integers(1, most)) for most in (3, 40, 6, 6))
    data_format = draw(st.sampled_from([DataFormat.NCHW, DataFormat.NHWC, DataFormat.NCxHWx]))
    data_type = draw(st.sampled_from(TYPES))
    element = data_type.dtype.itemsize
    pixel = {DataFormat.NCHW: element, DataFormat.NHWC: c * element, DataFormat.NCxHWx: 32}[data_format]
    row = w * pixel + draw(st.sampled_from([0, 32, 64]))
    strides = (pixel, row, 0, 0, 0, 0, 0, 0) if draw(st.booleans()) else (0,) * 8
    return descriptor(n=n, c=c, h=h, w=w, data_format=data_format, data_type=data_type, strides_bytes=strides)


@given(described(), st.integers(0, 2**32 - 1))
def test_what_is_packed_is_unpacked(tensor: TensorDescriptor, seed: int) -> None:
    """Every element is unpacked as it was packed, in every order and with any padding."""
    values = np.random.default_rng(seed).integers(0, 100, tensor.shape).astype(tensor.data_type.dtype)
    memory = pack(tensor, values)
    assert memory.nbytes == tensor.size_bytes
    np.testing.assert_array_equal(unpack(tensor, memory), values)


def test_the_orders_are_those_of_their_names() -> None:
    """NCHW is stored plane by plane, NHWC pixel by pixel, NCxHWx in planes with 32 bytes per pixel."""
    values = np.arange(2 * 1 * 2, dtype=np.uint8).reshape(1, 2, 1, 2)
    small = {"c": 2, "h": 1, "w": 2, "data_type": DataType.UINT8}
    orders = {order: pack(descriptor(**small, data_format=order), values) for order in list(DataFormat)[1:]}
    assert orders[DataFormat.NCHW][:4].tolist() == [0, 1, 2, 3]
    assert orders[DataFormat.NHWC][:4].tolist() == [0, 2, 1, 3]
    assert np.flatnonzero(orders[DataFormat.NCxHWx]).tolist() == [1, 32, 33]


@pytest.mark.parametrize(
    ("data_format", "strides", "places"),
    [
        (DataFormat.NCHW, (2, 100, 1000, 5000), [0, 2, 100, 102, 1000, 1002, 1100, 1102]),
        (DataFormat.NHWC, (8, 100, 1, 5000), [0, 8, 100, 108, 1, 9, 101, 109]),
        (DataFormat.NCxHWx, (0, 100, 1000, 5000), [0, 32, 100, 132, 1, 33, 101, 133]),
    ],
)
def test_strides_are_followed(data_format: DataFormat, strides: tuple[int, ...], places: list[int]) -> None:
    """Elements are placed by the loadable's strides; the fourth stride is the distance of pictures."""
    tensor = descriptor(
        n=2, c=2, h=2, w=2, data_type=DataType.UINT8, data_format=data_format, strides_bytes=(*strides, 0, 0, 0, 0)
    )
    memory = pack(tensor, np.arange(1, 17, dtype=np.uint8).reshape(2, 2, 2, 2))
    assert [int(memory[place]) for place in places] == list(range(1, 9))
    assert [int(memory[5000 + place]) for place in places] == list(range(9, 17))


@pytest.mark.parametrize(
    "changes",
    [
        {"pixel_mapping": PixelMapping.BLOCK_LINEAR},
        {"data_format": DataFormat.UNKNOWN},
        {"data_type": DataType.UNKNOWN},
        {"size_bytes": 3 * 4 * 5 * 4 - 1},
        {"strides_bytes": (4, 20, 80, 1 << 21, 0, 0, 0, 0), "n": 2},
        {"c": 0},
    ],
)
def test_what_cannot_be_laid_out_is_refused(changes: dict[str, Any]) -> None:
    """Block-linear, unknown or too large tensors are ``Unsupported``; nothing is written outside the memory."""
    with pytest.raises(Unsupported):
        unpack(descriptor(**changes), np.zeros(1 << 20, dtype=np.uint8))


def test_descriptors_survive_the_way_through_memory() -> None:
    """A descriptor that cuDLA would write is read back unchanged; numbers of a newer cuDLA become UNKNOWN."""
    tensor = descriptor(name="a tensor", strides_bytes=(1, 2, 3, 4, 5, 6, 7, 8))
    record = np.frombuffer(tensor.to_bytes(), dtype=TENSOR_DESCRIPTOR).copy()
    assert TensorDescriptor.from_record(record[0]) == tensor
    record["data_type"], record["data_format"], record["pixel_format"] = 99, 99, 99
    newer = TensorDescriptor.from_record(record[0])
    assert (newer.data_type.name, newer.data_format.name, newer.pixel_format.name) == ("UNKNOWN",) * 3
    record["data_category"] = 99
    with pytest.raises(Unsupported, match="in an unknown way"):
        TensorDescriptor.from_record(record[0])


def test_structures_lie_as_in_nvidia_s_binding() -> None:
    """Sizes and offsets are those of cuda.bindings.cudla, if it is installed."""
    cudla = pytest.importorskip("cuda.bindings.cudla")
    for ours, theirs in (
        (TASK, cudla.task_dtype),
        (TENSOR_DESCRIPTOR, cudla.module_tensor_descriptor_dtype),
    ):
        assert ours.itemsize == theirs.itemsize
        assert sorted(offset for _, offset in ours.fields.values()) == sorted(  # type: ignore[union-attr]
            offset for _, offset in theirs.fields.values()
        )


def test_statuses_are_those_of_nvidia_s_binding() -> None:
    """Our names of cuDLA's status codes cover all codes of the binding, with the same numbers."""
    cudla = pytest.importorskip("cuda.bindings.cudla")
    from codecfleet.actors.dla.engine.statuses import CudlaStatus

    assert {int(status) for status in cudla.Status} == {int(status) for status in CudlaStatus}


def test_a_task_holds_all_that_it_points_to() -> None:
    """C code finds the tensors at the task's pointers, the statistics after the outputs, and no events."""
    tensor = descriptor()
    module = DlaModule(7, (tensor,), (tensor,), (tensor,))
    places = [Registration(memory=1, size_bytes=1, dla_address=address) for address in (11, 22, 33)]
    task = DlaTask(
        module=module,
        inputs=(places[0],),
        outputs=(places[1],),
        statistics=(places[2],),
    )
    memory = TaskMemory([DlaTask(module=module, inputs=(), outputs=()), task])
    empty, record = np.frombuffer(ctypes.string_at(memory.address, 2 * TASK.itemsize), dtype=TASK)
    assert (empty["input_tensors"], empty["output_tensors"]) == (0, 0)
    assert (record["wait_events"], record["signal_events"]) == (0, 0)
    assert (record["module_handle"], record["input_tensor_count"], record["output_tensor_count"]) == (7, 1, 2)
    assert _numbers(record["input_tensors"], 1) == [11]
    assert _numbers(record["output_tensors"], 2) == [22, 33]


def _numbers(address: int, count: int) -> list[int]:
    return np.frombuffer(ctypes.string_at(int(address), 8 * count), dtype="<u8").tolist()
