"""A policy draft: its plugins with their weights and options, and notes about the conversion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import yaml

from muster.model.printable_text import printable
from muster.plugins import PLUGINS, SECTIONS
from muster.yaml_positions import YamlValue, nearest, quoted

_LINE_WIDTH = 10_000


class NoteRank(Enum):
    """How much a note matters: the value is its heading."""

    CHANGES = "changes decisions"
    SAME = "the same by another name"
    IGNORED = "ignored, no decision depends on it"


@dataclass(frozen=True, slots=True)
class ConversionNote:
    """One thing that is different, and the line of the Volcano file; 0 where it has none."""

    text: str
    line: int = 0
    rank: NoteRank = NoteRank.CHANGES

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(slots=True)
class PolicyDraft:
    scheduler_names: tuple[str, ...] = ()
    actions: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    notes: list[ConversionNote] = field(default_factory=list)
    spread_weight: float = 0.0
    """The weight of ScheduleAnyway constraints; 0 for none."""
    _options: dict[str, dict[str, object]] = field(default_factory=dict)
    _scores: dict[str, list[tuple[float, Mapping[str, float]]]] = field(default_factory=dict)

    def add_note(self, text: str, at: YamlValue | None = None, *, rank: NoteRank = NoteRank.CHANGES) -> None:
        self.notes.append(ConversionNote(text, at.line if at is not None else 0, rank))

    def ranked_notes(self) -> list[ConversionNote]:
        """What changes decisions comes first."""
        return [note for rank in NoteRank for note in self.notes if note.rank is rank]

    def note_unknown(self, what: str, at: YamlValue, choices: Iterable[str], *, why: str = "") -> None:
        near = nearest(at.text, choices)
        hint = f"; did you mean {near!r}?" if near else ""
        self.add_note(f"{what} {quoted(at.text)} was left out{why}{hint}", at)

    def use(self, plugin: str, **options: object) -> None:
        """Use this plugin. Options given before are kept unless they are given again."""
        assert plugin in PLUGINS, plugin
        self._options.setdefault(plugin, {}).update(options)

    def uses(self, plugin: str) -> bool:
        return plugin in self._options

    def drop(self, plugin: str) -> None:
        del self._options[plugin]

    def score(self, plugin: str, weight: float, resources: Mapping[str, float] | None = None) -> None:
        """Use this score with a weight. Given twice, it is one score with the sum of the weights."""
        if weight <= 0:
            return
        self.use(plugin)
        self._scores.setdefault(plugin, []).append((weight, resources or {}))
        parts = self._scores[plugin]
        total = sum(part for part, _ in parts)
        self.use(plugin, weight=as_int(total))
        if resources:
            self.use(plugin, resources=_merge_weights(parts))

    def option(self, plugin: str, key: str) -> object:
        return self._options[plugin].get(key)

    def text(self, *, heading: str = "") -> str:
        """The policy as a file."""
        lines = [f"# {line}".rstrip() for line in heading.splitlines()]
        lines.extend(self._note_lines() if heading else ())
        lines.append(f"schedulerNames: {_flow_yaml(list(self.scheduler_names))}")
        lines.append(f"actions: {_flow_yaml(self.actions)}")
        lines.append("plugins:")
        lines.extend(self._plugin_lines())
        if self.settings:
            lines.append(f"settings: {_flow_yaml(self.settings)}")
        return "\n".join(lines) + "\n"

    def _note_lines(self) -> Iterator[str]:
        for rank in NoteRank:
            notes = [note for note in self.notes if note.rank is rank]
            yield from [f"# {rank.value.capitalize()}:"] * bool(notes)
            yield from (f"# - {printable(str(note))}" for note in notes)

    def _plugin_lines(self) -> Iterator[str]:
        """Plugins as the catalogue orders them; those that order gangs and queues as they were named, for their order counts."""
        for at, (section, plugins) in enumerate(SECTIONS.items()):
            names = [str(plugin.name) for plugin in plugins]
            used = [name for name in names if name in self._options] if at else [name for name in self._options if name in names]
            if used:
                yield f"# {section}"
            for name in used:
                options = self._options[name]
                yield f"- {name}: {_flow_yaml(options)}" if options else f"- {name}"


def _merge_weights(parts: list[tuple[float, Mapping[str, float]]]) -> dict[str, float | int]:
    """What each resource counts in a score that is made of several weighted means."""
    if len(parts) == 1:
        return {name: as_int(weight) for name, weight in parts[0][1].items()}
    mixed: dict[str, float] = {}
    for weight, resources in parts:
        total = sum(resources.values()) or 1.0
        for name, part in resources.items():
            mixed[name] = mixed.get(name, 0.0) + weight * part / total
    return {name: as_int(round(part, 6)) for name, part in mixed.items()}


def as_int(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _flow_yaml(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=_LINE_WIDTH)
    return text.removesuffix("\n").removesuffix("\n...")
