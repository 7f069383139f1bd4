"""`muster plan`: would this job run, where, and who would have to leave? One cycle on a copy of a cluster; nothing is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from muster.cli.clusters import items_of, read_cluster, text_of
from muster.cli.errors import BadFiles, UserError, show_user_error
from muster.cli.files import read_text, scenarios_of
from muster.cli.machine import errors_document, show_json
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, Line, to_stdout
from muster.cli.usage import WRONG_USE
from muster.cli.words import count, fold, queue_title
from muster.config import load_policy
from muster.forecast import CANNOT_RUN, RUNS_AFTER_EVICTION, RUNS_NOW, Elsewhere, Forecast, Loss, NoSuchJob, forecast
from muster.model.events import Event, Seen
from muster.model.pod import Pod
from muster.scenario.cast import Cast, is_manifest
from muster.scenario.gangs import Reading, read_gang
from muster.scenario.load import policy_of
from muster.scenario.play import Play
from muster.scenario.steps import read_object
from muster.scenario.story import GangSpec, Manifest, Scenario, Submit, Written
from muster.state.domains import WHOLE_CLUSTER
from muster.yaml_marks import Faults, InputError, Marked, read_all

_MOST_INSTEAD = 6
_OF_SCENARIOS = ("nodes", "gangs", "steps")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was typed. `after_steps`: the cluster is as the scenario leaves it, not as it begins."""

    job: Path
    cluster: str
    policy: Path | None = None
    after_steps: bool = False
    json: bool = False


def plan(wishes: Wishes) -> int:
    """Say what would happen to the job, and leave with the code that means it."""
    try:
        found = _forecasts(wishes)
    except (UserError, InputError, NoSuchJob) as error:
        return _refuse(error, wishes)
    code = max(each.code for each in found)
    if wishes.json:
        show_json("plan", ok=code != CANNOT_RUN, errors=[], code=code, gangs=[_document(each) for each in found])
        return code
    screen = to_stdout()
    for number, each in enumerate(found):
        screen.say_all([Line.of("")] * (number > 0) + list(lines(each)))
    return code


def _refuse(error: UserError | InputError | NoSuchJob, wishes: Wishes) -> int:
    told: UserError = BadFiles(error.faults) if isinstance(error, InputError) else UserError(str(error))
    if isinstance(error, NoSuchJob):
        told = UserError(f"{wishes.job}: {error}")
    elif isinstance(error, UserError):
        told = error
    if wishes.json:
        show_json("plan", ok=False, errors=errors_document(told))
    show_user_error(told)
    return WRONG_USE


# -- the cluster and the job -------------------------------------------------------------------------------------------------------


def _forecasts(wishes: Wishes) -> tuple[Forecast, ...]:
    scenario = _cluster(wishes.cluster)
    if wishes.policy is not None:
        read_text(wishes.policy)
        load_policy(wishes.policy)
        scenario = replace(scenario, policy=wishes.policy)
    play = Play(scenario)
    play.set_up()
    for step in scenario.steps if wishes.after_steps else ():
        play.do(step)
    before = {event.thing.uid for event in play.cluster.everything() if isinstance(event, Seen) and isinstance(event.thing, Pod)}
    play.do(_job(wishes.job, play))
    facts: list[Event] = []
    job: list[Event] = []
    for event in play.cluster.everything():
        is_new = isinstance(event, Seen) and isinstance(event.thing, Pod) and event.thing.uid not in before
        (job if is_new else facts).append(event)
    return forecast(policy_of(scenario), facts, job, now=play.cluster.now)


def _cluster(word: str) -> Scenario:
    """A scenario (`file.yaml`, `file.yaml:12`), or Kubernetes objects as `kubectl get` or `muster snapshot` writes them."""
    path = Path(word)
    if path.is_file() and (found := read_cluster(path)) is not None:
        return found
    scenarios = scenarios_of([word])
    if len(scenarios) > 1:
        begins = ", ".join(str(each.line) for each in scenarios)
        which = f"say which, as {word}:{scenarios[0].line}"
        raise UserError(f"{word} holds {len(scenarios)} scenarios, at the lines {begins}: {which}")
    return scenarios[0]


def _job(path: Path, play: Play) -> Submit:
    """Manifests, or gangs in the short form of scenarios."""
    faults = Faults(str(path))
    items = [item for document in read_all(text_of(path), file=str(path)) for item in (document.items or (document,))]
    if not items:
        raise UserError(f"{path}: there is no job in this file")
    reading = Reading(_cast(items, play), faults)
    objects: list[Written] = []
    gangs: list[GangSpec] = []
    for item in items_of(items):
        if any(key in item.mapping for key in _OF_SCENARIOS):
            raise UserError(f"{path}: this is a scenario, not a job: give it as --cluster")
        if is_manifest(item):
            objects.extend(read_object(item, path="job", faults=faults))
        else:
            gangs.extend(read_gang(item, path="job", reading=reading))
    faults.raise_any()
    return Submit(items[0].line, tuple(gangs), tuple(objects))


def _cast(items: Sequence[Marked], play: Play) -> Cast:
    """The names that a job may use: those of the cluster and its own."""
    cast = Cast(Marked({"gangs": Marked(tuple(items))}))
    for names, kind in ((cast.queues, "Queue"), (cast.classes, "PriorityClass"), (cast.nodes, "Node")):
        names.update(dict.fromkeys(_name(manifest) for manifest in play.cluster.listed(kind)))
    return cast


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


# -- what a person reads -----------------------------------------------------------------------------------------------------------


def lines(found: Forecast) -> Iterator[Line]:
    yield _headline(found)
    yield Line.of("")
    if found.code == CANNOT_RUN:
        yield from _rows("why", [found.why or "nobody can say why"])
    else:
        yield from _rows("where", [_where(found)])
    if found.losses:
        yield from _rows("evicts", _aligned([_loss_cells(loss, found) for loss in found.losses]))
        yield from _rows("costs", [_costs(found)])
    if found.code == RUNS_AFTER_EVICTION:
        budgets = dict.fromkeys(budget for loss in found.losses for budget in loss.budgets)
        yield from _rows("touches", [f"disruption budgets {', '.join(budgets)}" if budgets else "no disruption budget"])
    if found.without:
        yield from _rows("without", [found.without])
    shown = found.instead[:_MOST_INSTEAD]
    left = len(found.instead) - len(shown)
    yield from _rows("instead", [*map(_elsewhere, shown), *([f"{left} more domains: see --json"] if left else [])])


def _headline(found: Forecast) -> Line:
    title = (found.gang, BOLD)
    if found.code == CANNOT_RUN:
        return Line.of(title, " ", ("cannot run", BAD), ".")
    missing = found.members - len(found.seats)
    rest = f" with {len(found.seats)} of {found.members} members" if missing > 0 else ""
    if found.code == RUNS_NOW:
        return Line.of(title, " ", ("can run now", GOOD), f"{rest}.")
    if not found.losses:
        return Line.of(title, " ", ("can run soon", NOTE), f"{rest}: the room that it needs is being left, nobody is evicted.")
    ends = sum(loss.whole for loss in found.losses)
    less = len(found.losses) - ends
    gangs = [count(ends, "gang")] * (ends > 0)
    spare = [f"spare members of {count(less, 'gang')}"] * (less > 0)
    return Line.of(title, " ", ("can run after evicting", NOTE), f" {' and '.join(gangs + spare)}{rest}.")


def _where(found: Forecast) -> str:
    on_node = Counter(node for _, node in found.seats)
    each: dict[int, list[str]] = {}
    for node, members in on_node.items():
        each.setdefault(members, []).append(node)
    nodes = "; ".join(f"{fold(sorted(names))}, {count(members, 'member')} each" for members, names in sorted(each.items()))
    domain = f"{found.domain}, " if found.domain not in ("", WHOLE_CLUSTER.name, *on_node) else ""
    return f"{domain}{count(len(on_node), 'node')}: {nodes}"


def _loss_cells(loss: Loss, found: Forecast) -> tuple[str, str, str, str]:
    if loss.queue == found.queue and loss.priority < found.priority:
        entitled = f"priority {loss.priority} < {found.priority}"
    else:
        entitled = f"queue {queue_title(loss.queue)} is over its share"
    if loss.whole:
        pods = count(len(loss.pods), "pod")
        return loss.gang, f"{pods}, whole gang" if loss.of > 1 else pods, entitled, f"loses {loss.hours:.1f} h of work"
    return loss.gang, f"{len(loss.pods)} of {loss.of} pods, above its minimum of {loss.min}", entitled, "keeps running"


def _costs(found: Forecast) -> str:
    broken = sum(loss.whole for loss in found.losses)
    ends = f"; {count(broken, 'gang')} end{'s' * (broken == 1)}" if broken else "; no gang ends"
    if found.gpu_hours:
        return f"{found.gpu_hours:.1f} GPU-hours of lost work{ends}"
    return f"at most {max(loss.hours for loss in found.losses):.1f} h of work of a pod{ends}"


def _elsewhere(other: Elsewhere) -> str:
    where = other.domain if other.domain != WHOLE_CLUSTER.name else other.action
    if other.gpu_hours is None:
        return f"{where}: {other.why}"
    return f"{where}: {other.gpu_hours:.1f} GPU-hours (evicts {', '.join(other.evicts) or 'nobody'})"


def _rows(word: str, texts: Sequence[str]) -> Iterator[Line]:
    for number, text in enumerate(texts):
        yield Line.of((f" {word if not number else '':<8} ", DIM), text)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _document(found: Forecast) -> dict[str, object]:
    return {**asdict(found), "gpu_hours": found.gpu_hours}
