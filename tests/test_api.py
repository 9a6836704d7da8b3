"""From Python the same as from the command line, from any script, and without importing anything before it is used."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gpubalance
from gpubalance import api
from gpubalance.cli.config_file import known_options
from gpubalance.errors import CannotMeasureError, GpubalanceError, Interrupted, UsageError
from gpubalance.faults import Fault
from gpubalance.record.file import load_record
from gpubalance.record.probe import Probe
from gpubalance.record.run import Run
from gpubalance.session.bench import Finished
from gpubalance.session.selftest import Selftested
from gpubalance.settings import BenchSettings, Margin, ProbeSettings, SelftestSettings
from gpubalance.testing.profiles import h200_node
from tests.reports.helpers import KEPT, kept, pair
from tests.reports.selftest_helpers import all_right
from tests.support import HEALTHY, ROOT, SCRIPTED, command_environment, scripted_bench_command, slow, write_script

PROBE = ROOT / "examples/probes/h200x2-p2p-off.json"


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=command_environment(**environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import gpubalance; print(*sorted(set(sys.modules) - before))"
    loaded = python(code).stdout.split()
    assert "gpubalance" in loaded
    assert not [name for name in loaded if name.startswith("gpubalance.")]
    assert not {"torch", "numpy", "pydantic", "typer", "pandas"} & set(loaded)


def test_using_it_never_imports_torch() -> None:
    code = "import sys; from gpubalance import *; probe(simulate='h200x2', only='S'); print('torch' in sys.modules)"
    assert python(code).stdout == "False\n"


def test_every_public_name_is_there_and_nothing_else_is() -> None:
    assert gpubalance.__all__ == sorted(gpubalance.__all__)
    assert {name for name in gpubalance.__all__ if getattr(gpubalance, name) is None} == set()
    assert set(gpubalance.__all__) <= set(dir(gpubalance))
    with pytest.raises(AttributeError, match="module 'gpubalance' has no attribute 'benhc'"):
        getattr(gpubalance, "benhc")  # noqa: B009  (mypy knows that it is not there)


def test_what_a_star_brings_is_what_is_said_to_be_public_and_what_types_are_checked_for() -> None:
    brought = python("from gpubalance import *; print(*sorted(set(dir()) - set(dir(__builtins__))))").stdout.split()
    ours = [name for name in brought if name == "__version__" or not name.startswith("__")]
    assert ours == gpubalance.__all__
    checked = ast.parse(Path(gpubalance.__file__).read_text()).body
    (block,) = [node for node in checked if isinstance(node, ast.If)]
    typed = {each.name for node in block.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert {*typed, "__version__"} == set(gpubalance.__all__)


def test_what_is_public_is_what_the_modules_hold() -> None:
    assert gpubalance.bench is api.bench
    assert gpubalance.UsageError is UsageError
    assert issubclass(gpubalance.Interrupted, gpubalance.GpubalanceError)


COMMAND_ONLY = {
    "json", "verbose", "fail_on", "report", "exit_style", "on_no_verdict", "baseline", "require_baseline",
}  # fmt: skip
"""Flags about output, exit codes and comparison; from Python one looks at the judgement."""


@pytest.mark.parametrize(("name", "function"), [("bench", api.bench), ("probe", api.probe), ("selftest", api.selftest)])
def test_arguments_have_the_names_of_the_flags(name: str, function: Callable[..., object]) -> None:
    arguments = inspect.signature(function).parameters
    assert set(arguments) == set(known_options()[name]) - COMMAND_ONLY


Settings = Callable[..., Any]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings with which a function would start, measured by nobody."""
    taken: list[Any] = []

    def take(wanted: Any) -> Any:
        taken.append(wanted)
        raise CannotMeasureError("only looking")

    monkeypatch.setattr(api.bench_story, "bench", take)
    monkeypatch.setattr(api.probe_story, "probe", take)
    monkeypatch.setattr(api.selftest_story, "selftest", take)

    def start(function: Callable[..., object], **values: Any) -> Any:
        with pytest.raises(CannotMeasureError, match="only looking"):
            function(**values)
        return taken.pop()

    return start


@pytest.mark.parametrize(
    ("function", "expected"),
    [(api.bench, BenchSettings()), (api.probe, ProbeSettings()), (api.selftest, SelftestSettings())],
)
def test_without_arguments_all_is_as_the_command_has_it(
    settings: Settings, function: Callable[..., object], expected: object
) -> None:
    assert settings(function) == expected


BENCH_VALUES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"nproc": 2}, {"nproc": 2}),
    ({"devices": "0, GPU-1a"}, {"devices": ("0", "GPU-1a")}),
    ({"devices": [0, "GPU-1a"]}, {"devices": ("0", "GPU-1a")}),
    ({"device": "cpu"}, {"device": "cpu"}),
    ({"expect_gpus": 8}, {"expect_gpus": 8}),
    ({"workload": ("solo", "ddp")}, {"workloads": ("solo", "ddp")}),
    ({"model": "transformer"}, {"model": "transformer"}),
    ({"batch": 96}, {"batch": 96}),
    ({"budget": 90}, {"budget_s": 90.0}),
    ({"budget": "5m"}, {"budget_s": 300.0}),
    ({"margin": "4:8"}, {"margin": Margin(0.04, 0.08)}),
    ({"inject": "sleep:rank=1,ms=5"}, {"inject": (Fault("sleep", rank=1, ms=5.0),)}),
    ({"inject": ["sleep:rank=1,ms=5"]}, {"inject": (Fault("sleep", rank=1, ms=5.0),)}),
    ({"launcher": "none"}, {"launcher": "none"}),
    ({"stall_timeout": 1.5}, {"stall_s": 1.5}),
    ({"bisect": "never"}, {"bisect": "never"}),
    ({"what_if": ["p2p"]}, {"what_if": ("p2p",)}),
    ({"what_if": "p2p"}, {"what_if": ("p2p",)}),
    ({"sample_interval": 1}, {"sample_interval_s": 1}),
    ({"seed": 0}, {"seed": 0}),
    ({"min_score": 95}, {"min_score": 95}),
    ({"force": True}, {"force": True}),
]


@pytest.mark.parametrize(("given", "expected"), BENCH_VALUES, ids=lambda values: str(values)[:40])
def test_an_argument_is_a_setting_and_the_record_will_say_so(
    settings: Settings, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    wanted = settings(api.bench, **given)
    assert replace(wanted, origins={}) == BenchSettings(**expected)
    assert wanted.origins == dict.fromkeys(expected, "argument")


def test_arguments_of_probe_are_settings(settings: Settings) -> None:
    wanted = settings(
        api.probe,
        load=True,
        force=True,
        expect_gpus=8,
        expect_nvlinks=18,
        require="xid",
        only=["M", "X1"],
        skip=("M2",),
    )
    expected = ProbeSettings(
        load=True, force=True, expect_gpus=8, expect_nvlinks=18, require=("xid",), only=("M", "X1"), skip=("M2",)
    )
    assert replace(wanted, origins={}) == expected
    assert set(wanted.origins) == {"load", "force", "expect_gpus", "expect_nvlinks", "require", "only", "skip"}
    assert settings(api.probe, only=[], skip="", require=()) == ProbeSettings()


SELFTEST_VALUES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"quick": True}, {"quick": True}),
    ({"nproc": 4}, {"nproc": 4}),
    ({"devices": [0, 2]}, {"devices": ("0", "2")}),
    ({"device": "cpu"}, {"device": "cpu"}),
    ({"margin": "3:5"}, {"margin": Margin(0.03, 0.05)}),
    ({"threshold": "transient_warn=2"}, {"thresholds": ("transient_warn=2",)}),
    ({"rows": ["compute", "sleep"]}, {"rows": ("compute", "sleep")}),
    ({"repeat": 10}, {"repeat": 10}),
    ({"healthy": 5}, {"healthy": 5}),
    ({"seed": 7}, {"seed": 7}),
    ({"stall_timeout": "2m"}, {"stall_s": 120.0}),
    ({"force": True}, {"force": True}),
]


@pytest.mark.parametrize(("given", "expected"), SELFTEST_VALUES, ids=lambda values: str(values)[:40])
def test_arguments_of_selftest_are_settings(
    settings: Settings, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    wanted = settings(api.selftest, **given)
    assert replace(wanted, origins={}) == SelftestSettings(**expected)
    assert wanted.origins == dict.fromkeys(expected, "argument")


def test_a_selftest_is_saved_where_asked_loaded_and_judged_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = all_right()
    done = Selftested(record, gpubalance.judge(record))
    monkeypatch.setattr(api.selftest_story, "selftest", lambda _: done)
    assert api.selftest(out=tmp_path / "selftest.json") is done
    loaded = gpubalance.load_selftest(tmp_path / "selftest.json")
    assert loaded == record
    assert gpubalance.judge(loaded) == done.judgement
    with pytest.raises(UsageError, match="is a bench, not a selftest"):
        gpubalance.load_selftest(KEPT["h200x2-slow"])


WRONG: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (api.bench, {"nproc": "2"}, "nproc must be a whole number, not text: '2'"),
    (api.bench, {"nproc": 0}, "nproc must be above 0"),
    (api.bench, {"nproc": 2.0}, "nproc must be a whole number"),
    (api.bench, {"devices": []}, "devices is empty"),
    (api.bench, {"devices": 0}, "devices must be text with commas"),
    (api.bench, {"devices": [None]}, "devices must be text with commas"),
    (api.bench, {"device": "gpu"}, "device 'gpu' is not known"),
    (api.bench, {"workload": "dpp"}, "workload 'dpp' is not known"),
    (api.bench, {"budget": "soon"}, "'soon' is not a duration"),
    (api.bench, {"budget": float("nan")}, "budget must be a time"),
    (api.bench, {"stall_timeout": None}, "stall_timeout must be a time"),
    (api.bench, {"margin": (5, 10)}, "margin must be text, not a list"),
    (api.bench, {"inject": "compute"}, "fault 'compute' needs exactly"),
    (api.bench, {"inject": [1]}, "inject must be text, or a list of texts"),
    (api.bench, {"inject": None}, "inject must be text, or a list of texts"),
    (api.bench, {"seed": 10**30}, "seed must be a whole number, not a number out of range"),
    (api.bench, {"min_score": float("inf")}, "min_score must be a number"),
    (api.bench, {"force": 1}, "force must be true or false"),
    (api.bench, {"out": 5}, "out must be text"),
    (api.bench, {"out": "/nowhere/run.json"}, "--out /nowhere/run.json cannot be written"),
    (api.selftest, {"rows": "nobody"}, "row 'nobody' is not known"),
    (api.selftest, {"repeat": 0}, "repeat must lie between 1 and"),
    (api.selftest, {"threshold": "busbw_warn=1"}, "threshold 'busbw_warn' is not known here"),
    (api.selftest, {"quick": 1}, "quick must be true or false"),
    (api.probe, {"only": "Z1"}, "there is no check 'Z1'"),
    (api.probe, {"simulate": "h200x3"}, "h200x3"),
    (api.probe, {"load": "yes"}, "load must be true or false"),
    (api.probe, {"out": Path("/nowhere/probe.json")}, "--out /nowhere/probe.json cannot be written"),
]


def readable(value: object) -> str:
    return str(getattr(value, "__name__", value))[:40]


@pytest.mark.parametrize(("function", "values", "words"), WRONG, ids=readable)
def test_a_wrong_argument_is_wrong_use_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., object], values: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(api.bench_story, "bench", lambda _: pytest.fail("it was measured"))
    with pytest.raises(UsageError) as raised:
        function(**values)
    assert words in raised.value.message


@pytest.mark.parametrize("function", [api.bench, api.probe, api.selftest])
def test_in_another_thread_than_the_main_one_it_is_refused(function: Callable[..., object]) -> None:
    caught: list[GpubalanceError] = []

    def call() -> None:
        try:
            function()
        except GpubalanceError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(error) for error in caught] == [UsageError]
    assert "another thread than the main one" in caught[0].message


@pytest.mark.parametrize("error", [CannotMeasureError("the driver does not answer"), Interrupted(15)])
def test_expected_failures_come_as_they_are(monkeypatch: pytest.MonkeyPatch, error: GpubalanceError) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(api.bench_story, "bench", fail)
    with pytest.raises(GpubalanceError) as raised:
        api.bench()
    assert raised.value is error


def measured(run: Run | None) -> Callable[[BenchSettings], Finished | None]:
    return lambda _: None if run is None else Finished(run, gpubalance.judge(run))


def test_a_rank_of_a_launcher_that_does_not_report_gives_none_and_saves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api.bench_story, "bench", measured(None))
    assert api.bench(out=tmp_path / "run.json") is None
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_saved_where_asked_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(api.bench_story, "bench", measured(pair(100.0, 120.0)))
    api.bench()
    assert list(tmp_path.iterdir()) == []
    api.bench(out=tmp_path / "run.json")
    assert gpubalance.load_run(tmp_path / "run.json") == pair(100.0, 120.0)
    assert list(tmp_path.iterdir()) == [tmp_path / "run.json"]


def test_a_record_that_could_not_be_saved_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(api.bench_story, "bench", measured(pair(100.0, 100.0)))
    monkeypatch.setattr(api.files, "save_text", full)
    with pytest.raises(CannotMeasureError, match=r"could not be saved to .*: No space left on device"):
        api.bench(out=tmp_path / "run.json")


def test_records_are_loaded_and_judged_by_their_kind() -> None:
    run, probe = gpubalance.load_run(str(KEPT["h200x2-slow"])), gpubalance.load_probe(PROBE)
    assert run == kept("h200x2-slow")
    assert gpubalance.judge(run).verdict is gpubalance.Verdict.FAIL
    assert gpubalance.judge(probe).verdict is gpubalance.Verdict.WARN


def test_a_record_of_the_other_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="is a probe, not a bench run"):
        gpubalance.load_run(PROBE)
    with pytest.raises(UsageError, match="is a bench run, not a probe"):
        gpubalance.load_probe(KEPT["h200x2-slow"])


SCRIPT = """
import sys
from functools import partial
from pathlib import Path

with open("starts", "a") as file:
    file.write("started\\n")

from tests.command import take_own_lock

take_own_lock()

from gpubalance.session import bench as story

story.bench = partial(story.bench, module=sys.argv[1], stand_in=Path("profile.json"))

from gpubalance import bench

finished = bench(nproc=2, workload=["ddp"], force=True)
print(finished.judgement.verdict.value)
print(finished.judgement.sentence)
print(*sorted(f"{finding.id}:{finding.state.value}" for finding in finished.judgement.findings))
"""
"""A script without a guard: whoever imported it as a module would start it again."""


@pytest.mark.parametrize("script", [{"*": HEALTHY}, {"1": slow(120.0), "*": HEALTHY}], ids=["healthy", "slow"])
def test_a_script_without_a_guard_runs_once_and_gets_the_verdict_of_the_command(
    tmp_path: Path, script: dict[str, Any]
) -> None:
    (tmp_path / "profile.json").write_text(json.dumps(h200_node()))
    (tmp_path / "measure.py").write_text(SCRIPT)
    environment = {**command_environment(XDG_STATE_HOME=str(tmp_path)), **write_script(tmp_path, script)}
    start = partial(
        subprocess.run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    called = start([sys.executable, "measure.py", SCRIPTED])
    assert called.returncode == 0, called.stderr
    assert (tmp_path / "starts").read_text() == "started\n"
    arguments = ("--nproc", "2", "--workload", "ddp", "--json")
    command = start(scripted_bench_command(*arguments, stand_in=tmp_path / "profile.json"))
    judgement = json.loads(command.stdout)["judgement"]
    findings = " ".join(sorted(f"{finding['id']}:{finding['state']}" for finding in judgement["findings"]))
    assert called.stdout.splitlines() == [judgement["verdict"], judgement["sentence"], findings]


@pytest.mark.parametrize("profile", ["h200x2", "sick", "lost_card"])
def test_a_look_from_python_is_the_look_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str
) -> None:
    monkeypatch.setattr(api.probe_story, "LOOK_PAUSE_S", 0.0)
    probed = gpubalance.probe(simulate=profile, out=tmp_path / "probe.json")
    command = subprocess.run(
        [sys.executable, "-m", "gpubalance", "probe", "--simulate", profile, "--json"],
        env=command_environment(), capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    told = json.loads(command.stdout)["judgement"]
    assert told["verdict"] == probed.judgement.verdict.value
    assert [f["message"] for f in told["findings"]] == [f.message for f in probed.judgement.findings]
    saved = load_record(tmp_path / "probe.json")
    assert isinstance(saved, Probe)
    assert saved == probed.probe
    assert saved.settings["simulate"].origin == "argument"


def test_the_script_in_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "README.md").read_text()
    script = readme.partition("```python\nfrom gpubalance import")[2].partition("```")[0]
    monkeypatch.setattr(api.bench_story, "bench", measured(pair(100.0, 120.0)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_bytes(KEPT["h200x2-healthy"].read_bytes())
    exec(compile(f"from gpubalance import{script}", "README.md", "exec"), {})
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "fail rank 1 is 20 % slower than rank 0 and costs 14.3 % of the step rate"
    assert last == "Verdict.PASS"
