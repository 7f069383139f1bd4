"""`muster why`: why a gang waits, or why it runs where it does. One cycle on a copy of the cluster; nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from muster.cli import OK
from muster.cli.cluster_state import ClusterOptions, ClusterState, read_cluster_state
from muster.cli.errors import UserError
from muster.cli.json_output import write_json
from muster.cli.outlook_text import OUTLOOK_QUESTIONS, bounds_of, deadline, remedy_rows, start_rows
from muster.cli.plan import forecast_lines, new_alternatives
from muster.cli.screen import BOLD, GOOD, NOTE, Line, rows_of, styled, to_stdout
from muster.cli.text_format import amount, compact_names, count, duration, join_names, queue_name
from muster.engine.session import Session
from muster.forecast.dry_run import CANNOT_RUN, DryRun, Forecast, bound_searches, dry_run, with_outlook
from muster.forecast.gang_report import (
    GangAnswer,
    ObservedGang,
    ObservedSubgroup,
    before_cycle,
    described,
    find_gang,
    other_schedulers,
    with_cycle,
)
from muster.json_values import to_json
from muster.model.gang import Gang, Stage
from muster.model.pod import Pod
from muster.model.resource_amounts import CPU, short_name, show_amount
from muster.state.world import World
from muster.yaml_positions import nearest

_MAX_AHEAD = 5


def why(name: str, options: ClusterOptions, *, namespace: str, json: bool) -> int:
    """Print what there is to say about a gang. The exit code is 0 whatever the answer is."""
    state = read_cluster_state(options)
    wanted = f"{namespace}/{name}" if namespace and "/" not in name else name
    seen: list[tuple[Gang, GangAnswer]] = []

    def look(session: Session) -> None:
        gang = _find(session.world, wanted, state)
        session.shows_all_domains = frozenset((gang.key,))
        bound_searches(session, (gang.key,), partial(deadline, options.seconds / OUTLOOK_QUESTIONS))
        seen.append((gang, described(before_cycle(session), gang)))

    run = dry_run(state.policy, state.objects, now=state.now, look=look)
    (gang, known), *_ = seen
    answer = _with_outlook(with_cycle(known, run, gang), run, state, gang, options)
    answer = replace(answer, other_schedulers=other_schedulers(state.objects, lambda pod: pod.gang_key == gang.key))
    logged = state.logged.get(gang.full_name, ())
    others = _served(answer.other_schedulers)
    if json:
        state = replace(state, notes=(*(f"{gang.full_name} {each}" for each in others), *state.notes))
        write_json("why", ok=True, errors=[], **to_json(answer), logged=list(logged), notes=list(state.notes))
        return OK
    screen = to_stdout()
    screen.print_wrapped(styled((gang.full_name, BOLD), f" {each}.") for each in others)
    if gang.size or not others:
        screen.print_wrapped(_lines(answer, state, logged, options.seconds))
    elif options.scheduler:
        screen.print_wrapped(rows_of("note", list(state.notes)))
    return OK


def _served_by_others(state: ClusterState, is_meant: Callable[[Pod], bool]) -> list[str]:
    """What other schedulers serve of a gang. Of those pods nothing is known here but what they use."""
    return _served(other_schedulers(state.objects, is_meant))


def _served(others: Iterable[tuple[str, int]]) -> list[str]:
    return [
        f"is served by the scheduler {name} ({count(number, 'pod')}): --as-scheduler {name} looks through it"
        for name, number in others
    ]


def _with_outlook(answer: GangAnswer, run: DryRun, state: ClusterState, gang: Gang, options: ClusterOptions) -> GangAnswer:
    found = answer.forecast
    if not answer.position or found is None:
        return answer
    limit = partial(deadline, options.seconds / OUTLOOK_QUESTIONS)
    [more] = with_outlook(run, state.objects, [(gang, found)], state.run_times, limit=limit)
    return replace(answer, forecast=more)


def _find(world: World, name: str, state: ClusterState) -> Gang:
    found = find_gang(world, name)
    if not found and (others := _served_by_others(state, lambda pod: name in _names(pod))):
        raise UserError(f"{name} {'; '.join(others)}")
    if len(found) != 1:
        raise UserError(_not_one(name, [gang.full_name for gang in found or world.facts.gangs.values()], found=len(found)))
    return found[0]


def _names(pod: Pod) -> tuple[str, ...]:
    """By which a person may mean it or its gang, with or without the namespace."""
    gang = "" if pod.membership is None else pod.membership.name
    return (pod.full_name, pod.name, f"{pod.namespace}/{gang}", gang)


def _not_one(name: str, names: list[str], *, found: int) -> str:
    if found:
        return f"{found} gangs have the name {name}: {join_names(sorted(names), limit=8)}. Name one with its namespace"
    near = nearest(name, names) or nearest(f"default/{name}", names)
    hint = f". Did you mean {near!r}?" if near else "; `muster gangs` lists them" if names else ": it has no gang at all"
    return f"there is no gang {name!r} in the cluster{hint}"


def _lines(answer: GangAnswer, state: ClusterState, logged: tuple[str, ...], seconds: float) -> Iterator[Line]:
    found = answer.forecast
    assert found is not None
    waits = answer.position > 0
    yield styled((answer.gang.gang, BOLD), " ", *_headline(answer, waits=waits))
    yield styled("")
    yield from _waiting_lines(answer, found) if waits else _running_lines(answer)
    if found.code == CANNOT_RUN:
        yield from start_rows(found, now=state.now, seconds=seconds)
        yield from remedy_rows(found, seconds=seconds)
    yield from rows_of("parts", list(_parts(answer.gang.subgroups)))
    yield from rows_of("queue", [_queue(answer)] * (answer.queue is not None))
    yield from rows_of("holds", list(_reservations(answer)))
    yield from rows_of("log", list(logged))
    if waits and found.code != CANNOT_RUN:
        yield styled("")
        yield from forecast_lines(found, after_why=True)
        yield from start_rows(found, now=state.now, seconds=seconds)
    elif waits:
        yield from rows_of("domains", [f"{each.domain}: {each.why}" for each in new_alternatives(found) if each.domain][:6])
    yield from rows_of("note", [*bounds_of(found, seconds=seconds), *state.notes])


def _waiting_lines(answer: GangAnswer, found: Forecast) -> Iterator[Line]:
    reasons = found.why_not_now or found.why or _other_reason(answer)
    first, *rest = [part for part in reasons.split("; ") if part]
    yield from rows_of("decides", [first])
    yield from rows_of("then", rest)
    yield from rows_of("before it", [_ahead(answer)] * bool(answer.ahead))


def _running_lines(answer: GangAnswer) -> Iterator[Line]:
    yield from rows_of("where", [_where(answer.gang)] * bool(answer.gang.nodes))
    yield from rows_of("may lose", list(_may_lose(answer)))
    yield from rows_of("evicted", list(answer.loses))
    yield from rows_of("budgets", [", ".join(answer.budgets)] * bool(answer.budgets))


def _headline(answer: GangAnswer, *, waits: bool) -> Iterator[str | tuple[str, str]]:
    gang, since = answer.gang, duration(answer.since_s)
    if waits:
        placed = f", {gang.placed} of {gang.size} members placed" if gang.placed else ""
        yield (f"is {gang.stage}", NOTE)
        yield f" for {since}{placed}, {answer.position} of {answer.waiting_in_queue} in queue {queue_name(gang.queue)}."
        return
    yield (f"is {gang.stage}", GOOD if gang.stage == Stage.RUNNING.value else NOTE)
    yield f" for {since}: {gang.placed} members, its minimum is {gang.min}; priority {gang.priority}."


def _parts(subgroups: tuple[ObservedSubgroup, ...], indent: str = "") -> Iterator[str]:
    """Each subgroup with what it has and needs, below the one that it is a part of."""
    for each in subgroups:
        needs = [f"{each.placed} of {count(each.size, 'member', 'members')} placed"]
        if each.min:
            needs.append(f"its minimum is {each.min}")
        if each.min_subgroups:
            needs.append(f"{each.complete_subgroups} of at least {count(each.min_subgroups, 'part', 'parts')} complete")
        yield f"{indent}{each.name}: {', '.join(needs)}"
        yield from _parts(each.subgroups, f"{indent}  ")


def _other_reason(answer: GangAnswer) -> str:
    gang = answer.gang
    if answer.reservations:
        return "capacity is being released on its nominated nodes"
    if gang.size >= gang.min:
        return "nothing: the next cycle places it"
    return f"{gang.size} of at least {count(gang.min, 'member exists', 'members exist')}"


def _ahead(answer: GangAnswer) -> str:
    shown = [f"{gang.gang} ({_requested(gang)})" for gang in answer.ahead[-_MAX_AHEAD:]]
    more = len(answer.ahead) - len(shown)
    return ", ".join(([f"{more} more"] if more else []) + shown)


def _requested(gang: ObservedGang) -> str:
    amounts = dict(gang.requested)
    resource = next((name for name in amounts if short_name(name).endswith("gpu")), CPU)
    return amount(resource, amounts.get(resource, 0))


def _where(gang: ObservedGang) -> str:
    return f"{count(len(gang.nodes), 'node')}: {compact_names(gang.nodes)}"


def _may_lose(answer: GangAnswer) -> Iterator[str]:
    surplus = answer.gang.placed - answer.gang.min
    if surplus > 0:
        yield f"{surplus} above its minimum, evicted first when capacity is needed"
    if answer.work_hours:
        yield f"at most {answer.work_hours:.1f} h of work of a pod, if it is evicted now"


def _queue(answer: GangAnswer) -> str:
    assert answer.queue is not None
    row = answer.queue
    parts = []
    used, deserved, limit = dict(row.used), dict(row.deserved), dict(row.limit)
    for resource in sorted({*deserved, *limit}):
        bounds = [f"{show_amount(resource, deserved[resource])} deserved"] if resource in deserved else []
        bounds += [f"{show_amount(resource, limit[resource])} limit"] if resource in limit else []
        parts.append(f"{short_name(resource)} {show_amount(resource, used.get(resource, 0))} used of {', '.join(bounds)}")
    return f"{queue_name(row.queue)}: {'; '.join(parts) or 'no share or limit is configured'}"


def _reservations(answer: GangAnswer) -> Iterator[str]:
    for phase in dict.fromkeys(phase for phase, _ in answer.reservations):
        nodes = Counter(node for each, node in answer.reservations if each == phase)
        yield f"{phase}: {compact_names(sorted(nodes))}"
