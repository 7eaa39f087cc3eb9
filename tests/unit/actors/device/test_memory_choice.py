"""Memory and waiting against the paragraphs of NVIDIA's CUDA for Tegra, a row for each rule."""

import dataclasses
import itertools
from dataclasses import dataclass

import pytest

from codecfleet.actors.device.memory_choice import (
    SMALL_BYTES,
    Attach,
    BufferUse,
    Memory,
    MemoryChoice,
    Often,
    Party,
    Platform,
    choose_memory,
    prefetched_to,
)

HOST, GPU, DLA = Party.HOST, Party.GPU, Party.DLA
ONCE, REPEATEDLY = Often.ONCE, Often.REPEATEDLY
XAVIER = Platform(integrated=True, io_coherent=True)
TX2 = Platform(integrated=True, io_coherent=False)
CARD = Platform(integrated=False, io_coherent=True)
LARGE = 4 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One sentence of the guide: its section, a buffer that it is about, and the memory that it advises."""

    section: str
    sentence: str
    platform: Platform
    use: BufferUse
    memory: Memory


def use(writers: Party, readers: Party, size_bytes: int = LARGE, *, host: Often = ONCE, gpu: Often = ONCE) -> BufferUse:
    """Return a use."""
    return BufferUse(size_bytes=size_bytes, writers=writers, readers=readers, host=host, gpu=gpu)


SAFE = dataclasses.replace(XAVIER, safety=True)
ROWS = (
    Row(
        "3.1",
        "device memory for buffers whose accessibility is limited to the iGPU",
        XAVIER,
        use(GPU, GPU),
        Memory.DEVICE,
    ),
    Row("3.1", "pageable host memory for buffers limited to the CPU", XAVIER, use(HOST, HOST), Memory.PAGEABLE),
    Row(
        "3.1",
        "pinned memory is recommended for small buffers",
        XAVIER,
        use(HOST, GPU, SMALL_BYTES, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.PINNED,
    ),
    Row(
        "3.1",
        "pinned memory is also preferable for large buffers if the access pattern is not cache friendly on iGPU",
        XAVIER,
        use(HOST, GPU, host=REPEATEDLY, gpu=ONCE),
        Memory.PINNED,
    ),
    Row(
        "3.1",
        "for large buffers accessed only once on iGPU in a coalescing manner pinned is as good",
        XAVIER,
        use(GPU, HOST, host=REPEATEDLY),
        Memory.PINNED,
    ),
    Row(
        "3.1",
        "7.2 or greater: for large buffers frequently accessed by iGPU and CPU, repetitive on iGPU, unified memory",
        XAVIER,
        use(HOST, GPU | HOST, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.MANAGED,
    ),
    Row(
        "3.1",
        "less than 7.2: not repetitive on iGPU, unified memory is still preferable: pinned is not cached on the CPU",
        TX2,
        use(HOST, GPU, host=REPEATEDLY, gpu=ONCE),
        Memory.MANAGED,
    ),
    Row(
        "3.2",
        "no I/O coherency: repetitive access of pinned memory degrades",
        TX2,
        use(GPU, HOST, host=REPEATEDLY),
        Memory.MANAGED,
    ),
    Row(
        "3.1",
        "Note: software managed coherence is not recommended in a safe context; zero-copy memory is preferable",
        SAFE,
        use(HOST, GPU | HOST, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.PINNED,
    ),
    Row(
        "3.2",
        "a discrete GPU uses pinned memory to reduce data transfer time",
        CARD,
        use(GPU, HOST, host=REPEATEDLY),
        Memory.PINNED,
    ),
    Row(
        "3.6",
        "unified memory is not supported on dGPU attached to Tegra",
        CARD,
        use(HOST, GPU, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.PINNED,
    ),
    Row("5.1.3", "the CUDA pointer must be registered with the DLA", XAVIER, use(GPU, DLA), Memory.DEVICE),
    Row(
        "5.4",
        "cuDLA does not support UVM between CUDA and DLA",
        XAVIER,
        use(HOST | GPU, DLA, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.DEVICE,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section} {row.sentence[:40]}")
def test_each_sentence_of_the_guide_is_followed(row: Row) -> None:
    """The memory that the sentence advises is the one that is chosen."""
    assert choose_memory(row.use, row.platform).memory is row.memory


def test_only_managed_memory_is_attached() -> None:
    """For every use and platform: hints exactly where managed memory is chosen, and none of it on a card."""
    parties = (HOST, GPU, HOST | GPU)
    for writers, readers, host, gpu in itertools.product(parties, parties, Often, Often):
        for platform, size_bytes in itertools.product((XAVIER, TX2, CARD, SAFE), (1, LARGE)):
            choice = choose_memory(use(writers, readers, size_bytes, host=host, gpu=gpu), platform)
            hints = choice.first, choice.before_gpu, choice.before_host
            if choice.memory is Memory.MANAGED:
                assert platform in (XAVIER, TX2)
                assert hints == (Attach.HOST, Attach.GLOBAL, Attach.HOST)  # the samples of 3.2 and 3.3
            else:
                assert hints == (None, None, None)


@pytest.mark.parametrize(
    ("before", "now", "to"),
    [
        (Attach.GLOBAL, Attach.HOST, HOST),
        (Attach.SINGLE, Attach.HOST, HOST),
        (Attach.HOST, Attach.GLOBAL, GPU),
        (Attach.HOST, Attach.SINGLE, GPU),
        (Attach.GLOBAL, Attach.SINGLE, None),
        (Attach.SINGLE, Attach.GLOBAL, None),
    ],
)
def test_a_change_of_attachment_prefetches_as_table_2_says(before: Attach, now: Attach, to: Party | None) -> None:
    """3.3, Table 2, row by row."""
    assert prefetched_to(before, now) is to


@pytest.mark.parametrize(
    ("choice", "function", "behind", "freeing"),
    [
        (choose_memory(use(GPU, GPU), XAVIER), "cuMemAlloc", (), "cuMemFree"),
        (choose_memory(use(GPU, HOST), XAVIER), "cuMemHostAlloc", (0,), "cuMemFreeHost"),
        (choose_memory(use(GPU, HOST, host=REPEATEDLY), TX2), "cuMemAllocManaged", (2,), "cuMemFree"),
    ],
)
def test_a_choice_names_its_calls(choice: MemoryChoice, function: str, behind: tuple[int, ...], freeing: str) -> None:
    """How the driver allocates and frees each kind; idle managed memory is the processor's."""
    assert choice.allocating == (function, behind)
    assert choice.freeing == freeing


@pytest.mark.parametrize(
    ("attributes", "platform"),
    [
        ({18: 1, 75: 7, 76: 2}, XAVIER),
        ({18: 1, 75: 6, 76: 2}, TX2),
        ({18: 0, 75: 9, 76: 0}, CARD),
    ],
)
def test_a_platform_is_what_the_device_says(attributes: dict[int, int], platform: Platform) -> None:
    """2.1: I/O coherency from compute capability 7.2 on; CU_DEVICE_ATTRIBUTE_INTEGRATED: shared memory."""
    assert Platform.of(attributes.__getitem__) == platform
