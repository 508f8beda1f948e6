"""Sphinx: Markdown pages, no extensions that fetch anything."""

from slurmgpu import __version__

project = "slurmgpu"
author = "The slurmgpu authors"
copyright = "2026, the slurmgpu authors"
release = version = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"slurmgpu {release}"
html_static_path = ["_static"]
exclude_patterns = ["_build", "readings-table.md", "scenarios-table.md"]
