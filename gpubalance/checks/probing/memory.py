"""M: memory errors, what the GPU did about them, and what it asks for.

Counters here run since the driver was loaded, or over the GPU's whole life. They say that something happened, not that
it happens now.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubalance.checks.finding import Finding, State, counted
from gpubalance.checks.probing.check import Check, Gpu, each_gpu, finding, gpus_of, not_measured
from gpubalance.checks.probing.measured import each_measured, whole
from gpubalance.checks.probing.repairs import REPAIRS
from gpubalance.record.gates import gates_of
from gpubalance.record.probe import Probe
from gpubalance.thresholds import plain

ECC_OPTIONAL_BRANDS = frozenset({1, 3, 5, 6, 12, 13, 15, 16})
"""nvml.h, nvmlBrandType_t: Quadro, NVS, GeForce, Titan, RTX and their like come with ECC off."""

REPLACE = "drain the node and have the GPU replaced"


def ecc_mode(probe: Probe) -> list[Finding]:
    """M1: ECC is on. Off warns on data-centre parts, where it is on by default; elsewhere it is somebody's choice."""

    def judge(gpu: Gpu, mode: float) -> Iterator[Finding]:
        if mode == 0:
            by_choice = gpu.number("brand") in ECC_OPTIONAL_BRANDS
            yield finding(
                State.INFO if by_choice else State.WARN,
                f"{gpu.name} runs without ECC" + (", the default of its kind" if by_choice else ""),
                subject=gpu.label,
                observed="off",
                expected="on",
                evidence=("memory errors stay unseen and spoil results in silence",),
                next_step=None if by_choice else f"turn ECC on with `nvidia-smi -i {gpu.index} -e 1` and reset the GPU",
            )

    return each_gpu(probe, "ecc_mode", "ECC mode", judge, "ECC not turned off")


def uncorrected(probe: Probe) -> list[Finding]:
    """M2: any uncorrected error since the driver was loaded spoiled somebody's numbers or job."""

    def judge(gpu: Gpu, errors: float) -> Iterator[Finding]:
        if errors > 0:
            yield finding(
                State.FAIL,
                f"{gpu.name} had {counted(int(errors), 'uncorrected ECC error')} since the driver was loaded",
                subject=gpu.label,
                observed=f"{errors:.0f}",
                expected="0",
                next_step="drain the node, reset the GPU, and replace it if it happens again",
            )

    return each_gpu(probe, "ecc_uncorrected", "uncorrected ECC errors", judge, "no uncorrected ECC errors")


def sram(probe: Probe) -> list[Finding]:
    """M3: uncorrected SRAM errors in the GPU's life, which no row remapping repairs.

    Fails when the GPU says that its own limit is passed (as DCGM does) and above 4 (ml-engineering's advice for an
    exchange); Azure's health checks warn above 0.
    """
    most = gates_of(probe)["sram_uncorrected_fail"]

    def judge(gpu: Gpu, errors: float) -> Iterator[Finding]:
        exceeded = bool(gpu.number("sram_threshold_exceeded"))
        if errors > 0 or exceeded:
            yield finding(
                State.FAIL if exceeded or errors > most else State.WARN,
                f"{gpu.name} had {counted(int(errors), 'uncorrected SRAM error')} in its life",
                subject=gpu.label,
                observed=f"{errors:.0f}",
                expected=f"0 (fails above {plain(most)}, or when the GPU's own limit is passed)",
                evidence=("the GPU says that its own limit is passed",) if exceeded else (),
                next_step=REPLACE
                if exceeded or errors > most
                else "run a memory test; have the GPU replaced if the number grows",
            )

    measure = whole("sram_uncorrected_aggregate", "sram_threshold_exceeded")
    return each_measured(gpus_of(probe), measure, "uncorrected SRAM errors", judge, "no uncorrected SRAM errors")


def corrected(probe: Probe) -> list[Finding]:
    """M4: corrected errors are normal and only told.

    Azure's health checks warn above 10,000 of SRAM and 20,000,000 altogether in the GPU's life. What matters more, how
    fast they come under load, is judged where the load is.
    """
    gates = gates_of(probe)
    most, most_in_sram = gates["corrected_warn"], gates["sram_corrected_warn"]

    def judge(gpu: Gpu, errors: float) -> Iterator[Finding]:
        life, in_sram = gpu.number("ecc_corrected_aggregate") or 0, gpu.number("sram_corrected_aggregate") or 0
        many = life > most or in_sram > most_in_sram
        if many or errors or life or in_sram:
            yield finding(
                State.WARN if many else State.INFO,
                f"{gpu.name} had {_count(life, in_sram, most_in_sram)} in its life",
                subject=gpu.label,
                observed=f"{errors:.0f} since the driver was loaded; in its life {life:.0f}, {in_sram:.0f} in SRAM",
                expected=f"at most {plain(most)} in its life, {plain(most_in_sram)} in SRAM",
                next_step="run a memory test under load and look at how fast the number grows" if many else None,
            )

    gpus = [gpu for gpu in gpus_of(probe) if gpu.number("ecc_corrected") is not None]
    return [
        *each_gpu(
            probe, "ecc_corrected", "corrected ECC errors", judge, "no known number of corrected errors too high"
        ),
        *not_measured(gpus, "ecc_corrected_aggregate", "corrected ECC errors of the whole life"),
        *not_measured(gpus, "sram_corrected_aggregate", "corrected SRAM errors of the whole life"),
    ]


def _count(life: float, in_sram: float, most_in_sram: float) -> str:
    """What a reader is told first: the number that passes its limit."""
    if in_sram > most_in_sram:
        return counted(int(in_sram), "corrected SRAM error")
    return counted(int(life), "corrected ECC error")


CHECKS = (
    Check("M1", "ECC mode", ecc_mode, "on by default on data-centre parts"),
    Check("M2", "uncorrected ECC errors", uncorrected, "gcm, imbue and Cluster Health Scanner: any", required=True),
    Check("M3", "uncorrected SRAM errors", sram, "DCGM: the GPU's own flag; Azure: above 0; ml-engineering: above 4"),
    Check("M4", "corrected ECC errors", corrected, "Azure: SRAM 10,000, all memory 20,000,000"),
    *REPAIRS,
)
