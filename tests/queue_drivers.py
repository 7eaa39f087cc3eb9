"""Drivers that run in the background because a test has submitted a job."""

from pathlib import Path

import psutil


def end_drivers(folder: Path) -> None:
    """End the drivers of queues below a folder, and all that they have started."""
    drivers = [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]
    family = [*drivers, *(below for each in drivers for below in each.children(recursive=True))]
    for each in drivers:
        each.terminate()
    _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []
