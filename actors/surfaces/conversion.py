"""A requested scaling and conversion of a surface, and the resulting arithmetic for each of its planes.

Samples are integers throughout, so every implementation gives the same bits: the device's kernels (``converting``) and
the reference in NumPy that tests them. The arithmetic, for samples of S bits that become samples of T bits:

1. Across: each row's target columns are sums of ``WEIGHT_BITS``-bit weights and S-bit samples, shifted right to
   ``BETWEEN_BITS`` bits with halves rounded up. The magnitudes of weights sum to less than 1.6, so a value lies between
   -0.3 and 1.3. With 14 bits, a signed 16-bit number holds such a value.
2. Down: the same sums over the rows of step 1, shifted right to T bits with halves rounded up, and clipped to what T
   bits hold. The sum's magnitude stays below 1.3 * 1.6 * 2^(14 + 15), which a signed 32-bit number holds.

If neither pass would change a plane, only the depth changes: samples are shifted left, or right with halves rounded up.
There is no dithering. Shifting left is exact for limited range; white of full range stays a little below the new
maximum.
"""

from dataclasses import dataclass
from typing import Final

from ...errors import Unsupported
from ..media.values import VideoFormat
from .formats import SurfaceFormat, surface_format
from .scaling import LUMA, ChromaLocation, ScaleFilter, Taps, taps

VERSION: Final = 1
"""Part of the encoder kind, and increased whenever a bit of any result changes."""
BETWEEN_BITS: Final = 14
"""The bits of a sample between the two passes: more than any source has."""
BETWEEN_BYTES: Final = 2
_TABLE_BYTES: Final = 4


def padding_bits(format_: SurfaceFormat) -> int:
    """Return the number of padding bits below the significant bits of a sample."""
    return 8 * format_.sample_bytes - format_.bits


@dataclass(frozen=True, slots=True)
class PlanePlace:
    """Where the samples of a plane are: ``step`` samples lead to the next column, ``pitch`` samples to the next row."""

    offset: int
    step: int
    pitch: int
    columns: int
    rows: int


def plane_places(format_: SurfaceFormat, width: int, height: int) -> tuple[PlanePlace, PlanePlace, PlanePlace]:
    """Return where luma, Cb and Cr are in a surface."""
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    luma = PlanePlace(0, 1, width, width, height)
    begin = width * height
    if format_.halved_across:  # chroma lies in pairs
        return (luma, *(PlanePlace(begin + first, 2, 2 * columns, columns, rows) for first in (0, 1)))  # type: ignore[return-value]
    return luma, PlanePlace(begin, 1, columns, columns, rows), PlanePlace(2 * begin, 1, columns, columns, rows)


@dataclass(frozen=True, slots=True)
class PlanePlan:
    """How one plane is made from a source plane."""

    source: PlanePlace
    target: PlanePlace
    across: Taps
    down: Taps

    @property
    def is_scaled(self) -> bool:
        """Whether samples of the plane are made from several source samples, or from samples at other places."""
        return not (self.across.is_identity and self.down.is_identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Converts surfaces of one format and size to another; neither has padding. Sizes are (width, height).

    ``Unsupported`` if a size is not positive, or is odd along an axis on which chroma is halved.
    """

    source: SurfaceFormat
    source_size: tuple[int, int]
    target: SurfaceFormat
    target_size: tuple[int, int]
    filter: ScaleFilter = ScaleFilter.BICUBIC
    source_location: ChromaLocation = ChromaLocation.LEFT
    target_location: ChromaLocation = ChromaLocation.LEFT

    def __post_init__(self) -> None:
        for format_, (width, height) in ((self.source, self.source_size), (self.target, self.target_size)):
            if width <= 0 or height <= 0 or not format_.holds(width, height):
                across, down = 1 + format_.halved_across, 1 + format_.halved_down
                message = f"no {format_.layout.value} surface can be {width}x{height}"
                raise Unsupported(message, f"The width must be a multiple of {across} and the height of {down}.")

    @property
    def is_identity(self) -> bool:
        """Whether pictures stay unchanged, so that a surface need only be copied."""
        return self.source == self.target and not any(plan.is_scaled for plan in self.plans())

    @property
    def name(self) -> str:
        """The conversion's name in the encoder kind: equal names mean equal results, "" means unchanged pictures."""
        if self.is_identity:
            return ""
        source = _described(self.source, self.source_size, self.source_location)
        target = _described(self.target, self.target_size, self.target_location)
        return f"device-scaling-{VERSION} {self.filter.value} {source} to {target}"

    @property
    def target_bytes(self) -> int:
        """The size of the target surface in bytes."""
        return self.target.size_bytes(*self.target_size)

    @property
    def tables_bytes(self) -> int:
        """The size in bytes of the weights that the device needs."""
        plans = [plan for plan in self.plans() if plan.is_scaled]
        tables = {each for plan in plans for each in (plan.across, plan.down)}
        return _TABLE_BYTES * sum(len(each.firsts) * (1 + each.count) for each in tables)

    @property
    def scratch_bytes(self) -> int:
        """How much device memory a prepared conversion takes, apart from the two surfaces."""
        scaled = [plan for plan in self.plans() if plan.is_scaled]
        between = sum(plan.target.columns * plan.source.rows for plan in scaled)
        return self.tables_bytes + BETWEEN_BYTES * between

    def plans(self) -> tuple[PlanePlan, PlanePlan, PlanePlan]:
        """Return how luma, Cb and Cr are made. Cb and Cr have the same taps."""
        sources = plane_places(self.source, *self.source_size)
        targets = plane_places(self.target, *self.target_size)
        (wide, high), (wider, higher) = self.source_size, self.target_size
        source, target = self.source_location, self.target_location
        luma = taps(wide, wider, self.filter, LUMA, LUMA), taps(high, higher, self.filter, LUMA, LUMA)
        from_, to = source.across(halved=self.source.halved_across), target.across(halved=self.target.halved_across)
        across = taps(wide, wider, self.filter, from_, to)
        from_, to = source.down(halved=self.source.halved_down), target.down(halved=self.target.halved_down)
        down = taps(high, higher, self.filter, from_, to)
        return (
            PlanePlan(sources[0], targets[0], *luma),
            PlanePlan(sources[1], targets[1], across, down),
            PlanePlan(sources[2], targets[2], across, down),
        )


def _described(format_: SurfaceFormat, size: tuple[int, int], location: ChromaLocation) -> str:
    where = f" {location.name.lower()}" if format_.halved_across else ""
    return f"{size[0]}x{size[1]} {format_.layout.value}/{format_.bits}{where}"


def device_conversion(source: SurfaceFormat, size: tuple[int, int], output: VideoFormat) -> Conversion:
    """Return the conversion of surfaces to an encoder's pictures; ``Unsupported`` if no surface holds such pictures."""
    target = surface_format(output.pix_fmt)
    if target is None:
        raise Unsupported(f"no surface holds {output.pix_fmt}", "Use --encoder software.")
    # The source states where chroma is sited; the encoded pictures keep that position.
    location = ChromaLocation(output.colour.chroma_location or ChromaLocation.LEFT.value)
    return Conversion(
        source=source,
        source_size=size,
        target=target,
        target_size=(output.width, output.height),
        source_location=location,
        target_location=location,
    )
