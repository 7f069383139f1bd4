"""`muster queues`, `muster gangs`, `muster nodes`: a cluster as it is now, in tables sorted by what matters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.cli import OK
from muster.cli.cluster_state import ClusterOptions, ClusterState, is_served_by_another, read_cluster_state
from muster.cli.errors import UserError
from muster.cli.json_output import write_json
from muster.cli.screen import BOLD, DIM, NOTE, PLAIN, Screen, TextPart, rows_of, styled, to_stdout
from muster.cli.summary import STAGE_ORDER, STAGE_STYLES, queue_table
from muster.cli.text_format import amount_of, compact_names, count, duration, queue_name
from muster.cli.text_table import lay_out
from muster.forecast.dry_run import observed
from muster.forecast.gang_report import ObservedGang, ObservedNode, observed_gangs, observed_nodes
from muster.json_values import to_json
from muster.model.gang import Stage
from muster.model.pod import Pod
from muster.model.queue import DEFAULT_QUEUE
from muster.model.resource_amounts import CPU, short_name, show_amount
from muster.queue_report import main_resource, queue_rows
from muster.state.world import World
from muster.yaml_positions import nearest

MAX_ROWS = 40
_WATCH_S = 5.0
_READY = "ready"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What is shown of it."""

    namespace: str = ""
    queue: str = ""
    stage: str = ""
    everything: bool = False
    json: bool = False
    wide: bool = False


def watched(show: Callable[[], int]) -> int:
    """Show it again and again, on a terminal in the same place. An interrupt ends it, and whatever `show` finds wrong."""
    screen = to_stdout()
    while True:
        if screen.console.is_terminal:
            screen.console.clear()
        show()
        sys.stdout.flush()
        time.sleep(_WATCH_S)


def queues(cluster: ClusterOptions, options: TableOptions) -> int:
    state, world = _look(cluster)
    rows = queue_rows(world, state.policy)
    rows = tuple(row for row in rows if row.queue != DEFAULT_QUEUE or row.used or row.waiting or len(rows) < 3)
    if options.json:
        return _as_json("queues", rows, state)
    screen = to_stdout()
    screen.print_lines(queue_table(rows, main_resource(world), screen, fair=True))
    charged = [f"pods of other schedulers are charged to no queue: {', '.join(others)}"] if (others := _others(state)) else []
    return _end(screen, replace(state, notes=(*charged, *state.notes)))


def gangs(cluster: ClusterOptions, options: TableOptions) -> int:
    if options.stage and options.stage not in STAGE_ORDER:
        near = nearest(options.stage, STAGE_ORDER)
        hint = f"did you mean {near!r}?" if near else f"stages are {', '.join(STAGE_ORDER)}"
        raise UserError(f"--stage: there is no stage {options.stage!r}; {hint}")
    state, world = _look(cluster)
    known = {queue_name(key) for key in world.facts.tree.nodes} | {*world.facts.tree.nodes}
    if options.queue and options.queue not in known:
        near = nearest(options.queue, sorted(known))
        raise UserError(f"--queue: there is no queue {options.queue!r} in the cluster{f'. Did you mean {near!r}?' * bool(near)}")
    others = _gangs_of_others(state, world)
    rows = [row for row in observed_gangs(world) if _is_wanted(row, options) and row.gang not in others]
    rows.sort(key=lambda row: (STAGE_ORDER.index(row.stage), -row.priority, -row.age_s, row.gang))
    if options.json:
        return _as_json("gangs", rows, state)
    resource, screen = main_resource(world), to_stdout()
    columns = ["gang", "queue", ">priority", ">members", "stage", "nodes", ">age", f">{short_name(resource)} lacks"]
    _print(screen, columns, rows, lambda row: _gang_cells(row, resource, wide=options.wide), options, what="gang")
    hidden = [f"{count(len(others), 'gang')} of other schedulers not shown: {', '.join(_others(state))}"] if others else []
    return _end(screen, replace(state, notes=(*hidden, *state.notes)))


def nodes(cluster: ClusterOptions, options: TableOptions) -> int:
    state, world = _look(cluster)
    resource = main_resource(world)
    rows = sorted(observed_nodes(world), key=lambda row: (row.state == _READY, -_free(row, resource), row.node))
    if options.json:
        return _as_json("nodes", rows, state)
    unit, screen = short_name(resource), to_stdout()
    columns = ["node", f">{unit} free", f">{unit} of", ">cpu free", ">pods", "state"]
    _print(screen, columns, rows, lambda row: _node_cells(row, resource), options, what="node")
    return _end(screen, state)


def _look(cluster: ClusterOptions) -> tuple[ClusterState, World]:
    state = read_cluster_state(cluster)
    return state, observed(state.policy, state.objects, now=state.now)


def _others(state: ClusterState) -> list[str]:
    return sorted({pod.scheduler for pod in state.objects if isinstance(pod, Pod) and is_served_by_another(pod)})


def _gangs_of_others(state: ClusterState, world: World) -> set[str]:
    """Of their pods nothing is known here: they would all seem to wait for some."""
    keys = {pod.gang_key for pod in state.objects if isinstance(pod, Pod) and is_served_by_another(pod)}
    return {gang.full_name for key in keys if (gang := world.facts.gangs.get(key)) is not None and not gang.size}


def _is_wanted(row: ObservedGang, options: TableOptions) -> bool:
    if row.stage == Stage.FINISHED.value and not (options.everything or options.stage):
        return False
    return (
        (not options.namespace or row.gang.startswith(f"{options.namespace}/"))
        and (not options.queue or options.queue in (row.queue, queue_name(row.queue)))
        and (not options.stage or row.stage == options.stage)
    )


def _gang_cells(row: ObservedGang, resource: str, *, wide: bool) -> list[TextPart]:
    lacks = amount_of(row.requested, resource)
    return [
        (row.gang, BOLD),
        queue_name(row.queue),
        str(row.priority),
        f"{row.placed}/{row.min}",
        (row.stage, STAGE_STYLES[row.stage]),
        compact_names(row.nodes) if wide else "",
        duration(row.age_s),
        show_amount(resource, lacks) if lacks else "",
    ]


def _free(row: ObservedNode, resource: str) -> int:
    return amount_of(row.allocatable, resource) - amount_of(row.used, resource)


def _node_cells(row: ObservedNode, resource: str) -> list[TextPart]:
    return [
        (row.node, BOLD),
        show_amount(resource, _free(row, resource)),
        show_amount(resource, amount_of(row.allocatable, resource)),
        show_amount(CPU, _free(row, CPU)) if resource != CPU else "",
        str(row.pods),
        (row.state, PLAIN if row.state == _READY else NOTE),
    ]


def _print(
    screen: Screen,
    columns: list[str],
    rows: Sequence[Any],
    cells: Callable[[Any], list[TextPart]],
    options: TableOptions,
    *,
    what: str,
) -> None:
    shown = rows if options.everything else rows[:MAX_ROWS]
    screen.print_lines(lay_out(columns, [cells(row) for row in shown], width=None if options.wide else screen.width))
    if len(shown) < len(rows):
        screen.print_line(styled((f" and {count(len(rows) - len(shown), f'more {what}')}: -A shows every one", DIM)))
    elif not rows:
        screen.print_line(f" no {what}s")


def _as_json(command: str, rows: Iterable[object], state: ClusterState) -> int:
    write_json(command, ok=True, errors=[], **{command: [to_json(row) for row in rows]}, notes=list(state.notes))
    return OK


def _end(screen: Screen, state: ClusterState) -> int:
    screen.print_wrapped(rows_of("note", list(state.notes)))
    return OK
