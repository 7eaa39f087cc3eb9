"""The utilisation of a machine's decoders, as NVML reports it."""

import threading
from typing import Any, Self

__all__ = ["NvdecUse"]

INTERVAL_S = 0.1


class NvdecUse:
    """The highest NVDEC utilisation of each GPU while a block runs, sampled ten times a second.

    Args:
        gpus: how many of the machine's GPUs, from the first on.
    """

    def __init__(self, gpus: int) -> None:
        import pynvml  # noqa: PLC0415 - a machine without a driver fails here, with a message

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.percent = [0] * gpus

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            for place, handle in enumerate(self._handles):
                percent, _ = self._nvml.nvmlDeviceGetDecoderUtilization(handle)
                self.percent[place] = max(self.percent[place], percent)
