"""The compatibility verdicts of a machine."""

from ..cuda.compat import judge
from ..nvml.facts import BRANDS
from ..report.absence import Unavailable
from ..report.engines import How
from ..report.verdict import Diagnosis
from .container import judge_container
from .report import NodeReport


def verdicts(report: NodeReport) -> tuple[Diagnosis, ...]:
    """Return the verdicts about the CUDA driver and its users; () for a simulated machine or without a CUDA report."""
    if report.simulated or isinstance(report.cuda, Unavailable):
        return ()
    package = None if isinstance(report.pynvvideocodec, Unavailable) else report.pynvvideocodec
    tried = (trial for device in report.devices for trial in device.trials)
    codecs_work = any(trial.works and trial.how is How.TRIED for trial in tried)
    said = (gpu.facts.get("brand") for gpu in report.gpus)
    # The container runtime also uses the brand of the first GPU.
    brand = next((brand for brand in said if isinstance(brand, str) and brand in BRANDS.values()), "")
    judged = judge(report.cuda, package, report.driver, codecs_work=codecs_work)
    if isinstance(report.container, Unavailable):
        return tuple(judged)
    return (*judged, *judge_container(report.container, report.cuda, brand))
