"""The one place where an exit code is chosen, and the one handler that maps every exception to it."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from gpubalance.cli.exit_style import wants_nagios
from gpubalance.errors import ExitCode, GpubalanceError
from gpubalance.reports.printable import printable


def main() -> NoReturn:
    """Run the command line and exit."""
    code = run(sys.argv[1:])
    code = _flush(code)
    # Nothing of ours is left to run, and interpreter shutdown must not be able to change the code.
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Only a bug in this function raises."""
    return int(_run(arguments))


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments or os.environ.get("GPUBALANCE_DEBUG", "") not in ("", "0")
    try:
        return _run_app(arguments)
    except GpubalanceError as error:
        if debug:
            _show_traceback()
        complain(error.message, error.next_step)
        return _wrong_use(arguments) if error.exit_code == ExitCode.USAGE else int(error.exit_code)
    except ImportError as error:
        if debug:
            _show_traceback()
        complain(f"this installation is broken: {error}", "pip install --force-reinstall gpubalance")
        return ExitCode.NO_VERDICT
    except KeyboardInterrupt:
        return 130
    except SystemExit:  # typer's way out when a pipe is closed; its code of 1 would say that the node failed
        complain("the output could not be written: nobody reads it", None)
        return ExitCode.NO_VERDICT
    except Exception as error:  # noqa: BLE001  (the boundary of the program: everything else is a bug of ours)
        _show_traceback()
        complain(f"internal error: {type(error).__name__}: {error}", "please report it with the lines above")
        return ExitCode.NO_VERDICT


def _run_app(arguments: list[str]) -> int:
    """standalone_mode=False makes typer raise instead of exit, and return what the command returns."""
    import typer

    from gpubalance.cli.app import app

    # Newer typers carry click inside, older ones import it: the base of BadParameter is right in both.
    complaint: type[Exception] = next(
        base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException" and issubclass(base, Exception)
    )
    try:
        result = app(arguments, prog_name="gpubalance", standalone_mode=False)
    except typer.Abort:
        return 130
    except SystemExit as ending:
        if not ending.code:  # typer's way out when it has printed what a shell completes
            return ExitCode.PASS
        raise
    except complaint as error:
        with suppress(OSError, ValueError, AttributeError):
            error.show()  # type: ignore[attr-defined]
        return _wrong_use(arguments)
    return result if isinstance(result, int) else ExitCode.PASS


def _wrong_use(arguments: list[str]) -> int:
    """2 to a shell; to a monitoring system that would be CRITICAL, so it gets UNKNOWN."""
    return ExitCode.NO_VERDICT if wants_nagios(arguments, os.environ) else ExitCode.USAGE


def complain(message: str, next_step: str | None) -> None:
    """One line on stderr, and a next step; never lets a broken stderr hide the exit code."""
    text = f"gpubalance: {printable(message)}\n" + (f"  next: {printable(next_step)}\n" if next_step else "")
    try:
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def _show_traceback() -> None:
    """On stderr, if there is one: print_exc would take stdout instead, and raise where nobody reads."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            traceback.print_exc()


def _flush(code: int) -> int:
    """A result that could not be written never passes. Words on stderr are no result."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        return code or ExitCode.NO_VERDICT
    return code
