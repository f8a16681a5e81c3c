"""The axis `workload`: a name that ships with the harness, or the user's own `package.module:factory`.

A factory is anything that can be called without arguments and gives a workload: a class, a function; or a workload itself.
It is looked for as `python -m` does: in the folder that `harness` is run in, then on PYTHONPATH, then where packages are
installed.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys

from harness.core.errors import SettingError, nearest
from harness.core.shipped import SHIPPED
from harness.core.workload import Workload

METHODS = ("setup", "workers", "stop")


def load(name: str) -> Workload:
    """Make the workload. Raises SettingError for a name that is not there, or is no workload; it says what to do."""
    path = SHIPPED.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not colon:
        raise SettingError(
            f'workload = "{name}": no such workload{nearest(name, SHIPPED)}; '
            f'ships: {", ".join(SHIPPED)}; your own is written "package.module:factory"'
        )
    at = f'workload = "{name}"'
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise SettingError(
                f'{at}: no module "{error.name}" in {os.getcwd()} or on PYTHONPATH; run harness in the folder that '
                "holds it, or with PYTHONPATH=FOLDER"
            ) from error
        if name in SHIPPED and error.name is not None:
            package = error.name.partition(".")[0]
            raise SettingError(f"{at}: it takes {package}; {sys.executable} -m pip install {package}") from error
        raise  # a module of the user's that fails to import something else keeps its traceback
    found: object = module
    for part in attribute.split("."):
        owner = found
        try:
            found = getattr(owner, part)
        except AttributeError:
            raise SettingError(
                f'{at}: {module.__file__ or module_name} has no "{attribute}"{nearest(part, dir(owner))}'
            ) from None
    return _made(found, at)


def _made(factory: object, at: str) -> Workload:
    if not inspect.isclass(factory) and all(callable(getattr(factory, method, None)) for method in METHODS):
        return factory  # type: ignore[return-value]  # it is one already
    if not callable(factory):
        raise SettingError(
            f"{at}: that is {_a(factory)}, which has no {_missing(factory)}; it must be a workload, or make one when called"
        )
    wants = _wants(factory)
    if wants:
        raise SettingError(f"{at}: a factory is called without arguments, and this one wants {wants}; wrap it in a function")
    made: object = factory()
    lacks = _missing(made)
    if lacks:
        raise SettingError(f"{at}: what it makes is {_a(made)}, which has no {lacks}; a workload has setup, workers and stop")
    return made  # type: ignore[return-value]  # checked by its methods


def _missing(value: object) -> str:
    return " and no ".join(f"{method}()" for method in METHODS if not callable(getattr(value, method, None)))


def _wants(factory: object) -> str:
    """Names of its arguments without a default."""
    try:
        parameters = inspect.signature(factory).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""  # made in C, and does not say
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return ", ".join(wanted)


def _a(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
