"""``slurmgpu collect`` that stays: passes over the spools, and now and then a question to Slurm."""

from __future__ import annotations

import logging
import signal
import time

from sqlalchemy.exc import SQLAlchemyError

from slurmgpu.collect.accounts import Accounts
from slurmgpu.collect.spools import Collector
from slurmgpu.store.engine import first_line

log = logging.getLogger(__name__)

_BACK_OFF_S = (1.0, 300.0)


def stay(collector: Collector, accounts: Accounts | None, every_s: float) -> None:
    """Until SIGTERM or SIGINT. What the database refuses stays in the spools and is tried again."""
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # a pass is never broken off
    back_off_s = _BACK_OFF_S[0]
    log.info("collecting every %g s", every_s)
    while True:
        pause_s = every_s
        try:
            taken = collector.collect()
            if accounts is not None:
                accounts.tick(time.monotonic(), time.time())
        except SQLAlchemyError as error:
            pause_s, back_off_s = back_off_s, min(2 * back_off_s, _BACK_OFF_S[1])
            log.error("the database failed: %s; tried again in %g s", first_line(error), pause_s)
        else:
            back_off_s = _BACK_OFF_S[0]
            if taken.written or taken.aside:
                log.info("%d segments taken, %d set aside", taken.written, taken.aside)
        if signal.sigtimedwait(ends, pause_s) is not None:
            log.info("stopped")
            return
