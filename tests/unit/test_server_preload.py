"""Which preload the start server takes on which machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.subject import server


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ((), "cpu"),
        (("nvidiactl", "null"), "cpu"),
        (("nvidia0", "nvidiactl"), "cuda"),
        (("nvidia12",), "cuda"),
        (("dxg",), "cuda"),  # WSL 2
    ],
)
def test_what_a_machine_may_have_decides_what_is_imported_before_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], kind: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    imported: list[str] = []
    tried: list[bool] = []
    monkeypatch.setattr(server, "DEVICE_FILES", tmp_path)
    monkeypatch.setattr(server.importlib, "import_module", imported.append)
    monkeypatch.setattr(server, "_other_threads", list)

    def try_fork() -> str:
        tried.append(True)
        return ""

    monkeypatch.setattr(server, "_spoilt_for_cuda", try_fork)
    assert server.preload("auto")[1:] == (True, "")
    assert tuple(imported) == server.PRELOAD[kind]
    assert bool(tried) is (kind == "cuda")


@pytest.mark.parametrize(
    ("missing", "kept"),
    [("transformers", True), ("safetensors.torch", True), ("torch", False), ("harness.pipeline", False), (None, False)],
)
def test_without_what_only_the_pipeline_takes_other_programs_run(
    missing: str | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []

    def import_module(name: str) -> None:
        if name in ("transformers.models.qwen3.modeling_qwen3", "harness.pipeline"):
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        imported.append(name)

    monkeypatch.setattr(server.importlib, "import_module", import_module)
    monkeypatch.setattr(server, "_other_threads", list)
    if kept:
        assert server.preload("cpu")[1:] == (True, "")
        assert imported[-1] == "harness.subject.entry"
    else:
        with pytest.raises(ModuleNotFoundError):
            server.preload("cpu")
