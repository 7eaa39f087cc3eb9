"""The choice of memory, tested against the rules of NVIDIA's CUDA for Tegra."""

import dataclasses
import itertools

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
SAFE = dataclasses.replace(XAVIER, safety=True)
LARGE = 4 << 20


def use(writers: Party, readers: Party, size_bytes: int = LARGE, *, host: Often = ONCE, gpu: Often = ONCE) -> BufferUse:
    """Return a use."""
    return BufferUse(size_bytes=size_bytes, writers=writers, readers=readers, host=host, gpu=gpu)


SHARED = use(HOST, GPU | HOST, host=REPEATEDLY, gpu=REPEATEDLY)
READ_BACK = use(GPU, HOST, host=REPEATEDLY)
RULES = {
    "3.1: device memory for buffers of the iGPU alone": (XAVIER, use(GPU, GPU), Memory.DEVICE),
    "3.1: pageable memory for buffers of the CPU alone": (XAVIER, use(HOST, HOST), Memory.PAGEABLE),
    "3.1: pinned memory for small buffers": (
        XAVIER,
        use(HOST, GPU, SMALL_BYTES, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.PINNED,
    ),
    "3.1: pinned for large ones that the iGPU reads once": (XAVIER, use(HOST, GPU, host=REPEATEDLY), Memory.PINNED),
    "3.1: pinned is as good for large ones that the iGPU writes once": (XAVIER, READ_BACK, Memory.PINNED),
    "3.1: managed for large ones that both use often, from 7.2 on": (XAVIER, SHARED, Memory.MANAGED),
    "3.1: managed below 7.2, where the CPU does not cache pinned memory": (
        TX2,
        use(HOST, GPU, host=REPEATEDLY),
        Memory.MANAGED,
    ),
    "3.2: managed where repeated access of pinned memory is slow": (TX2, READ_BACK, Memory.MANAGED),
    "3.1, note: pinned in a safe context": (SAFE, SHARED, Memory.PINNED),
    "3.2: pinned on a discrete GPU": (CARD, READ_BACK, Memory.PINNED),
    "3.6: no managed memory on a dGPU of a Tegra": (
        CARD,
        use(HOST, GPU, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.PINNED,
    ),
    "5.1.3: a DLA registers pointers of CUDA": (XAVIER, use(GPU, DLA), Memory.DEVICE),
    "5.4: no managed memory between CUDA and a DLA": (
        XAVIER,
        use(HOST | GPU, DLA, host=REPEATEDLY, gpu=REPEATEDLY),
        Memory.DEVICE,
    ),
}
"""The names of the cases: sections of the guide with their advice."""


@pytest.mark.parametrize(("platform", "buffer", "memory"), RULES.values(), ids=RULES)
def test_each_sentence_of_the_guide_is_followed(platform: Platform, buffer: BufferUse, memory: Memory) -> None:
    """The memory that the guide advises is chosen."""
    assert choose_memory(buffer, platform).memory is memory


def test_only_managed_memory_is_attached() -> None:
    """Attachments are changed exactly if managed memory is chosen, and managed memory is never chosen on a card."""
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
    """Each kind of memory has its functions to allocate and free; idle managed memory is attached to the processor."""
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
    """A GPU is I/O coherent from compute capability 7.2 on; CU_DEVICE_ATTRIBUTE_INTEGRATED marks integrated GPUs."""
    assert Platform.of(attributes.__getitem__) == platform
