"""The result of ``verify``: checks, numbers and a verdict, as text and JSON."""

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import BaseModel, Field, computed_field

from ...cluster.grouping import counted
from ..report.report import ShownName, Warning_


class Check(BaseModel, frozen=True, extra="forbid"):
    """A statement about the output, and whether it is true."""

    name: str
    passed: bool | None  # None if the check does not apply; then ``detail`` says why
    expected: str = ""
    found: str = ""
    detail: str = ""
    declared: str | None = None  # the warning that declares this failure, if any; the check is then not ``failed``

    @property
    def failed(self) -> bool:
        """Whether this check failed and no warning declares it."""
        return self.passed is False and self.declared is None

    def line(self) -> str:
        """Return the check as a line of text."""
        failed = "FAILED" if self.declared is None else "declared"
        mark = {True: "ok", False: failed, None: "-"}[self.passed]
        story = [self.detail] if self.detail else []
        if self.passed is False:
            story.append(f"expected {self.expected or 'nothing'}, found {self.found or 'nothing'}")
        if self.declared is not None:
            story.append(f"the transcode reported: {self.declared}")
        return f"{mark:8} {self.name}" + (f": {'; '.join(story)}" if story else "")


ALPHA_CHECK: Final = "metadata.alpha"


class PictureNumbers(BaseModel, frozen=True, extra="forbid"):
    """How alike the pictures are: PSNR in dB (100 for identical pictures), and SSIM of luma from 0 to 1."""

    psnr_y_mean_db: float
    psnr_y_min_db: float
    psnr_u_mean_db: float | None
    psnr_v_mean_db: float | None
    ssim_y_mean: float
    ssim_y_min: float
    worst_frames: tuple[tuple[int, float, float], ...]  # (number, PSNR-Y, SSIM-Y), the worst first
    identical: bool = False  # whether every sample equals the source's, in the same format and size


class Verdict(BaseModel, frozen=True, extra="forbid", serialize_by_alias=True, validate_by_name=True):
    """The result of ``verify``: whether the output is ``exact`` (printed as "complete"), and all checks."""

    schema_version: int = Field(default=1, alias="schema")
    source: ShownName
    output: ShownName
    source_frames: int
    output_frames: int
    repaired: dict[str, int]  # the number of repairs of the source's times, by kind
    damaged_packets: int
    pictures: PictureNumbers | None
    checks: tuple[Check, ...]
    wall_s: float

    @computed_field  # type: ignore[prop-decorator] # pydantic's own way to put a property into the document
    @property
    def exact(self) -> bool:
        """Whether no check failed, apart from declared failures: the output has each frame once, at its time."""
        return not any(check.failed for check in self.checks)

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def lossless(self) -> bool:
        """Whether the output has all frames, and every sample, including transparency, equals the source's."""
        lost_alpha = any(check.name == ALPHA_CHECK and check.passed is False for check in self.checks)
        same_samples = bool(self.pictures and self.pictures.identical) and not lost_alpha
        return self.exact and self.source_frames == self.output_frames and same_samples

    @property
    def failures(self) -> tuple[Check, ...]:
        """The failed checks that no warning declares."""
        return tuple(check for check in self.checks if check.failed)

    def lines(self) -> tuple[str, ...]:
        """Return the verdict as text: a line for each check, then the answer."""
        lines = [check.line() for check in self.checks]
        if (numbers := self.pictures) is not None and numbers.identical:
            lines.append("pictures: identical, sample by sample")
        elif numbers is not None:
            lines.append(
                f"pictures: PSNR-Y mean {numbers.psnr_y_mean_db:.2f} dB, min {numbers.psnr_y_min_db:.2f} dB; "
                f"SSIM-Y mean {numbers.ssim_y_mean:.4f}, min {numbers.ssim_y_min:.4f}; "
                f"least alike: {', '.join(f'frame {n} ({p:.2f} dB)' for n, p, _ in numbers.worst_frames[:3])}"
            )
        passed = sum(each.passed is True for each in self.checks)
        failures = ", ".join(each.name for each in self.failures)
        complete = "complete and lossless" if self.lossless else "complete"
        held = f"{complete}: {counted(self.output_frames, 'frame')}, {counted(passed, 'check')}"
        return (*lines, held if self.exact else f"NOT complete: {failures}")


def check(
    name: str,
    expected: object,
    found: object,
    *,
    passed: bool | None = None,
    detail: str = "",
    held: str = "",
    unless: str = "",
) -> Check:
    """Return a check that ``found`` equals ``expected``, unless ``passed`` decides.

    ``held`` is added to ``detail`` if the check passed. ``unless`` is the reason if the check does not apply, otherwise
    "".
    """
    if unless:
        return not_applicable(name, unless)
    is_good = expected == found if passed is None else passed
    said = "; ".join(filter(None, (detail, held if is_good else "")))
    return Check(name=name, passed=is_good, expected=str(expected), found=str(found), detail=said)


def not_applicable(name: str, reason: str) -> Check:
    """Return a check that does not apply."""
    return Check(name=name, passed=None, detail=reason)


def with_declared(checks: Iterable[Check], warnings: Sequence[Warning_]) -> tuple[Check, ...]:
    """Mark as declared the failed checks that a warning in the report names."""
    marked = []
    for one in checks:
        named = next((warning for warning in warnings if one.passed is False and warning.explains(one.name)), None)
        declared = None if named is None else f"{named.code}: {named.message}"
        marked.append(one.model_copy(update={"declared": declared}))
    return tuple(marked)
