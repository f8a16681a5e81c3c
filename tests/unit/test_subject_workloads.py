"""What `workload = "package.module:factory"` may name, and what it says when it cannot be used: in the subject and before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.control.foreign import check_workloads
from harness.core.errors import SettingError
from harness.core.matrix import parse_matrix
from harness.core.scenario import Scenario
from harness.core.shipped import SHIPPED
from harness.subject.workloads import load

OWN = '''
class Train:
    def setup(self, scenario, ctx): pass
    def workers(self): return []
    def stop(self): pass
    @classmethod
    def made(cls): return cls()

class Wants(Train):
    def __init__(self, rate, depth=1): pass

class NoStop:
    def setup(self, scenario, ctx): pass
    def workers(self): return []

def build(): return Train()
def build_nothing(): return None
ready = Train()
number = 7
'''


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ownpkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(OWN)
    (package / "broken.py").write_text("import a_module_that_is_not_there\n\nclass Train: pass\n")
    (package / "wrong.py").write_text("def f(:\n")
    (package / "star.py").write_text("from ownpkg.train import *\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "ownpkg"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", ["Train", "build", "ready", "Train.made"])
def test_a_class_a_function_an_instance_and_a_method_all_make_a_workload(name: str) -> None:
    made = load(f"ownpkg.train:{name}")
    assert made.workers() == []
    check_workloads([Scenario(workload=f"ownpkg.train:{name}")], sys.executable)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nopkg.train:Train", 'no module "nopkg"'),
        ("ownpkg.trian:Train", 'no module "ownpkg.trian"'),
        ("ownpkg.train:Trian", '(did you mean "Train"?)'),
        ("ownpkg.train:Train.maid", '(did you mean "made"?)'),
        ("ownpkg.train:NoStop", "has no stop()"),
        ("ownpkg.train:build_nothing", "is None, which has no setup() and no workers() and no stop()"),
        ("ownpkg.train:number", "that is an int"),
        ("ownpkg.train:Wants", "this one wants rate"),
        ("trianer", '(did you mean "trainer"?)'),
    ],
)
def test_what_cannot_be_loaded_says_why_in_a_line(name: str, says: str) -> None:
    with pytest.raises(SettingError) as raised:
        load(name)
    assert says in str(raised.value)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_module_that_is_not_there_says_how_to_make_it_importable(tmp_path: Path) -> None:
    for check in (load, lambda name: check_workloads([Scenario(workload=name)], sys.executable)):
        with pytest.raises(SettingError, match=r"run harness in the folder that holds it, or with PYTHONPATH=FOLDER") as raised:
            check("nopkg.train:Train")
        assert str(tmp_path) in str(raised.value)


def test_an_import_that_fails_inside_the_module_keeps_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load("ownpkg.broken:Train")


def test_a_package_that_one_which_ships_takes_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise ModuleNotFoundError("No module named 'transformers.models'", name="transformers.models")

    monkeypatch.setattr("harness.subject.workloads.importlib.import_module", without)
    with pytest.raises(SettingError) as raised:
        load("dflash")
    assert str(raised.value) == f'workload = "dflash": it takes transformers; {sys.executable} -m pip install transformers'
    with pytest.raises(ModuleNotFoundError):
        load("ownpkg.train:Train")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ownpkg.trian:Train", 'no module "ownpkg.trian"'),
        ("ownpkg.train:Trian", 'has no "Trian" (did you mean "Train"?)'),
        ("ownpkg.train.deeper:Train", '"ownpkg.train" is a module and no package'),
        ("ownpkg.wrong:Train", "wrong.py, line 1"),
        ("own pkg:Train", 'write it "package.module:factory"'),
        ("trianer", '(did you mean "trainer"?)'),
    ],
)
def test_before_any_trial_the_same_is_said_without_an_import(name: str, says: str) -> None:
    with pytest.raises(SettingError) as raised:
        check_workloads([Scenario(workload=name)], sys.executable)
    assert says in str(raised.value)
    assert not [module for module in sys.modules if module.startswith("ownpkg")]


@pytest.mark.parametrize("name", [*SHIPPED, "ownpkg.star:Train", "ownpkg.broken:Train", "sys:exit"])
def test_what_may_be_right_is_left_to_the_trial(name: str) -> None:
    check_workloads([Scenario(workload=name)], sys.executable)


def test_of_another_interpreter_only_files_at_hand_are_judged() -> None:
    check_workloads([Scenario(workload="nopkg.train:Train")], "/another/python")
    with pytest.raises(SettingError, match="Trian"):
        check_workloads([Scenario(workload="ownpkg.train:Trian")], "/another/python")


def test_settings_of_another_workload_are_its_own() -> None:
    text = 'schema = 1\n[[include]]\nworkload = "{}"\n[pipeline]\nheads = "many"\nfast = true\nrate = 0.1\n'
    own = parse_matrix(text.format("ownpkg.train:Train"), file="m.toml")
    assert own.pipeline == {"heads": "many", "fast": True, "rate": 0.1}
    with pytest.raises(SettingError, match="heads"):
        parse_matrix(text.format("dflash"), file="m.toml")
