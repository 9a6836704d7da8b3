"""Orders over a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpubalance.sampling.commands import Commands


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of which the writing end may be closed by the test."""
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def test_without_an_order_waiting_ends_with_none(pipe: tuple[int, int]) -> None:
    assert Commands(pipe[0]).wait(0.0) == []


def test_a_time_in_the_past_does_not_wait_and_is_no_error(pipe: tuple[int, int]) -> None:
    assert Commands(pipe[0]).wait(-5.0) == []


def test_orders_that_came_together_are_given_together_and_in_order(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b'{"do": "edge", "name": "a"}\n{"do": "edge", "name": "b"}\n')
    assert Commands(pipe[0]).wait(60.0) == [{"do": "edge", "name": "a"}, {"do": "edge", "name": "b"}]


def test_half_an_order_is_kept_until_its_other_half_arrives(pipe: tuple[int, int]) -> None:
    commands = Commands(pipe[0])
    os.write(pipe[1], b'{"do": "edge", "na')
    assert commands.wait(60.0) == []
    os.write(pipe[1], b'me": "a"}\n{"do"')
    assert commands.wait(60.0) == [{"do": "edge", "name": "a"}]
    os.write(pipe[1], b': "stop"}\n')
    assert commands.wait(60.0) == [{"do": "stop"}]


def test_empty_lines_are_no_orders(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"\n\n")
    assert Commands(pipe[0]).wait(60.0) == []


def test_orders_before_the_end_of_the_pipe_come_before_the_stop(pipe: tuple[int, int]) -> None:
    commands = Commands(pipe[0])
    os.write(pipe[1], b'{"do": "edge", "name": "a"}\n')
    os.close(pipe[1])
    assert commands.wait(60.0) == [{"do": "edge", "name": "a"}]
    assert commands.wait(60.0) == [{"do": "stop"}]


def test_the_end_of_the_pipe_is_a_stop_at_every_further_look(pipe: tuple[int, int]) -> None:
    commands = Commands(pipe[0])
    os.close(pipe[1])
    assert [commands.wait(60.0) for _ in range(2)] == [[{"do": "stop"}]] * 2
