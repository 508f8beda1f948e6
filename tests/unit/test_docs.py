"""What the documentation says is what the program does."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slurmgpu.config import all_keys
from slurmgpu.report.formats import COLUMNS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def module_of(name: str) -> ModuleType:
    """A script of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readings_table_is_the_code() -> None:
    made = module_of("make_readings").table()
    assert (DOCS / "readings-table.md").read_text() == made, "run: .venv/bin/python docs/make_readings.py"


def test_scenarios_table_is_what_the_tests_saw() -> None:
    module = module_of("make_scenarios")
    results = module.kept()
    assert (DOCS / "scenarios-table.md").read_text() == module.table(results), "run: docs/make_scenarios.py"
    source = (ROOT / "tests" / "slurm" / "test_scenarios.py").read_text()
    tests = set(re.findall(r"def (test_\w+)", source))
    for rows in results.values():
        assert {row["test"] for row in rows} <= tests
        assert {(row["gpus"], row["times"].partition(";")[0]) for row in rows} == {("right", "right")}


def test_every_key_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    assert set(re.findall(r"^\| `([\w.]+)`", text, re.M)) == set(all_keys())


def test_report_columns_are_documented() -> None:
    words = (DOCS / "report-columns.txt").read_text().replace("\n", " ").split(", ")
    assert tuple(" ".join(words).split()) == COLUMNS


@pytest.mark.parametrize("command", ["report", "gpus", "collect", "db init", "db upgrade", "db compact"])
def test_every_option_is_documented(command: str) -> None:
    out = subprocess.run([sys.executable, "-m", "slurmgpu", *command.split(), "--help"], capture_output=True, text=True)
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", out.stdout)) - {"--help"}
    text = (DOCS / "commands.md").read_text()
    section = text.split(f"## slurmgpu {command.split()[0]}")[1].split("\n## ")[0]
    assert options <= set(re.findall(r"--[a-z][a-z-]+", section)), command


def test_decoder_of_the_schema_page_reads_samples() -> None:
    """The ten lines that are given to others."""
    from slurmgpu.wire.samples import encode

    scope: dict[str, object] = {}
    code = (DOCS / "schema.md").read_text().split("```python\n")[1].split("```")[0]
    exec(code, scope)  # noqa: S102 - our own page
    decode = scope["decode"]
    packed = encode([("t_ms", 1, [0, 1000, 2000]), ("sm_active_pct", 100, [150, None, 0]), ("x", 1, [-5, -5, -5])])
    assert decode(packed) == {"t_ms": [0, 1000, 2000], "sm_active_pct": [1.5, None, 0], "x": [-5, -5, -5]}  # type: ignore[operator]


def test_relative_links_lead_somewhere() -> None:
    for page in [*DOCS.glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("contrib/*/README.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_service_unit_is_well_formed() -> None:
    """Keys that the documentation of the unit promises, and those that would blind it."""
    unit = (ROOT / "contrib/systemd/slurmgpud.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    assert settings["Type"] == "notify"
    assert settings["RuntimeDirectoryPreserve"] == "yes"
    assert int(settings["WatchdogSec"]) > 0
    assert not {"PrivateDevices", "DeviceAllow", "PrivateUsers", "ProtectProc"} & set(settings)
