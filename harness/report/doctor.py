"""What `harness doctor` found, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_doctor(console: Console, answer: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """Facts, probes, then what is wrong.

    `answer` is the subject's, `environment` that of environment.json.
    """
    facts = Table.grid(padding=(0, 2))
    memory = environment["memory_bytes"]
    size = f", {memory / 2**30:.0f} GiB" if memory else ""
    cuda = f" (CUDA {answer['cuda']})" if answer.get("cuda") else ""
    for name, value in (
        ("harness", environment["harness"]),
        ("python", f"{answer['python']}  {answer['executable']}"),
        ("torch", f"{answer['torch'] or 'not installed'}{cuda}"),
        ("machine", f"{environment['cpu'] or environment['machine']}, {environment['cores_usable']} cores{size}"),
        ("devices", ", ".join(_device(device) for device in answer["devices"]) or "none"),
    ):
        facts.add_row(Text(name, style="bold"), Text(str(value)))
    console.print(facts)
    if answer["probes"]:
        console.print()
        console.print(Text("Probes", style="bold"))
        probes = Table.grid(padding=(0, 2))
        for name, state in answer["probes"].items():
            probes.add_row(f"  {name}", Text(str(state), style="green" if state == "ok" else "yellow"))
        console.print(probes)
    console.print()
    if not answer["problems"]:
        console.print(Text("Nothing is wrong.", style="green"))
    for problem in answer["problems"]:
        console.print(Text(f"problem: {problem}", style="red"))


def _device(device: object) -> str:
    if isinstance(device, Mapping):
        return " ".join(str(value) for value in device.values())
    return str(device)
