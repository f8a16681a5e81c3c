"""The axis `workload`: a name that ships with the harness, or the user's own `package.module:factory`."""

from __future__ import annotations

import importlib

from harness.core.errors import SettingError, nearest
from harness.core.workload import Workload

SHIPPED: dict[str, str] = {
    "dflash": "harness.pipeline:Pipeline",
    "nothing": "harness.subject.programs.nothing:Nothing",
}


def load(name: str) -> Workload:
    """Make the workload. Raises SettingError for a name that is neither shipped nor importable as named."""
    path = SHIPPED.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not colon:
        raise SettingError(
            f'workload = "{name}": no such workload{nearest(name, SHIPPED)}; '
            f'ships: {", ".join(SHIPPED)}; your own is written "package.module:factory"'
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise SettingError(f'workload = "{name}": no module "{error.name}" on this interpreter\'s path') from error
        raise  # a module of the user's that fails to import something else keeps its traceback
    factory = getattr(module, attribute, None)
    if factory is None:
        raise SettingError(f'workload = "{name}": module "{module_name}" has no "{attribute}"')
    workload: Workload = factory()
    return workload
