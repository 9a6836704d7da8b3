"""INT, TERM and HUP become one exception in the main thread, whatever the parent was started with."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gpubalance.errors import Interrupted

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted on the first INT, TERM or HUP; later ones are ignored while the ranks are being ended.

    A background job of a script starts with SIGINT ignored, and would then leave its ranks behind: INT and TERM are
    handled in any case. HUP stays ignored where it was, because that is what nohup asks for.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for handled in HANDLED:
            signal.signal(handled, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in HANDLED}
    for number in HANDLED:
        if number != signal.SIGHUP or before[number] != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
