"""gpubalance tells whether a GPU node can train evenly, and which part holds it back if not.

`from gpubalance import bench, probe, selftest, load_run, judge` gives from Python what the commands give;
`gpubalance.api` says more. Nothing is imported before it is used, and torch never.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpubalance.api import bench, judge, load_probe, load_run, load_selftest, probe, selftest
    from gpubalance.checks.finding import Finding, State
    from gpubalance.checks.verdict import Verdict
    from gpubalance.errors import BusyError, CannotMeasureError, GpubalanceError, Interrupted, UsageError
else:
    _HOMES = {
        "bench": "gpubalance.api",
        "probe": "gpubalance.api",
        "selftest": "gpubalance.api",
        "load_run": "gpubalance.api",
        "load_selftest": "gpubalance.api",
        "load_probe": "gpubalance.api",
        "judge": "gpubalance.api",
        "Finding": "gpubalance.checks.finding",
        "State": "gpubalance.checks.finding",
        "Verdict": "gpubalance.checks.verdict",
        "GpubalanceError": "gpubalance.errors",
        "UsageError": "gpubalance.errors",
        "CannotMeasureError": "gpubalance.errors",
        "BusyError": "gpubalance.errors",
        "Interrupted": "gpubalance.errors",
    }

    def __getattr__(name: str) -> object:
        """A public name, imported when it is first asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """All public names, imported or not."""
        return sorted({*globals(), *__all__})


__all__ = [
    "BusyError",
    "CannotMeasureError",
    "Finding",
    "GpubalanceError",
    "Interrupted",
    "State",
    "UsageError",
    "Verdict",
    "__version__",
    "bench",
    "judge",
    "load_probe",
    "load_run",
    "load_selftest",
    "probe",
    "selftest",
]
