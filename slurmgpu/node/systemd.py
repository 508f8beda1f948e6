"""The few words of sd_notify(3) that a service needs; nothing happens without systemd."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` or ``WATCHDOG=1`` to the service manager."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.send(state.encode())
    except OSError:
        pass  # the manager is gone or busy: its watchdog judges, not we
