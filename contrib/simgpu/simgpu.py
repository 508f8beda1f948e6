"""The simulated driver from Python: building it, writing its world, and knowing what must be true in it.

``library_dir()`` is the folder for LD_LIBRARY_PATH. A :class:`Scenario` writes the file that the library follows and
answers, for the same file, what a reading at a time or an integral over a time must be.
"""

from __future__ import annotations

import bisect
import itertools
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
_ALWAYS = -1e18
_KEY = re.compile(r"X\((\w+), ([^)]+)\)")


class BuildError(Exception):
    """The library could not be built; the message holds the compiler's words."""


def keys() -> dict[str, float]:
    """Every key of a GPU with its default; ``-9e18`` stands for not supported."""
    found = {}
    for name, default in _KEY.findall((SOURCES / "keys.h").read_text()):
        if name != "name":
            found[name] = -9e18 if default == "NONE" else float(default)
    return found


def compiler() -> list[str]:
    """A C compiler: the system's, else the one that the Python package ziglang brings. Raises :class:`BuildError`."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    try:
        import ziglang  # noqa: F401
    except ImportError:
        raise BuildError("no C compiler: install gcc, or the Python package ziglang") from None
    return [sys.executable, "-m", "ziglang", "cc"]


# Functions that came later than a driver branch: branch → those that it lacks.
_AFTER_R535 = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetTemperatureV")
_AFTER_R535 += ("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetNumaNodeId")
_AFTER_R510 = (*_AFTER_R535, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetGpuFabricInfo")
_AFTER_R510 += tuple(
    f"nvmlGpm{name}"
    for name in ("QueryDeviceSupport", "SampleAlloc", "SampleFree", "SampleGet", "MigSampleGet", "MetricsGet")
)
_AFTER_R450 = (*_AFTER_R510, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v2")
_AFTER_R450 += ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")
_AFTER_R450 += ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2")
_AFTER_R450 += ("nvmlDeviceGetMPSComputeRunningProcesses_v3",)
VARIANTS: dict[str, tuple[str, ...]] = {"R450": _AFTER_R450, "R510": _AFTER_R510, "R535": _AFTER_R535}


def library_dir(variant: str | None = None) -> Path:
    """Build the library where it is missing or older than its source, and give its folder.

    ``variant``: without the functions that came after a driver branch, see ``VARIANTS``.
    """
    folder = HERE / "build" / (variant or "")
    library = folder / "libnvidia-ml.so.1"
    sources = sorted(SOURCES.glob("*.[ch]"))
    newest = max(path.stat().st_mtime for path in [*sources, Path(__file__)])
    if library.exists() and library.stat().st_mtime >= newest:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stubs = folder / f"stubs.{os.getpid()}.c"
    fresh = folder / f"lib.{os.getpid()}.so"
    stubs.write_text(_stubs("".join(path.read_text() for path in sources)))
    command = [*compiler(), "-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", f"-I{SOURCES}", "-o", str(fresh), str(stubs)]
    command += [str(path) for path in sources if path.suffix == ".c"]
    hidden = VARIANTS.get(variant or "", ())
    if hidden:
        (folder / "symbols.map").write_text(f"{{ global: nvml*; local: {' '.join(f'{name};' for name in hidden)} }};")
        command.append(f"-Wl,--version-script={folder}/symbols.map")
    result = subprocess.run([*command, "-lm", "-lpthread"], capture_output=True, text=True)
    stubs.unlink()
    if result.returncode:
        raise BuildError(result.stderr)
    fresh.rename(library)  # several test processes may build at once
    return folder


def _stubs(source: str) -> str:
    """Every other function that pynvml knows: it is there and says NOT_SUPPORTED."""
    import importlib.util

    spec = importlib.util.find_spec("pynvml")
    text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    known = set(re.findall(r"""_nvmlGetFunctionPointer\(["'](nvml\w+)["']\)""", text))
    made = set(re.findall(r"EXPORT (?:int|const char \*)\s*\*?(nvml\w+)\(", source))
    made |= set(re.findall(r"NUMBER\((nvml\w+),", source))
    for name in re.findall(r"LISTS\((nvml\w+),", source):
        made |= {name, f"{name}_v2", f"{name}_v3"}
    lines = ['#include "sim.h"']
    lines += [f"EXPORT int {name}(void) {{ return NOT_SUPPORTED; }}" for name in sorted(known - made)]
    return "\n".join(lines) + "\n"


def uuid(node: str, index: int) -> str:
    """The UUID that the library gives GPU ``index`` of the node SIMGPU_NODE (or "sim")."""
    h = 1469598103934665603
    for byte in node.encode():
        h = (h ^ byte) * 1099511628211 & (1 << 64) - 1
    parts = (h >> 32 ^ (index * 0x9E3779B1 & 0xFFFFFFFF), h >> 16 & 0xFFFF, h & 0xFFF, h >> 4 & 0xFFF, index + 1)
    return "GPU-{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}".format(*parts)


def gpu_list(text: str, count: int = 16) -> list[int]:
    """``*``, ``3``, ``0-3,5`` → GPU numbers."""
    if text == "*":
        return list(range(count))
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@dataclass
class Series:
    """A step function: value from each time on."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def set(self, t: float, value: float) -> None:
        """From ``t`` on it is ``value``."""
        at = bisect.bisect_right(self.times, t)
        if at and self.times[at - 1] == t:
            self.values[at - 1] = value
        else:
            self.times.insert(at, t)
            self.values.insert(at, value)

    def at(self, t: float) -> float:
        """The value at ``t``."""
        return self.values[max(0, bisect.bisect_right(self.times, t) - 1)]

    def pieces(self, t0: float, t1: float) -> list[tuple[float, float]]:
        """(seconds, value) of the parts between two times."""
        cuts = [t0, *(t for t in self.times if t0 < t < t1), t1]
        return [(b - a, self.at(a)) for a, b in itertools.pairwise(cuts)]


@dataclass
class Wave:
    """mean + amplitude · sin(2π(t / period + phase))."""

    mean: float
    amplitude: float
    period: float
    phase: float = 0.0

    def at(self, t: float) -> float:
        """The value at ``t``."""
        return self.mean + self.amplitude * math.sin(2 * math.pi * (t / self.period + self.phase))

    def area(self, t0: float, t1: float) -> float:
        """The integral between two times."""
        turn, start = 2 * math.pi / self.period, 2 * math.pi * self.phase
        return self.mean * (t1 - t0) + self.amplitude / turn * (
            math.cos(turn * t0 + start) - math.cos(turn * t1 + start)
        )


@dataclass
class Scenario:
    """A world for the library. ``lines`` are its file, after ``epoch`` (unix seconds); the README has the grammar."""

    lines: list[str] = field(default_factory=list)
    epoch: float = 0.0

    def add(self, *lines: str) -> Scenario:
        """Add lines; the scenario itself comes back."""
        self.lines += lines
        return self

    def text(self) -> str:
        """The file."""
        return "\n".join([f"epoch {self.epoch!r}", *self.lines]) + "\n"

    def write(self, path: Path) -> Path:
        """Put the file in place, at once and whole."""
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(self.text())
        fresh.rename(path)
        return path

    @classmethod
    def read(cls, path: Path) -> Scenario:
        """The scenario of a file."""
        lines = path.read_text().splitlines()
        epochs = [float(line.split()[1]) for line in lines if line.startswith("epoch ")]
        return cls([line for line in lines if not line.startswith("epoch ")], epochs[-1] if epochs else 0.0)

    def _course(self, gpu: int, key: str) -> Series | Wave:
        series, wave = Series([_ALWAYS], [keys()[key]]), None
        for line in self.lines:
            words = shlex.split(line, comments=True)
            if len(words) < 2 or words[0] != "gpu" or gpu not in gpu_list(words[1]):
                continue
            if words[2:4] == ["wave", key]:
                options = dict(word.split("=") for word in words[4:])
                wave = Wave(**{name: float(value) for name, value in options.items()})
                continue
            t = float(words[2][1:]) if words[2].startswith("@") else _ALWAYS
            for word in words[2:]:
                name, _, value = word.partition("=")
                if name == key:
                    series.set(t, -9e18 if value == "na" else float(value))
        return wave or series

    def value(self, gpu: int, key: str, unix_s: float) -> float:
        """What a reading at that time must be."""
        return self._course(gpu, key).at(unix_s - self.epoch)

    def area(self, gpu: int, key: str, t0: float, t1: float) -> float:
        """The integral between two unix times, in unit·s."""
        course = self._course(gpu, key)
        if isinstance(course, Wave):
            return course.area(t0 - self.epoch, t1 - self.epoch)
        return sum(seconds * value for seconds, value in course.pieces(t0 - self.epoch, t1 - self.epoch))

    def mean(self, gpu: int, key: str, t0: float, t1: float) -> float:
        """The mean by time between two unix times."""
        return self.area(gpu, key, t0, t1) / (t1 - t0)

    def peak(self, gpu: int, key: str, t0: float, t1: float) -> float:
        """The greatest value of a step function between two unix times."""
        course = self._course(gpu, key)
        if isinstance(course, Wave):
            raise ValueError("the peak of a part of a wave is not worked out: use steps")
        return max(value for _, value in course.pieces(t0 - self.epoch, t1 - self.epoch))

    def energy_mj(self, gpu: int, t0: float, t1: float) -> float:
        """Energy drawn between two unix times, in mJ (mW·s)."""
        return self.area(gpu, "power_mw", t0, t1)


def main(argv: list[str]) -> int:
    """``build``: print the folder for LD_LIBRARY_PATH. ``keys``: print what a scenario can set."""
    if argv == ["build"]:
        print(library_dir())
    elif argv == ["keys"]:
        for name, default in keys().items():
            print(f"{name:<28} {'not supported' if default == -9e18 else f'{default:g}'}")
    else:
        print("usage: simgpu.py build | keys", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
