"""From Python what the commands give: the same measurement, the same record, the same judgement.

    from gpubalance import bench

    finished = bench(nproc=2, inject=["compute:rank=1,percent=20"])
    print(finished.judgement.verdict, finished.judgement.sentence)

Settings have the names and the spelling of the flags; lists may be lists, times may be seconds. Variables and files of
settings steer the commands only. Every expected failure is a GpubalanceError.

Children are started as `python -m`, so that the caller's script is never run again: it needs no
`if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar, overload

from gpubalance import settings as words
from gpubalance.checks.probing.verdict import ProbeJudgement
from gpubalance.checks.selftest.verdict import SelftestJudgement, judge_selftest
from gpubalance.checks.verdict import Judgement
from gpubalance.config import Kind, as_flag
from gpubalance.errors import CannotMeasureError, UsageError
from gpubalance.faults import Fault, parse_fault
from gpubalance.message_sizes import parse_sizes
from gpubalance.record import file as files
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.record.selftest import Selftest
from gpubalance.reports.document import document_text
from gpubalance.reports.formats import judged
from gpubalance.session import bench as bench_story
from gpubalance.session import probe as probe_story
from gpubalance.session import selftest as selftest_story
from gpubalance.session.bench import Finished
from gpubalance.session.probe import Probed
from gpubalance.session.selftest import Selftested

S = TypeVar("S", words.BenchSettings, words.ProbeSettings, words.SelftestSettings)
T = TypeVar("T")

Texts = str | Sequence[str | int]
"""`"0,2"` or `["0", 2]`."""

ORIGIN = "argument"
"""Where a setting came from, in the record, when it is not the default."""


def bench(
    *,
    nproc: int | None = None,
    devices: Texts | None = None,
    device: str = "auto",
    expect_gpus: int | None = None,
    workload: Texts | None = None,
    model: str = "mlp",
    batch: int | None = None,
    budget: str | float | None = None,
    margin: str | None = None,
    threshold: str | Sequence[str] = (),
    inject: str | Sequence[str] = (),
    sizes: Texts | None = None,
    collectives: Texts | None = None,
    dtype: str = "float32",
    nccl_tests_compat: bool = False,
    jitter: bool = False,
    out: str | os.PathLike[str] | None = None,
    launcher: str = "auto",
    stall_timeout: str | float = "60s",
    bisect: str = "auto",
    what_if: Texts = (),
    sample_interval: float = 0.1,
    seed: int = 2026,
    min_score: float | None = None,
    force: bool = False,
) -> Finished | None:
    """What `gpubalance bench` measures: `.run` is the record and `.judgement` what it means. Saved only to `out`.

    Safe from any script: children are started as `python -m` and never import the caller's main module. None: this
    process belongs to one rank of a launcher such as torchrun, and the process of rank 0 has the result.

    Raises UsageError, CannotMeasureError or BusyError when nothing could be measured, Interrupted when a signal came
    before there was anything to keep; signals are why it runs in the main thread only.
    """
    _check_thread("bench")
    settings = _with_origins(
        words.BenchSettings(
            nproc=_checked("nproc", Kind.WHOLE, nproc),
            devices=None if devices is None else _names("devices", devices),
            device=_checked("device", Kind.TEXT, device),
            expect_gpus=_checked("expect_gpus", Kind.WHOLE, expect_gpus),
            workloads=None if workload is None else _names("workload", workload),
            model=_checked("model", Kind.TEXT, model),
            batch=_checked("batch", Kind.WHOLE, batch),
            budget_s=None if budget is None else _seconds("budget", budget),
            margin=None if margin is None else words.parse_margin(_checked("margin", Kind.TEXT, margin)),
            thresholds=_texts("threshold", threshold),
            inject=_faults(inject),
            sizes=None if sizes is None else parse_sizes(str(as_flag("sizes", Kind.LIST, sizes))),
            collectives=None
            if collectives is None
            else words.parse_collectives(",".join(_names("collectives", collectives))),
            dtype=_checked("dtype", Kind.TEXT, dtype),
            nccl_tests_compat=_checked("nccl_tests_compat", Kind.FLAG, nccl_tests_compat),
            jitter=_checked("jitter", Kind.FLAG, jitter),
            out=_place(out),
            launcher=_checked("launcher", Kind.TEXT, launcher),
            force=_checked("force", Kind.FLAG, force),
            stall_s=_seconds("stall_timeout", stall_timeout),
            bisect=_checked("bisect", Kind.TEXT, bisect),
            what_if=_names("what_if", what_if) if what_if else (),
            sample_interval_s=_checked("sample_interval", Kind.NUMBER, sample_interval),
            seed=_checked("seed", Kind.WHOLE, seed),
            min_score=_checked("min_score", Kind.NUMBER, min_score),
        )
    )
    finished = bench_story.bench(settings)
    if finished is not None:
        _save(settings.out, document_text(finished.run, finished.judgement))
    return finished


def probe(
    *,
    load: bool = False,
    force: bool = False,
    expect_gpus: int | None = None,
    expect_nvlinks: int | None = None,
    require: Texts = (),
    only: Texts = (),
    skip: Texts = (),
    simulate: str | None = None,
    threshold: str | Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
) -> Probed:
    """What `gpubalance probe` sees: `.probe` is the record and `.judgement` what it means. Saved only to `out`.

    As safe as `bench`, and raises the same errors.
    """
    _check_thread("probe")
    settings = _with_origins(
        words.ProbeSettings(
            load=_checked("load", Kind.FLAG, load),
            force=_checked("force", Kind.FLAG, force),
            expect_gpus=_checked("expect_gpus", Kind.WHOLE, expect_gpus),
            expect_nvlinks=_checked("expect_nvlinks", Kind.WHOLE, expect_nvlinks),
            require=_names("require", require) if require else (),
            only=_names("only", only) if only else (),
            skip=_names("skip", skip) if skip else (),
            simulate=_checked("simulate", Kind.TEXT, simulate),
            thresholds=_texts("threshold", threshold),
            out=_place(out),
        )
    )
    probed = probe_story.probe(settings)
    _save(settings.out, document_text(probed.probe, probed.judgement))
    return probed


def selftest(
    *,
    quick: bool = False,
    nproc: int | None = None,
    devices: Texts | None = None,
    device: str = "auto",
    margin: str | None = None,
    threshold: str | Sequence[str] = (),
    rows: Texts | None = None,
    repeat: int = 1,
    healthy: int = 0,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    stall_timeout: str | float = "60s",
    force: bool = False,
) -> Selftested:
    """What `gpubalance selftest` plays and names: `.record` is the record and `.judgement` what it means. Saved only
    to `out`. It plays faults on purpose, so that it says how far the tool is right here, and nothing about the node.

    As safe as `bench`, and raises the same errors.
    """
    _check_thread("selftest")
    settings = _with_origins(
        words.SelftestSettings(
            quick=_checked("quick", Kind.FLAG, quick),
            nproc=_checked("nproc", Kind.WHOLE, nproc),
            devices=None if devices is None else _names("devices", devices),
            device=_checked("device", Kind.TEXT, device),
            margin=None if margin is None else words.parse_margin(_checked("margin", Kind.TEXT, margin)),
            thresholds=_texts("threshold", threshold),
            rows=None if rows is None else _names("rows", rows),
            repeat=_checked("repeat", Kind.WHOLE, repeat),
            healthy=_checked("healthy", Kind.WHOLE, healthy),
            seed=_checked("seed", Kind.WHOLE, seed),
            out=_place(out),
            stall_s=_seconds("stall_timeout", stall_timeout),
            force=_checked("force", Kind.FLAG, force),
        )
    )
    selftested = selftest_story.selftest(settings)
    _save(settings.out, document_text(selftested.record, selftested.judgement))
    return selftested


def load_run(path: str | os.PathLike[str]) -> Run:
    """The record in a file that `bench` saved. Raises UsageError that says what is wrong with the file."""
    return files.load_run(Path(path))


def load_probe(path: str | os.PathLike[str]) -> Probe:
    """The record in a file that `probe` saved. Raises UsageError as `load_run` does."""
    record = files.load_record(Path(path))
    if not isinstance(record, Probe):
        raise UsageError(f"{path} is a {record.kind} run, not a probe")
    return record


def load_selftest(path: str | os.PathLike[str]) -> Selftest:
    """The record in a file that `selftest` saved. Raises UsageError as `load_run` does."""
    record = files.load_any(Path(path))
    if not isinstance(record, Selftest):
        raise UsageError(f"{path} is a {record.kind}, not a selftest")
    return record


@overload
def judge(record: Run) -> Judgement: ...
@overload
def judge(record: Probe) -> ProbeJudgement: ...
@overload
def judge(record: Selftest) -> SelftestJudgement: ...
def judge(record: Run | Probe | Selftest) -> Judgement | ProbeJudgement | SelftestJudgement:
    """What a record means by the rules of this version, under the settings that it was made with."""
    return judge_selftest(record) if isinstance(record, Selftest) else judged(record)


def _check_thread(name: str) -> None:
    """Signals reach the main thread only, and children end with the thread that started them."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(f"{name} was called in another thread than the main one", "call it there, or run the command")


def _with_origins(settings: S) -> S:
    """The same settings, each that is not the default marked as the caller's; checks that `out` can be written."""
    if settings.out is not None:
        files.check_writable(Path(settings.out))
    default = type(settings)()
    given = [field.name for field in fields(settings) if getattr(settings, field.name) != getattr(default, field.name)]
    return replace(settings, origins=dict.fromkeys(given, ORIGIN))


def _checked(name: str, kind: Kind, value: T) -> T:
    """The value itself. Raises UsageError when it is not of this kind; None asks for nothing."""
    if value is not None:
        as_flag(name, kind, value)
    return value


def _names(name: str, value: Texts) -> tuple[str, ...]:
    return words.parse_list(str(as_flag(name, Kind.LIST, value)))


def _seconds(name: str, value: str | float) -> float:
    return words.parse_duration(str(as_flag(name, Kind.TIME, value)))


def _faults(inject: str | Sequence[str]) -> tuple[Fault, ...]:
    return tuple(parse_fault(text) for text in _texts("inject", inject))


def _texts(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    texts = as_flag(name, Kind.MANY, value)
    assert isinstance(texts, list)
    return tuple(texts)


def _place(out: str | os.PathLike[str] | None) -> str | None:
    return _checked("out", Kind.TEXT, os.fspath(out) if isinstance(out, os.PathLike) else out)


def _save(out: str | None, text: str) -> None:
    if out is None:
        return
    try:
        files.save_text(Path(out), text)
    except OSError as error:
        raise CannotMeasureError(f"the record could not be saved to {out}: {error.strerror}") from None
