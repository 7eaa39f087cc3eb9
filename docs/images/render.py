"""Draw docs/images/transcode.svg: what a terminal shows in the middle of ``make demo``, from the events of a real run.

.venv/bin/python docs/images/render.py
"""

import asyncio
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO, cast

from rich.console import Console
from rich.text import Text

from codecfleet import Fleet, Planned, Progress, TranscodeSpec
from codecfleet.console.live import RichView
from codecfleet.console.output import Output

HERE = Path(__file__).parent
CLIP = "examples/media/bunny.mp4"
COMMAND = f"codecfleet transcode {CLIP} bunny.hevc.mp4 --codec hevc --workers 4 --segment-seconds 2"
DRAWN_AT = 0.4
"""How much of the film is done in the picture."""
COLUMNS = 112

# The template of rich without web fonts, so that the picture loads nothing from elsewhere.
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


async def main() -> None:
    """Run the demo's job, and draw the terminal once enough of it is done."""
    screen = Console(
        width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    screen.print(Text(f"$ {COMMAND}"))
    with TemporaryDirectory() as folder:
        spec = TranscodeSpec.model_validate(
            {
                "source": str(HERE.parents[1] / CLIP),
                "output": f"{folder}/bunny.hevc.mp4",
                "codec": "hevc",
                "workers": 4,
                "segment_s": 2,
            }
        )
        async with Fleet(workers=4) as fleet:
            job = await fleet.transcode(spec)
            view = RichView(Output(io.StringIO()), cast("TextIO", screen.file))
            view._console = screen  # noqa: SLF001 - the picture is of what the view draws
            async for event in job.events():
                if isinstance(event, Planned | Progress):
                    view.show(event)
                if isinstance(event, Progress) and event.frames_done >= DRAWN_AT * event.frames_total:
                    break
            screen.print(view._bars.get_renderable())  # noqa: SLF001 - the same
    screen.save_svg(str(HERE / "transcode.svg"), title="codecfleet", code_format=TEMPLATE, unique_id="codecfleet")


if __name__ == "__main__":
    asyncio.run(main())
