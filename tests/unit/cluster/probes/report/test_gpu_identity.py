"""The names of GPUs and slices, and which of them CUDA_VISIBLE_DEVICES shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.gpu_identity import NamedGpu, NamedSlice, ShownGpus, on_node, unit_given

CUT = NamedGpu(
    index=1,
    uuid="GPU-bbbb-1",
    bus_id="00000000:02:00.0",
    is_cut=True,
    slices=(NamedSlice("MIG-1111", 1, 0), NamedSlice("MIG-1122", 1, 1), NamedSlice("MIG-2222", 5, 0)),
)
GPUS = (
    NamedGpu(index=0, uuid="GPU-aaaa-0", bus_id="00000000:01:00.0"),
    CUT,
    NamedGpu(index=2, uuid="GPU-cccc-2", bus_id="00000000:03:00.0"),
)
SLICES = ("MIG-1111", "MIG-1122", "MIG-2222")


@pytest.mark.parametrize(
    ("gpu", "identity"),
    [
        (NamedGpu(index=0, uuid="GPU-a", bus_id="0:1"), "GPU-a"),
        (NamedGpu(index=0, uuid="GPU-a", bus_id="0:1", is_guest=True), "n/0:1"),
        (NamedGpu(index=3, bus_id="0:1"), "n/0:1"),
        (NamedGpu(index=3), "n/3"),
    ],
)
def test_an_identity_lasts(gpu: NamedGpu, identity: str) -> None:
    """The identity is a permanent UUID; for a guest, whose UUID is random, it is the machine and the PCI bus id."""
    assert on_node("n", gpu.identity) == identity == on_node("n", identity)


def test_a_guest_is_still_shown_by_its_uuid() -> None:
    """CUDA uses the current UUID of a guest's GPU."""
    (part,) = NamedGpu(index=0, uuid="GPU-today", bus_id="0:1", is_guest=True).parts
    assert (part.identity, part.visible) == ("0:1", "GPU-today")


@pytest.mark.parametrize(
    ("visible", "units"),
    [
        ("0", [("GPU-aaaa-0",)]),
        (" 2 , 0", [("GPU-cccc-2",), ("GPU-aaaa-0",)]),
        ("1", [SLICES]),
        ("GPU-bbbb-1", [SLICES]),
        ("GPU-a", [("GPU-aaaa-0",)]),
        ("GPU-", []),
        ("MIG-2222,MIG-1111", [("MIG-2222",), ("MIG-1111",)]),
        ("MIG-22", [("MIG-2222",)]),
        ("MIG-11", []),
        ("MIG-GPU-bbbb-1/1/1", [("MIG-1122",)]),
        ("MIG-GPU-bbbb-1/7/0", []),
        ("", []),
        ("NoDevFiles", []),
        ("-1", []),
        ("0,-1,2", [("GPU-aaaa-0",)]),
        ("0,,2", [("GPU-aaaa-0",)]),
        ("0,9,2", [("GPU-aaaa-0",)]),
        ("0,none", [("GPU-aaaa-0",)]),
        ("0,GPU-aaaa-0,2", [("GPU-aaaa-0",)]),
        ("1,MIG-1111", [SLICES]),
    ],
)
def test_the_list_is_cut_where_cuda_cuts_it(visible: str, units: list[tuple[str, ...]]) -> None:
    """Everything after an unknown or repeated entry is hidden."""
    found = ShownGpus(GPUS, visible).units(8)
    assert list(found.units) == units
    offered = {name for unit in units for name in unit}
    assert found.hidden.keys() == {"GPU-aaaa-0", *SLICES, "GPU-cccc-2"} - offered
    assert all(f'which is "{visible}"' in reason for reason in found.hidden.values())


def test_a_number_beyond_the_gpus_counts_slices() -> None:
    """If Ray counts five on three GPUs with five devices, it counts devices; if it counts three, it counts GPUs."""
    few, many = ShownGpus(GPUS).units(3), ShownGpus(GPUS).units(5)
    assert few.units == (("GPU-aaaa-0",), SLICES, ("GPU-cccc-2",))
    assert many.units == tuple((name,) for name in ("GPU-aaaa-0", *SLICES, "GPU-cccc-2"))
    assert (few.counts_slices, few.parts_max) == (False, 3)
    assert (many.counts_slices, many.parts_max) == (True, 1)
    assert few.hidden == many.hidden == {}


def test_no_gpu_is_no_trouble() -> None:
    """A machine without known GPUs has no units, however many GPUs Ray counts."""
    units = ShownGpus(()).units(2)
    assert (units.units, units.hidden, units.counts_slices, units.parts_max) == ((), {}, False, 1)


@pytest.mark.parametrize(
    ("visible", "for_ray"),
    [
        (None, "GPU-aaaa-0,MIG-1111,MIG-1122,MIG-2222,GPU-cccc-2"),
        ("1,2", "MIG-1111,MIG-1122,MIG-2222,GPU-cccc-2"),
        ("MIG-2222", "MIG-2222"),
        ("0,2", None),
        ("", None),
    ],
)
def test_what_ray_is_to_be_started_with(visible: str | None, for_ray: str | None) -> None:
    """Ray must be started with every visible slice by name; if no slice is visible, Ray counts correctly by itself."""
    shown = ShownGpus(GPUS, visible)
    assert shown.for_ray == for_ray
    if for_ray is not None:
        started = ShownGpus(GPUS, for_ray).units(for_ray.count(",") + 1)
        assert started.units == tuple((name,) for name in for_ray.split(","))


def test_a_container_is_given_slices_by_name() -> None:
    """Only entries of NVIDIA_VISIBLE_DEVICES that are UUIDs count; numbers and words are meant for the host."""
    assert ShownGpus(GPUS, container="MIG-2222,GPU-cccc-2").units(2).units == (("MIG-2222",), ("GPU-cccc-2",))
    assert ShownGpus(GPUS, container="MIG-GPU-bbbb-1/1/0").units(1).units == (("MIG-1111",),)
    for words in ("all", "0", "void", "none", "", "GPU-of-elsewhere"):
        assert ShownGpus(GPUS, container=words).given == GPUS


@given(
    entries=st.lists(st.sampled_from(["0", "1", "2", "3", "-1", "", "GPU-a", "GPU-c", "MIG-11", "MIG-22", "x"])),
    count=st.integers(0, 6),
)
def test_every_device_is_offered_once_or_hidden(entries: list[str], count: int) -> None:
    """With any value, each device is either in exactly one unit or hidden for a reason."""
    found = ShownGpus(GPUS, ",".join(entries)).units(count)
    offered = [name for unit in found.units for name in unit]
    assert len(offered) == len(set(offered))
    assert {*offered, *found.hidden} == {"GPU-aaaa-0", *SLICES, "GPU-cccc-2"}
    assert set(offered).isdisjoint(found.hidden)
    assert len(found.units) <= count


def test_what_ray_gave_is_found_by_number_or_name() -> None:
    """Ray's number of a GPU is NVML's, unless Ray counts slices or NVML has no such number."""
    assert [part.identity for part in unit_given("1", GPUS)] == list(SLICES)
    assert [part.identity for part in unit_given("1", GPUS, counts_slices=True)] == ["MIG-1111"]
    assert [part.identity for part in unit_given("4", GPUS)] == ["GPU-cccc-2"]
    assert unit_given("5", GPUS) is None
    assert unit_given("GPU-zzz", GPUS) is None
