"""A report as a picture: ``python docs/picture.py STORE_URL JOBID OUT.svg`` (the demo leaves such a database)."""

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from slurmgpu.report.build import job_runs
from slurmgpu.report.style import Style
from slurmgpu.report.text import render
from slurmgpu.slurm.jobid import JobRef
from slurmgpu.store.engine import connect

THEME = TerminalTheme(
    (24, 26, 31),
    (220, 223, 228),
    [
        (24, 26, 31),
        (224, 108, 117),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (220, 223, 228),
    ],
)
# No font from elsewhere: the reader's own monospace.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#181a1f"/>
<g transform="translate({terminal_x}, 20)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">{matrix}</g></g>
</svg>
"""


def main(url: str, job_id: str, out: str) -> None:
    with connect(url).connect() as connection:
        (*_, run) = job_runs(connection, JobRef(int(job_id)))
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ slurmgpu report {job_id}\n\n" + render(run, Style(colour=True))))
    svg = console.export_svg(theme=THEME, code_format=SVG, unique_id="report")
    Path(out).write_text(svg.replace("&#160;", " "))  # xml:space keeps them, in every renderer


main(*sys.argv[1:])
