"""Finds the class of a plugin that a policy file names: built in, of an installed package, of a module or of a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from muster.config import retired_names
from muster.config.retired_names import is_retired
from muster.engine.hooks import Plugin
from muster.plugins import PLUGINS
from muster.yaml_positions import InputFaults, YamlValue, nearest

ENTRY_POINT_GROUP = "muster.plugins"
"""Installed packages declare plugins in this group of entry points."""

PluginFactory = Callable[..., Plugin]


def installed_plugins() -> dict[str, EntryPoint]:
    """Plugins of installed packages, by name. They cannot replace a built-in one."""
    return {entry.name: entry for entry in sorted(entry_points(group=ENTRY_POINT_GROUP)) if entry.name not in PLUGINS}


def find_plugin(name: YamlValue, faults: InputFaults, *, field: str) -> PluginFactory | None:
    reference = name.text
    if reference in PLUGINS:
        return PLUGINS[reference]
    offered = installed_plugins()
    if reference in offered:
        reference = offered[reference].value
    elif ":" not in reference:
        if is_retired(name, "plugin", retired_names.PLUGINS, faults, field=field):
            return None
        faults.unknown(name, "plugin", [*PLUGINS, *offered], field=field)
        return None
    try:
        return _load_class(reference, folder=Path(faults.file).parent)
    except _PluginNotFound as error:
        faults.add(name, str(error), field=field, suggestion=error.suggestion)
        return None


class _PluginNotFound(Exception):
    def __init__(self, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.suggestion = suggestion


def _load_class(reference: str, *, folder: Path) -> PluginFactory:
    """`package.module:Class`, or `./file.py:Class` relative to the policy file."""
    path, _, name = reference.rpartition(":")
    module = _import_file(folder / path, reference) if path.endswith(".py") else _import_module(path, reference)
    found: object = getattr(module, name, None)
    if found is None:
        near = nearest(name, _class_names(module))
        raise _PluginNotFound(f"plugin {reference}: {path} has no {name!r}", suggestion=f"{path}:{near}" if near else "")
    if not inspect.isclass(found):
        raise _PluginNotFound(f"plugin {reference}: {name} is no class")
    make: PluginFactory = found  # type: ignore[assignment]  # Whether it makes plugins is checked on what it makes.
    return make


def _import_module(path: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise _PluginNotFound(f"plugin {reference}: there is no module {error.name!r} on the Python path") from error
    except (
        Exception
    ) as error:  # Whatever the module raises when it is imported, the fault is reported at its line of the policy file.
        raise _PluginNotFound(f"plugin {reference}: importing {path} failed: {type(error).__name__}: {error}") from error


def _import_file(path: Path, reference: str) -> ModuleType:
    name = f"muster_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise _PluginNotFound(f"plugin {reference}: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their own module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # As above.
        raise _PluginNotFound(f"plugin {reference}: running {path} failed: {type(error).__name__}: {error}") from error
    return module


def _class_names(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield name
