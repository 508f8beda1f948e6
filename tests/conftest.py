"""What all tests share: the folders of contrib/ that hold their machinery, and their options."""

import sys
from pathlib import Path

import pytest

CONTRIB = Path(__file__).parent.parent / "contrib"
sys.path[:0] = [str(CONTRIB / "simgpu"), str(CONTRIB / "testcluster")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--scenarios-out", type=Path, metavar="FILE", help="write the table of Slurm scenarios there")
    parser.addoption(
        "--short-jobs", type=int, default=100, metavar="N", help="how many jobs the flood of short ones has"
    )
