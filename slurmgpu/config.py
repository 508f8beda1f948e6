"""Configuration: TOML, every key with a default that works. Shared by the node program and everything else.

Path: ``--config``, else ``SLURMGPU_CONF``, else ``/etc/slurmgpu/slurmgpu.toml`` with ``/etc/slurmgpu/conf.d/*.toml``
laid over it in the order of names. A file that was asked for must exist; the default one need not.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

DEFAULT_PATH = Path("/etc/slurmgpu/slurmgpu.toml")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class ConfigError(ValueError):
    """What is wrong with the configuration, in one line that names the file and the key."""


class Seconds(float):
    """A duration: a number of seconds, or a text such as "30s", "5m", "1h"."""


@dataclass(frozen=True)
class NodeConfig:
    """``[node]``: what slurmgpud does on a compute node."""

    name: str = ""  # Slurm's NodeName; empty: SLURMD_NODENAME of the hooks, until then the short host name
    run_dir: Path = Path("/run/slurmgpu")
    spool_dir: Path = Path("/var/lib/slurmgpu/spool")
    interval: Seconds = Seconds(10)
    flush: Seconds = Seconds(60)
    medium: Seconds = Seconds(30)  # between readings of the medium tier, and looks at processes
    slow: Seconds = Seconds(60)
    backend: str = "auto"  # nvml: an error where NVML cannot be used; auto: nvidia-smi meanwhile
    cgroup_roots: tuple[str, ...] = (  # where Slurm keeps its control groups; * is a part of one name
        "/slurm",
        "/slurm_*",
        "/system.slice/slurmstepd.scope",
        "/system.slice/*_slurmstepd.scope",
    )

    def check(self) -> None:
        if not 0.1 <= self.interval <= 3600:
            raise ValueError("node.interval must lie between 0.1 s and 1 h")
        if not self.interval <= self.flush <= 3600:
            raise ValueError("node.flush must lie between node.interval and 1 h")
        if not 0.1 <= self.medium <= self.slow <= 86400:
            raise ValueError("node.medium must lie between 0.1 s and node.slow, and that below 1 d")
        if not all(root.startswith("/") for root in self.cgroup_roots):
            raise ValueError("node.cgroup_roots must be paths below the mount point, such as /slurm")
        if self.backend not in ("auto", "nvml"):
            raise ValueError('node.backend must be "auto" or "nvml"')


@dataclass(frozen=True)
class CollectConfig:
    """``[collect]``: where the collector looks."""

    spool_dirs: tuple[str, ...] = ()  # folders or patterns of them; empty: node.spool_dir
    every: Seconds = Seconds(10)

    def check(self) -> None:
        if not 0.1 <= self.every <= 3600:
            raise ValueError("collect.every must lie between 0.1 s and 1 h")


@dataclass(frozen=True)
class SlurmConfig:
    """``[slurm]``: what the collector asks Slurm, for names, states and ends of jobs."""

    ask: bool = True
    every: Seconds = Seconds(60)  # at most one question to the accounting in this time
    look_back: Seconds = Seconds(7 * 86400)  # of a job that ended longer ago nothing more is asked
    deadline: Seconds = Seconds(30)  # of one command
    bin_dir: str = ""  # where sacct and scontrol are; empty: in PATH

    def check(self) -> None:
        if not 1 <= self.every <= 86400:
            raise ValueError("slurm.every must lie between 1 s and 1 d")
        if not 1 <= self.deadline <= 600:
            raise ValueError("slurm.deadline must lie between 1 s and 10 min")


@dataclass(frozen=True)
class StoreConfig:
    """``[store]``: the database. ``SLURMGPU_STORE_URL`` wins over the file."""

    url: str = "sqlite:////var/lib/slurmgpu/slurmgpu.db"

    def check(self) -> None:
        if "://" not in self.url:
            raise ValueError("store.url must be a URL such as sqlite:////var/lib/slurmgpu/slurmgpu.db")


@dataclass(frozen=True)
class Config:
    """The whole configuration; see the data classes of the sections for the keys."""

    cluster: str = ""  # Slurm's ClusterName; empty: SLURM_CLUSTER_NAME of the hooks
    node: NodeConfig = field(default_factory=NodeConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    store: StoreConfig = field(default_factory=StoreConfig)


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read the configuration. Raises :class:`ConfigError`."""
    asked = path or os.environ.get("SLURMGPU_CONF")
    main = Path(asked) if asked else DEFAULT_PATH
    files = [main] if asked or main.exists() else []
    if not asked:
        files += sorted((main.parent / "conf.d").glob("*.toml"))
    values: dict[str, Any] = {}
    for file in files:
        _merge(values, _read(file), file, Config)
    url = os.environ.get("SLURMGPU_STORE_URL")
    if url:
        values.setdefault("store", {})["url"] = url
    try:
        config: Config = _build(Config, values)
    except ValueError as error:
        raise ConfigError(f"{', '.join(map(str, files)) or 'configuration'}: {error}") from error
    return config


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{file}: {error}") from error


def _merge(into: dict[str, Any], values: dict[str, Any], file: Path, cls: type, prefix: str = "") -> None:
    hints = get_type_hints(cls)
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"{file}: unknown key {prefix}{key}{_nearest(key, cls, prefix)}")
        if is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {prefix}{key} is a table: write [{prefix}{key}]")
            _merge(into.setdefault(key, {}), value, file, hints[key], f"{prefix}{key}.")
        else:
            into[key] = value


def _nearest(key: str, cls: type, prefix: str) -> str:
    import difflib  # only ever needed for a mistake

    names = all_keys()
    near = difflib.get_close_matches(prefix + key, names, 1, 0.5) or difflib.get_close_matches(
        key, [name.rpartition(".")[2] for name in names], 1, 0.6
    )
    near = [name for name in names if near and (name == near[0] or name.rpartition(".")[2] == near[0])]
    if near:
        return f": did you mean {near[0]}?"
    return f": known are {', '.join(f'{prefix}{spec.name}' for spec in fields(cls))}"


def all_keys(cls: type = Config, prefix: str = "") -> list[str]:
    """All keys with their sections, dotted."""
    hints = get_type_hints(cls)
    keys: list[str] = []
    for spec in fields(cls):
        if is_dataclass(hints[spec.name]):
            keys += all_keys(hints[spec.name], f"{prefix}{spec.name}.")
        else:
            keys.append(prefix + spec.name)
    return keys


def _build(cls: Any, values: dict[str, Any], prefix: str = "") -> Any:
    hints = get_type_hints(cls)
    made: dict[str, Any] = {}
    for key, value in values.items():
        kind = hints[key]
        made[key] = (
            _build(kind, value, f"{prefix}{key}.") if is_dataclass(kind) else _convert(kind, value, prefix + key)
        )
    result = cls(**made)
    if hasattr(result, "check"):
        result.check()
    return result


def _convert(kind: Any, value: Any, name: str) -> Any:
    if kind is Seconds:
        return Seconds(duration_s(value, name))
    if kind is Path:
        if not isinstance(value, str) or not value.startswith("/"):
            raise ValueError(f"{name} must be an absolute path, not {value!r}")
        return Path(value)
    if kind == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ValueError(f"{name} must be a list of texts, not {value!r}")
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, not {value!r}")
    return value


def duration_s(value: object, name: str = "duration") -> float:
    """Seconds of a number or of a text such as "30s". Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        number = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = value[len(number) :].strip()
        try:
            return float(number) * _UNITS[unit or "s"]
        except (ValueError, KeyError):
            pass
    raise ValueError(f'{name} must be seconds or a text such as "30s", "5m", "1h", not {value!r}')
