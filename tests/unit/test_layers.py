"""Imports point down, and a compute node imports the standard library and nvidia-ml-py only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import slurmgpu

PACKAGE = Path(slurmgpu.__file__).parent

# part → what it may import of slurmgpu, beside itself
ALLOWED = {
    "wire": set(),
    "config": set(),
    "node": {"wire", "config"},
    "slurm": {"wire", "config"},
    "store": {"wire", "config"},
    "report": {"store", "slurm", "wire", "config"},
    "export": {"store", "slurm", "wire", "config"},
    "drain": {"store", "slurm", "wire", "config"},
    "collect": {"store", "slurm", "wire", "config"},
    "cli": {"collect", "report", "export", "drain", "store", "slurm", "wire", "config"},
}


def imports_of(file: Path) -> set[str]:
    found = set()
    for item in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{file}: relative import"
            found.add(item.module or "")
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return found


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_point_down() -> None:
    """No part imports one above it, and nothing but the node program imports the node."""
    for file in PACKAGE.rglob("*.py"):
        part = part_of(file)
        if part in ("__init__", "__main__"):
            continue
        used = {name.split(".")[1] for name in imports_of(file) if name.startswith("slurmgpu.")}
        used -= {part, "__version__"}
        assert used <= ALLOWED[part], f"{file.relative_to(PACKAGE)} imports {used - ALLOWED[part]}"


@pytest.mark.parametrize("part", ["node", "wire", "config"])
def test_node_needs_standard_library_and_pynvml(part: str) -> None:
    """What runs on a compute node uses nothing else, in any file."""
    for file in PACKAGE.rglob("*.py"):
        if part_of(file) == part:
            roots = {name.split(".")[0] for name in imports_of(file)}
            assert roots <= {*sys.stdlib_module_names, "pynvml", "slurmgpu"}, file


def test_daemon_loads_without_the_rest() -> None:
    """The daemon's start loads no library of the admin host, whatever is installed."""
    code = "import sys, slurmgpu.node.main; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    strangers = set(out) - set(sys.stdlib_module_names) - {"pynvml", "slurmgpu", "__main__"}
    strangers = {name for name in strangers if not name.startswith(("_", "sitecustomize"))}
    assert strangers == set()
