"""A dry run of a batch: what would be done with each file."""

from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from ...console.batch_live import SCHEMA_VERSION
from ...console.batch_text import intended_text, preview_lines
from ...console.output import Output, ReaderGone, json_line
from ...errors import CodecfleetError
from ..failures import failure_of, print_failure
from ..interrupts import Interrupts
from ..services import Services
from .following import AskedBatch

if TYPE_CHECKING:
    from ...jobs.batch.preview import Intended, Preview


def show_intentions(asked: AskedBatch, services: Services, stdout: TextIO, stderr: TextIO) -> int:
    """Print a line, or with ``--json`` an event, for each file, and a summary; return the exit code.

    Raises:
        ReaderGone: stdout was closed.
    """
    output = Output(stdout)

    def show(intended: "Intended") -> None:
        output.line(json_line(_event(intended)) if asked.as_json else intended_text(intended))

    with Interrupts(services.exit_now) as interrupts:
        interrupts.attach_here()
        try:
            preview = services.preview_batch(asked.spec, asked.address, show)
            for line in [json_line(_summary(preview))] if asked.as_json else preview_lines(preview):
                output.line(line)
        except ReaderGone:
            raise
        except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
            failure = failure_of(error, interrupts.exit_code)
            print_failure(failure, error, stderr)
            return failure.exit_code
    return preview.exit_code


def _event(intended: "Intended") -> dict[str, object]:
    facts = {"intent": intended.intent.value, "source": intended.source, "output": intended.output}
    return {"schema": SCHEMA_VERSION, "event": "file_intended", **facts, **_fault(intended.error)}


def _fault(error: CodecfleetError | None) -> dict[str, object]:
    if error is None:
        return {}
    return {"error": type(error).__name__, "message": error.message, "next_step": error.next_step}


def _summary(preview: "Preview") -> dict[str, object]:
    counts = {intent.value: count for intent, count in preview.counts.items()}
    estimate = None if preview.estimate is None else asdict(preview.estimate)
    failed = [{"source": source, **_fault(error)} for source, error in preview.failed_samples]
    facts = {"files": counts, "left_out": preview.left_out, "estimate": estimate, "failed_samples": failed}
    return {"schema": SCHEMA_VERSION, "event": "batch_intended", **facts}
