"""The command ``slurmgpud``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path

from slurmgpu import __version__
from slurmgpu.config import Config, ConfigError, load
from slurmgpu.node import identity
from slurmgpu.node.clock import SystemClock
from slurmgpu.node.daemon import Daemon
from slurmgpu.node.inventory import gpu_infos
from slurmgpu.node.marks import MarksError
from slurmgpu.node.nvml import DriverUnavailableError, Gate
from slurmgpu.node.pids import Pids
from slurmgpu.node.spool import Spool, SpoolError
from slurmgpu.wire.records import to_plain

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit status: 0 ok, 1 failure, 2 usage."""
    options = _parser().parse_args(argv)
    _log_to_stderr(options.verbose)
    try:
        config = load(options.config)
        if options.inventory:
            return _print_inventory(config)
        daemon = _daemon(config, options.config)
        daemon.prepare()
    except (ConfigError, MarksError, SpoolError, DriverUnavailableError) as error:
        print(f"slurmgpud: {error}", file=sys.stderr)
        return 1
    if options.once:
        daemon.once()
    else:
        return 0 if daemon.run() else 1  # the service manager starts a new process, with the new library
    return 0


def _daemon(config: Config, path: str | None) -> Daemon:
    names, boot_id = identity.find(config), _boot_id()
    spool = Spool(config.node.spool_dir, names, boot_id)
    pids = Pids(config.node.cgroup_roots)
    return Daemon(config.node, names, boot_id, Gate(), spool, SystemClock(), pids, lambda: load(path).node)


def _print_inventory(config: Config) -> int:
    """A line for the node, then one for each GPU: JSON, as in a segment."""
    gate = Gate()
    gate.open()
    devices, counted = gate.devices()
    infos = gpu_infos(gate, devices, time.time_ns() // 1_000_000)
    node = identity.find(config).node
    for plain in ({"cluster": config.cluster, "node": node, "counted": counted}, *map(to_plain, infos)):
        print(json.dumps(plain))
    gate.close()
    return 0


def _boot_id() -> str:
    try:
        return Path(os.environ.get("SLURMGPU_BOOT_ID_FILE", _BOOT_ID)).read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _log_to_stderr(verbose: bool) -> None:
    """Plain lines; under systemd with the level in front, since the journal has the time."""
    under_systemd = "JOURNAL_STREAM" in os.environ
    handler = logging.StreamHandler()
    handler.setFormatter(_JournalFormatter() if under_systemd else logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


_FORMAT = "[%(asctime)s.%(msecs)03d] %(levelname)s: %(message)s"


class _JournalFormatter(logging.Formatter):
    _PRIORITY = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))

    def format(self, record: logging.LogRecord) -> str:
        priority = next(number for level, number in self._PRIORITY if record.levelno >= level)
        return f"<{priority}>{super().format(record)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurmgpud", description="Reads the GPUs of this node and says which job they belong to."
    )
    parser.add_argument("--config", metavar="FILE", help="default: $SLURMGPU_CONF, else /etc/slurmgpu/slurmgpu.toml")
    parser.add_argument("--inventory", action="store_true", help="print this node's GPUs as JSON lines and end")
    parser.add_argument("--once", action="store_true", help="look at the marks, take one reading, write it and end")
    parser.add_argument(
        "--foreground", action="store_true", help="stay in the foreground (it always does: systemd starts it)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is not available, too")
    parser.add_argument("--version", action="version", version=f"slurmgpud {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
