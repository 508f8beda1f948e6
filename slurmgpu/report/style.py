"""Colour, and characters that the terminal can show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from slurmgpu.report import units
from slurmgpu.report.facts import RunFacts

_TO_ASCII = str.maketrans({"–": "-", "·": "|", "→": "to", "≥": ">=", "…": "...", "�": "?"})


@dataclass(frozen=True, slots=True)
class Style:
    """How text looks. Colour only ever repeats what the words say."""

    colour: bool = False
    ascii_only: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """The style for a stream: colour on a terminal without NO_COLOR, ASCII where the encoding has no more."""
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
        colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(colour=colour, ascii_only=encoding not in ("utf8", "utf16", "utf32"))

    def for_stream(self, text: str) -> str:
        """The text in characters that the stream can take."""
        if not self.ascii_only:
            return text
        return text.translate(_TO_ASCII).encode("ascii", "replace").decode()

    def bold(self, text: str) -> str:
        return self._paint(text, "1")

    def dim(self, text: str) -> str:
        return self._paint(text, "2")

    def warn(self, text: str) -> str:
        return self._paint(text, "33")

    def state(self, run: RunFacts) -> str:
        """The run's state: green while it runs or when it ended well."""
        good = run.end_ms is None or run.exit_code == 0
        return self._paint(run.state, "32" if good else "33")

    def busy(self, value: float | None, text: str) -> str:
        """A figure of GPU busy, already laid out."""
        if value is None:
            return text
        return self._paint(text, "31" if value < 15 else "33" if value < 50 else "32")

    def health(self, word: str, text: str) -> str:
        """A GPU's health, already laid out."""
        return text if word == "unknown" else self._paint(text, "32" if word == "ok" else "31")

    def timeline(self, values: Sequence[float | None]) -> str:
        """A line of bars."""
        return self._paint(units.sparkline(values, ascii_only=self.ascii_only), "36")

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text
