"""The remedy that a GPU check puts to the test: what it takes, and in which thread."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest

from harness.core.axes import HOSTED
from harness.core.workload import Worker
from harness.pipeline import Pipeline
from harness.subject.programs import parts, tree_references
from tests.soak import importer_ends


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_only_the_thread_that_imported_the_trees_takes_references(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = types.ModuleType(tree_references.TREES)
    vars(trees)["local"] = local = threading.local()
    monkeypatch.setitem(sys.modules, tree_references.TREES, trees)
    held: list[dict[str, int]] = [{}, {}]
    before = [sys.getrefcount(held[0]), sys.getrefcount(held[1])]
    found: list[int] = []

    def importer() -> None:
        for name, dictionary in zip(tree_references.NAMES, held, strict=True):
            setattr(local, name, dictionary)
        found.append(tree_references.take_references())

    in_thread(importer)
    in_thread(lambda: found.append(tree_references.take_references()))
    assert found == [2, 0]
    assert [sys.getrefcount(held[0]) - before[0], sys.getrefcount(held[1]) - before[1]] == [1, 1], "the thread's own are gone"


def test_without_the_trees_there_is_nothing_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, tree_references.TREES, raising=False)
    assert tree_references.take_references() == 0


def test_drafters_end_with_them_and_targets_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fails() -> None:
        said.append("ran")
        raise ValueError("planted")

    workers = [Worker("target-0", "target", "cpu", lambda: said.append("target")), Worker("drafter-0", "drafter", "cpu", fails)]
    monkeypatch.setattr(Pipeline, "workers", lambda self: workers)
    monkeypatch.setattr(importer_ends, "take_references", lambda: said.append("taken"))
    target, drafter = importer_ends.Cured().workers()
    target.run()
    with pytest.raises(ValueError, match="planted"):
        drafter.run()
    assert said == ["target", "ran", "taken"]


def test_the_small_programs_take_them_whatever_becomes_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(parts, "take_references", lambda: said.append("taken"))
    program = parts.EngineParts()
    program.device = HOSTED
    program.ctx = MagicMock()

    def fails() -> None:
        said.append("ran")
        raise ValueError("planted")

    assert not program.step("first", fails)
    assert program.step("second", lambda: said.append("went well"))
    assert said == ["ran", "taken", "went well", "taken"]
