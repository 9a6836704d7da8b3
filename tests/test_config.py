"""A file of settings: what it may say, how it is spelled, and what every mistake is answered with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.config import LARGEST_CONFIG_BYTES, FlagValue, Kind, Known, as_flag, read_config
from gpubalance.errors import UsageError
from gpubalance.record import untrusted

KNOWN = {
    "bench": {
        "nproc": Kind.WHOLE,
        "devices": Kind.LIST,
        "budget": Kind.TIME,
        "margin": Kind.TEXT,
        "inject": Kind.MANY,
        "threshold": Kind.MANY,
        "min_score": Kind.NUMBER,
        "force": Kind.FLAG,
    },
    "probe": {"only": Kind.LIST, "threshold": Kind.MANY, "expect_gpus": Kind.WHOLE},
}
NESTED = {
    **KNOWN,
    "selftest": {"quick": Kind.FLAG, "margin": Kind.TEXT, "threshold": Kind.MANY},
    "baseline.save": {"name": Kind.TEXT},
    "baseline.forget": {"name": Kind.TEXT, "all": Kind.FLAG},
}

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The commands in a file with this text."""

    def write_and_read(text: str | bytes, name: str = "node.toml", known: Known = KNOWN) -> dict[str, Any]:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        config = read_config(path, known)
        assert config.name == str(path)
        return {command: dict(options) for command, options in config.commands.items()}

    return write_and_read


def refusal(read: Read, text: str | bytes, name: str = "node.toml") -> tuple[str, str | None]:
    """Message without the name of the file, and next step."""
    with pytest.raises(UsageError) as raised:
        read(text, name)
    message = raised.value.message
    assert "\n" not in message
    assert f"/{name}" in message
    return message.partition(f"/{name}")[2].removeprefix(":").strip(), raised.value.next_step


def test_tables_are_commands_and_keys_are_flags(read: Read) -> None:
    text = """
        [bench]
        nproc = 8
        devices = ["0", 1, "GPU-1a2b"]
        budget = 90
        inject = ["sleep:rank=1,ms=5", "memory:rank=0,percent=35"]
        min-score = 95
        force = true
        [probe]
        only = "M2,N"
    """
    assert read(text) == {
        "bench": {
            "nproc": 8,
            "devices": "0,1,GPU-1a2b",
            "budget": "90",
            "inject": ["sleep:rank=1,ms=5", "memory:rank=0,percent=35"],
            "min_score": 95,
            "force": True,
        },
        "probe": {"only": "M2,N"},
    }


@pytest.mark.parametrize("tool", ["", "tool.gpubalance."])
def test_a_command_of_a_command_has_a_table_in_a_table(read: Read, tool: str) -> None:
    text = f"[{tool}baseline.save]\nname = 'old'\n[{tool}baseline]\nforget.all = true\n"
    expected = {"baseline.save": {"name": "old"}, "baseline.forget": {"all": True}}
    assert read(text, known=NESTED) == expected
    assert read(f"[{tool}baseline]\n", known=NESTED) == {}


NESTED_MISTAKES = {
    "[baseline]\nname = 'old'": (
        "key baseline.name stands in no table of a command", "choose from: [baseline.save], [baseline.forget]",
    ),
    "[baseline.sav]\nname = 'old'": ("table [baseline.sav] is not known", "did you mean baseline.save?"),
    "[baseline.save]\nnam = 'old'": ("key baseline.save.nam is not known", "did you mean name?"),
    "[baseline.save]\nname = 5": ("baseline.save.name must be text, not a whole number: 5", None),
    "baseline = 5": ("baseline must be a table, not a whole number: 5", None),
    "[bench.save]\nname = 'old'": ("key bench.save is not known", None),
    "['baseline.save'.x]\ny = 5": ("key baseline.save.x is not known", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), NESTED_MISTAKES.items(), ids=NESTED_MISTAKES.keys())
def test_a_mistake_in_a_table_of_a_table(read: Read, text: str, answer: tuple[str, str | None]) -> None:
    with pytest.raises(UsageError) as raised:
        read(text, known=NESTED)
    assert raised.value.message.endswith(answer[0])
    if answer[1] is not None:
        assert raised.value.next_step == answer[1]


def test_thresholds_and_margins_reach_a_selftest_too(read: Read) -> None:
    text = "[thresholds]\nmargin_warn = 3\nmargin_fail = 5\ntransient_warn = 2\nlimit_warn = 70\n"
    found = read(text, known=NESTED)
    assert found["selftest"] == {"margin": "3:5", "threshold": ["transient_warn=2"]}
    assert found["bench"]["margin"] == "3:5"
    with pytest.raises(UsageError, match=r"selftest\.margin and \[thresholds\] say the same thing twice"):
        read(f"{text}[selftest]\nmargin = '4:8'\n", known=NESTED)


@pytest.mark.parametrize("text", ["", "[bench]\n", "# nothing\n", "[thresholds]\n[probe]\n"])
def test_a_file_that_says_nothing_sets_nothing(read: Read, text: str) -> None:
    assert all(options == {} for options in read(text).values())


def test_a_file_that_several_tools_share_is_read_below_tool_gpubalance(read: Read) -> None:
    text = '[project]\nname = "theirs"\n[tool.other]\nx = 1\n[tool.gpubalance.bench]\nnproc = 2\n'
    assert read(text, "pyproject.toml") == {"bench": {"nproc": 2}}
    assert read("[tool.gpubalance.bench]\nnproc = 2\n") == {"bench": {"nproc": 2}}


def test_a_shared_file_without_our_table_is_said_to_have_none(read: Read) -> None:
    for text, name in (('[project]\nname = "x"\n', "pyproject.toml"), ("[tool.other]\nx = 1\n", "node.toml")):
        message, hint = refusal(read, text, name)
        assert message == "has no table [tool.gpubalance]"
        assert hint == "settings of bench stand in [tool.gpubalance.bench]"


def test_other_thresholds_reach_the_commands_that_know_them(read: Read) -> None:
    text = (
        "[thresholds]\nopen_files_warn = 1024\nlimit-warn = 70.5\nlevel_warn = 20\n[bench]\nthreshold = 'limit_fail=40'"
    )
    assert read(text) == {
        "bench": {"threshold": ["level_warn=20", "limit_warn=70.5", "limit_fail=40"]},
        "probe": {"threshold": ["limit_warn=70.5", "open_files_warn=1024"]},
    }


@pytest.mark.parametrize(
    ("text", "margin"),
    [
        ("margin_warn = 4\nmargin_fail = 8.5", "4:8.5"),
        ("margin_fail = 10.0\nmargin_warn = 5", "5:10.0"),
    ],
)
def test_two_thresholds_are_the_margin_of_bench(read: Read, text: str, margin: str) -> None:
    assert read(f"[thresholds]\n{text}\n") == {"bench": {"margin": margin}}


MISTAKES = {
    "[bensh]\nnproc = 2": ("table [bensh] is not known", "did you mean bench?"),
    "[zzz]": ("table [zzz] is not known", "choose from: bench, probe, thresholds"),
    "nproc = 2": ("key nproc stands in no table", "it belongs below [bench]"),
    "expect-gpus = 2": ("key expect-gpus stands in no table", "it belongs below [probe]"),
    "[bench]\nnprok = 2": ("key bench.nprok is not known", "did you mean nproc?"),
    "[bench]\n'min score' = 2": ("key bench.min score is not known", "did you mean min_score?"),
    "[probe]\nnproc = 2": ("key probe.nproc is not known", "choose from: only, threshold, expect_gpus"),
    "[bench.deep]\nnproc = 2": (
        "key bench.deep is not known",
        "choose from: nproc, devices, budget, margin, inject, threshold, min_score, force",
    ),
    "[thresholds]\nmargin_warm = 2": ("key thresholds.margin_warm is not known", "did you mean margin_warn?"),
    "[thresholds]\nlimit_warn = 40": (
        "thresholds: limit_warn (40) must be above limit_fail (50)", "set both, NAME_warn and NAME_fail",
    ),
    "[thresholds]\nlimit_warn = -1": (
        "threshold limit_warn must be above 0 and at most 100 %, not -1", "its default is 65",
    ),
    "[thresholds]\nopen_files_warn = true": (
        "thresholds.open_files_warn must be a number, not true or false: True", None,
    ),
    "[thresholds]\nlimit_warn = 70\nlimit-warn = 71": (
        "thresholds.limit_warn is spelled in two ways", "keep one of them",
    ),
    "[thresholds]\nlimit_warn = 70\n[bench]\nthreshold = 'limit_warn=71'": (
        "threshold limit_warn is given twice", "keep one of them",
    ),
    "[thresholds]\nmargin_warn = 2": (
        "thresholds.margin_fail is missing", "a margin is two numbers, to warn and to fail",
    ),
    "[thresholds]\nmargin_warn = '5'\nmargin_fail = 10": (
        "thresholds.margin_warn must be a number, not text: '5'", None,
    ),
    "[thresholds]\nmargin_warn = 5\nmargin_fail = inf": (
        "thresholds.margin_fail must be a number, not a number out of range", None,
    ),
    "[bench]\nmargin = '5:10'\n[thresholds]\nmargin_warn = 5\nmargin_fail = 10": (
        "bench.margin and [thresholds] say the same thing twice", "keep one of them",
    ),
    "[bench]\nmin_score = 1\nmin-score = 1": ("bench.min_score is spelled in two ways", "keep one of them"),
    "bench = 2": ("bench must be a table, not a whole number: 2", None),
    "[[bench]]\nnproc = 2": ("bench must be a table, not a list", None),
    "thresholds = [1, 2]": ("thresholds must be a table, not a list", None),
    "tool = 'x'": ("tool must be a table, not text: 'x'", None),
    "[tool]\ngpubalance = 1": ("tool.gpubalance must be a table, not a whole number: 1", None),
    "[bench]\nnproc = '2'": ("bench.nproc must be a whole number, not text: '2'", None),
    "[bench]\nnproc = 2.0": ("bench.nproc must be a whole number, not a number: 2.0", None),
    "[bench]\nnproc = true": ("bench.nproc must be a whole number, not true or false: True", None),
    "[bench]\nnproc = 2026-01-01": ("bench.nproc must be a whole number, not a date", None),
    "[bench]\nnproc = 99999999999999999999": ("bench.nproc must be a whole number, not a number out of range", None),
    "[bench]\nmin_score = nan": ("bench.min_score must be a number, not a number out of range", None),
    "[bench]\nforce = 1": ("bench.force must be true or false, not a whole number: 1", None),
    "[bench]\nforce = 'yes'": ("bench.force must be true or false, not text: 'yes'", None),
    "[bench]\nmargin = 5": ("bench.margin must be text, not a whole number: 5", None),
    "[bench]\nbudget = true": (
        "bench.budget must be a time such as '90s', or a number of seconds, not true or false: True", None,
    ),
    "[bench]\ndevices = [0.5]": (
        "bench.devices must be text with commas, or a list of texts and whole numbers, not a list", None,
    ),
    "[bench]\ndevices = []": ("bench.devices is empty", "leave it out where nothing is asked for"),
    "[bench]\ndevices = ''": ("bench.devices is empty", "leave it out where nothing is asked for"),
    "[bench]\ninject = [1]": ("bench.inject must be text, or a list of texts, not a list", None),
    "[bench]\ninject = {rank = 1}": ("bench.inject must be text, or a list of texts, not a table", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), MISTAKES.items(), ids=[text[:40] for text in MISTAKES])
def test_a_mistake_is_named_with_what_was_probably_meant(read: Read, text: str, answer: tuple[str, str | None]) -> None:
    assert refusal(read, text) == answer


def test_a_long_text_is_not_repeated(read: Read) -> None:
    message, _ = refusal(read, f"[bench]\nnproc = '{'x' * 5000}'")
    assert len(message) < 100


@pytest.mark.parametrize(
    "text",
    [
        "[bench",
        "[bench]\nnproc = 2\nnproc = 3",
        "[bench]\nnproc = 08",
        "{}",
        '{"bench": {"nproc": 2}}',
        b"[bench]\nout = '\xff'",
        b"[bench]\nout = '\x00'",
        "[bench]\nnproc = " + "[" * 100_000,
        "[bench]\nnproc = " + "9" * 5000,
        "[bench]\nout = 2026-13-45",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_is_no_toml_is_one_sentence(read: Read, text: str | bytes) -> None:
    assert refusal(read, text)[0].startswith("is not TOML: ")


def test_a_number_that_python_does_not_print_is_named_without_it(read: Read) -> None:
    assert refusal(read, f"[bench]\nnproc = 0x{'f' * 9000}")[0].endswith("not a number out of range")


def test_a_file_that_is_no_file_of_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "PIPE_LIMIT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (LARGEST_CONFIG_BYTES + 1))
    answers = {
        "missing": "cannot be read: No such file or directory",
        ".": "cannot be read: Is a directory",
        "pipe": "said nothing for 0.05 s",
        "large": f"has more than {LARGEST_CONFIG_BYTES} bytes, no file of settings is so large",
    }
    for name, answer in answers.items():
        with pytest.raises(UsageError) as raised:
            read_config(tmp_path / name, KNOWN)
        assert raised.value.message == f"{tmp_path / name} {answer}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(kind=st.sampled_from(Kind), value=VALUES)
def test_any_value_becomes_what_a_flag_takes_or_a_refusal_that_names_its_place(kind: Kind, value: object) -> None:
    types: dict[Kind, type | tuple[type, ...]] = {
        Kind.FLAG: bool, Kind.WHOLE: int, Kind.NUMBER: (int, float), Kind.MANY: list,
    }  # fmt: skip
    try:
        taken: FlagValue = as_flag("here", kind, value)
    except UsageError as error:
        message = error.message
    else:
        message = "here "
        assert isinstance(taken, types.get(kind, str))
    assert message.startswith("here ")
