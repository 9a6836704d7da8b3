"""M5 to M9: how a GPU repairs its memory, how much of that is left, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, each_gpu, finding, gpus_of
from gpubalance.checks.probing.measured import each_measured, whole
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

RESET = "drain the GPU and reset it before the next job"
REPLACE = "drain the node and have the GPU replaced"

RECOVERY_ACTIONS = {
    1: (State.WARN, "a reset", RESET),
    2: (State.FAIL, "a reboot of the node", "drain the node and reboot it"),
    3: (State.WARN, "an end of all peer-to-peer jobs", "let the jobs that use its NVLinks end, then look again"),
    4: (State.FAIL, "to be drained and reset", "drain the node and reset the GPU"),
    5: (State.WARN, "a recovery of its IMEX domain", "restart the IMEX service of the NVLink domain"),
    6: (State.FAIL, "a reset of its bus", "drain the node and reset the GPU's PCI bus, or reboot"),
    7: (State.FAIL, "a reboot of the system", "drain the node and reboot it"),
}
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION. What takes the whole node out of service fails."""


def remapped_rows(probe: Probe) -> list[Finding]:
    """M5: a failed remapping fails: the next error hits a job (DCGM, Azure's and gcm's health checks).

    A pending one warns, because only a reset completes it; rows that were remapped are repaired, and only told.
    """

    def judge(gpu: Gpu, failed: float) -> Iterator[Finding]:
        by_errors = gpu.number("rows_remapped_uncorrectable") or 0
        rows = int(by_errors + (gpu.number("rows_remapped_correctable") or 0))
        more = {"subject": gpu.label, "observed": f"{counted(rows, 'row')} remapped, {by_errors:.0f} after hard errors"}
        if failed:
            yield finding(State.FAIL, f"{gpu.name} could not remap a broken memory row", next_step=REPLACE, **more)
        elif gpu.number("rows_remap_pending"):
            yield finding(State.WARN, f"{gpu.name} waits for a reset to remap a memory row", next_step=RESET, **more)
        elif rows:
            yield finding(State.INFO, f"{gpu.name} has repaired {counted(rows, 'memory row')} for good", **more)

    keys = ("rows_remap_failed", "rows_remap_pending", "rows_remapped_uncorrectable", "rows_remapped_correctable")
    good = "no row remapping failed or pending"
    return each_measured(gpus_of(probe), whole(*keys), "remapped rows", judge, good)


def remapping_left(probe: Probe) -> list[Finding]:
    """M6: how much repair is left.

    Fails from 512 rows remapped after uncorrectable errors (DCGM, Azure's health checks); warns when a bank has few or
    no spare rows left, which is a guess of ours.
    """
    most = gates_of(probe)["remapped_rows_fail"]

    def judge(gpu: Gpu, rows: float) -> Iterator[Finding]:
        if rows >= most:
            yield finding(
                State.FAIL,
                f"{gpu.name} has remapped {rows:.0f} rows after uncorrectable errors",
                subject=gpu.label,
                observed=f"{rows:.0f}",
                expected=f"below {plain(most)}",
                next_step=REPLACE,
            )

    good = f"fewer than {plain(most)} rows remapped after hard errors"
    return each_gpu(probe, "rows_remapped_uncorrectable", "rows remapped after hard errors", judge, good) + _banks(
        probe
    )


def _banks(probe: Probe) -> list[Finding]:
    def judge(gpu: Gpu, low: float) -> Iterator[Finding]:
        none = gpu.number("row_banks_none") or 0
        if low or none:
            yield finding(
                State.WARN,
                f"{gpu.name} has few or no spare rows in {counted(int(low + none), 'memory bank')}",
                subject=gpu.label,
                observed=f"{low:.0f} banks with few, {none:.0f} with none",
                expected="0 and 0",
                next_step="plan an exchange of the GPU: the next errors there cannot be repaired",
            )

    measure = whole("row_banks_low", "row_banks_none")
    return each_measured(gpus_of(probe), measure, "spare rows of memory banks", judge, "spare rows left in every bank")


def retired_pages(probe: Probe) -> list[Finding]:
    """M7: retired pages, the repair of GPUs before Ampere.

    Fails from 63 pages; warns from 15 after double-bit errors, and when a page waits for a reset to be retired (DCGM).
    """
    gates = gates_of(probe)
    most, most_double = gates["retired_pages_fail"], gates["double_bit_pages_warn"]

    def judge(gpu: Gpu, double: float) -> Iterator[Finding]:
        pages = int(double + (gpu.number("retired_pages_single_bit") or 0))
        pending = bool(gpu.number("retired_pages_pending"))
        if not pages and not pending:
            return
        bad = pages >= most
        warned = pending or double >= most_double
        yield finding(
            State.FAIL if bad else State.WARN if warned else State.INFO,
            f"{gpu.name} has retired {counted(pages, 'memory page')}" + (", more wait for a reset" if pending else ""),
            subject=gpu.label,
            observed=f"{pages}, {double:.0f} of them after double-bit errors",
            expected=f"below {plain(most)}, below {plain(most_double)} of them after double-bit errors, none pending",
            next_step=REPLACE if bad else RESET if pending else "run a memory test" if warned else None,
        )

    measure = whole("retired_pages_double_bit", "retired_pages_single_bit", "retired_pages_pending")
    return each_measured(gpus_of(probe), measure, "retired pages", judge, "retired pages within their limits")


def recovery_action(probe: Probe) -> list[Finding]:
    """M8: what the driver says the GPU needs (field 230). What ends the node's service fails, the rest warns."""

    def judge(gpu: Gpu, action: float) -> Iterator[Finding]:
        if action:
            unknown = (State.WARN, f"recovery action {action:.0f}", "look that number up in the driver's nvml.h")
            state, words, step = RECOVERY_ACTIONS.get(int(action), unknown)
            yield finding(
                state,
                f"{gpu.name} asks for {words}",
                subject=gpu.label,
                observed=f"recovery action {action:.0f}",
                expected="0",
                next_step=step,
            )

    return each_gpu(probe, "recovery_action", "recovery action", judge, "no recovery action asked for")


def board_health(probe: Probe) -> list[Finding]:
    """M9: the board's own record (InfoROM) has a valid checksum, and no repair of the chip waits (DCGM)."""

    def inforom(gpu: Gpu, valid: float) -> Iterator[Finding]:
        if not valid:
            step = "update the driver and firmware; have the GPU replaced if it stays"
            yield finding(State.FAIL, f"{gpu.name} has a corrupted InfoROM", subject=gpu.label, next_step=step)

    def repair(gpu: Gpu, channel: float) -> Iterator[Finding]:
        parts = [name for name, on in (("memory channel", channel), ("TPC", gpu.number("tpc_repair_pending"))) if on]
        if parts:
            text = f"{gpu.name} waits for a reset to repair a {' and a '.join(parts)}"
            yield finding(State.FAIL, text, subject=gpu.label, next_step=RESET)

    measure = whole("channel_repair_pending", "tpc_repair_pending")
    return [
        *each_gpu(probe, "inforom_valid", "InfoROM checksum", inforom, "InfoROM valid"),
        *each_measured(gpus_of(probe), measure, "repair status", repair, "no repair pending"),
    ]


REPAIRS = (
    Check(
        "M5",
        "remapped rows",
        remapped_rows,
        "DCGM, Azure, gcm: any failure; a pending one needs a reset",
        required=True,
    ),
    Check("M6", "spare memory rows", remapping_left, "DCGM, Azure: 512 rows; any bank short of spares is our guess"),
    Check("M7", "retired pages", retired_pages, "DCGM: 63 pages, 15 after double-bit errors"),
    Check("M8", "recovery action", recovery_action, "NVML field 230; DCGM and NVRx"),
    Check("M9", "InfoROM and repairs", board_health, "DCGM: any"),
)
