"""`muster plan`: would this job run, where, and who would have to leave? One cycle on a copy of a cluster; nothing is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from muster.cli.cluster_file import list_items, read_cluster, read_text_or_gzip
from muster.cli.errors import InvalidFiles, UserError, show_user_error
from muster.cli.json_output import errors_document, write_json
from muster.cli.scenario_files import read_scenarios, read_text
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, TextLine, to_stdout
from muster.cli.text_format import compact_names, count, queue_name
from muster.cli.usage_errors import USAGE_ERROR
from muster.config import load_policy
from muster.forecast import CANNOT_RUN, RUNS_AFTER_EVICTION, RUNS_NOW, Alternative, EvictedGang, Forecast, NoSuchJob, forecast
from muster.model.events import Event, Upsert
from muster.model.pod import Pod
from muster.scenario.loader import policy_of
from muster.scenario.object_parser import ParseScope, parse_gang
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.step_parser import parse_manifest
from muster.scenario.symbol_table import SymbolTable, is_manifest
from muster.scenario.syntax_tree import GangSpec, Manifest, Scenario, SourceManifest, SubmitStep
from muster.state.derived.topology_domains import WHOLE_CLUSTER
from muster.yaml_positions import InputError, InputFaults, YamlValue, read_yaml_documents

_MAX_ALTERNATIVES = 6
_SCENARIO_KEYS = ("nodes", "gangs", "steps")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What was typed. `after_steps`: the cluster is as the scenario leaves it, not as it begins."""

    job: Path
    cluster: str
    policy: Path | None = None
    after_steps: bool = False
    json: bool = False


def plan(options: PlanOptions) -> int:
    """Say what would happen to the job, and leave with the code that means it."""
    try:
        found = _forecasts(options)
    except (UserError, InputError, NoSuchJob) as error:
        return _show_error(error, options)
    code = max(each.code for each in found)
    if options.json:
        write_json("plan", ok=code != CANNOT_RUN, errors=[], code=code, gangs=[_document(each) for each in found])
        return code
    screen = to_stdout()
    for number, each in enumerate(found):
        screen.print_lines([TextLine.of("")] * (number > 0) + list(lines(each)))
    return code


def _show_error(error: UserError | InputError | NoSuchJob, options: PlanOptions) -> int:
    told: UserError = InvalidFiles(error.faults) if isinstance(error, InputError) else UserError(str(error))
    if isinstance(error, NoSuchJob):
        told = UserError(f"{options.job}: {error}")
    elif isinstance(error, UserError):
        told = error
    if options.json:
        write_json("plan", ok=False, errors=errors_document(told))
    show_user_error(told)
    return USAGE_ERROR


# -- the cluster and the job -------------------------------------------------------------------------------------------------------


def _forecasts(options: PlanOptions) -> tuple[Forecast, ...]:
    scenario = _cluster(options.cluster)
    if options.policy is not None:
        read_text(options.policy)
        load_policy(options.policy)
        scenario = replace(scenario, policy=options.policy)
    play = ScenarioRunner(scenario)
    play.set_up()
    for step in scenario.steps if options.after_steps else ():
        play.run_step(step)
    before = {event.obj.uid for event in play.cluster.list_events() if isinstance(event, Upsert) and isinstance(event.obj, Pod)}
    play.run_step(_job(options.job, play))
    facts: list[Event] = []
    job: list[Event] = []
    for event in play.cluster.list_events():
        is_new = isinstance(event, Upsert) and isinstance(event.obj, Pod) and event.obj.uid not in before
        (job if is_new else facts).append(event)
    return forecast(policy_of(scenario), facts, job, now=play.cluster.now)


def _cluster(word: str) -> Scenario:
    """A scenario (`file.yaml`, `file.yaml:12`), or Kubernetes objects as `kubectl get` or `muster snapshot` writes them."""
    path = Path(word)
    if path.is_file() and (found := read_cluster(path)) is not None:
        return found
    scenarios = read_scenarios([word])
    if len(scenarios) > 1:
        begins = ", ".join(str(each.line) for each in scenarios)
        which = f"say which, as {word}:{scenarios[0].line}"
        raise UserError(f"{word} holds {len(scenarios)} scenarios, at the lines {begins}: {which}")
    return scenarios[0]


def _job(path: Path, play: ScenarioRunner) -> SubmitStep:
    """Manifests, or gangs in the short form of scenarios."""
    faults = InputFaults(str(path))
    items = [
        item
        for document in read_yaml_documents(read_text_or_gzip(path), file=str(path))
        for item in (document.items or (document,))
    ]
    if not items:
        raise UserError(f"{path}: there is no job in this file")
    scope = ParseScope(_symbol_table(items, play), faults)
    objects: list[SourceManifest] = []
    gangs: list[GangSpec] = []
    for item in list_items(items):
        if any(key in item.mapping for key in _SCENARIO_KEYS):
            raise UserError(f"{path}: this is a scenario, not a job: give it as --cluster")
        if is_manifest(item):
            objects.extend(parse_manifest(item, path="job", faults=faults))
        else:
            gangs.extend(parse_gang(item, path="job", scope=scope))
    faults.raise_any()
    return SubmitStep(items[0].line, tuple(gangs), tuple(objects))


def _symbol_table(items: Sequence[YamlValue], play: ScenarioRunner) -> SymbolTable:
    """The names that a job may use: those of the cluster and its own."""
    cast = SymbolTable(YamlValue({"gangs": YamlValue(tuple(items))}))
    for names, kind in ((cast.queues, "Queue"), (cast.classes, "PriorityClass"), (cast.nodes, "Node")):
        names.update(dict.fromkeys(_name(manifest) for manifest in play.cluster.listed(kind)))
    return cast


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


# -- what a person reads -----------------------------------------------------------------------------------------------------------


def lines(found: Forecast) -> Iterator[TextLine]:
    yield _headline(found)
    yield TextLine.of("")
    if found.code == CANNOT_RUN:
        yield from _rows("why", [found.why or "nobody can say why"])
    else:
        yield from _rows("where", [_where(found)])
    if found.evicted_gangs:
        yield from _rows("evicts", _aligned([_loss_cells(loss, found) for loss in found.evicted_gangs]))
        yield from _rows("costs", [_costs(found)])
    if found.code == RUNS_AFTER_EVICTION:
        budgets = dict.fromkeys(budget for loss in found.evicted_gangs for budget in loss.budgets)
        yield from _rows("touches", [f"disruption budgets {', '.join(budgets)}" if budgets else "no disruption budget"])
    if found.without:
        yield from _rows("without", [found.without])
    shown = found.alternatives[:_MAX_ALTERNATIVES]
    left = len(found.alternatives) - len(shown)
    yield from _rows("instead", [*map(_alternative_text, shown), *([f"{left} more domains: see --json"] if left else [])])


def _headline(found: Forecast) -> TextLine:
    title = (found.gang, BOLD)
    if found.code == CANNOT_RUN:
        return TextLine.of(title, " ", ("cannot run", BAD), ".")
    missing = found.members - len(found.placements)
    rest = f" with {len(found.placements)} of {found.members} members" if missing > 0 else ""
    if found.code == RUNS_NOW:
        return TextLine.of(title, " ", ("can run now", GOOD), f"{rest}.")
    if not found.evicted_gangs:
        return TextLine.of(title, " ", ("can run soon", NOTE), f"{rest}: the room that it needs is being left, nobody is evicted.")
    ends = sum(loss.whole for loss in found.evicted_gangs)
    less = len(found.evicted_gangs) - ends
    gangs = [count(ends, "gang")] * (ends > 0)
    spare = [f"spare members of {count(less, 'gang')}"] * (less > 0)
    return TextLine.of(title, " ", ("can run after evicting", NOTE), f" {' and '.join(gangs + spare)}{rest}.")


def _where(found: Forecast) -> str:
    on_node = Counter(node for _, node in found.placements)
    each: dict[int, list[str]] = {}
    for node, members in on_node.items():
        each.setdefault(members, []).append(node)
    nodes = "; ".join(f"{compact_names(sorted(names))}, {count(members, 'member')} each" for members, names in sorted(each.items()))
    domain = f"{found.domain}, " if found.domain not in ("", WHOLE_CLUSTER.name, *on_node) else ""
    return f"{domain}{count(len(on_node), 'node')}: {nodes}"


def _loss_cells(loss: EvictedGang, found: Forecast) -> tuple[str, str, str, str]:
    if loss.queue == found.queue and loss.priority < found.priority:
        entitled = f"priority {loss.priority} < {found.priority}"
    else:
        entitled = f"queue {queue_name(loss.queue)} is over its share"
    if loss.whole:
        pods = count(len(loss.pods), "pod")
        return loss.gang, f"{pods}, whole gang" if loss.of > 1 else pods, entitled, f"loses {loss.hours:.1f} h of work"
    return loss.gang, f"{len(loss.pods)} of {loss.of} pods, above its minimum of {loss.min}", entitled, "keeps running"


def _costs(found: Forecast) -> str:
    broken = sum(loss.whole for loss in found.evicted_gangs)
    ends = f"; {count(broken, 'gang')} end{'s' * (broken == 1)}" if broken else "; no gang ends"
    if found.gpu_hours:
        return f"{found.gpu_hours:.1f} GPU-hours of lost work{ends}"
    return f"at most {max(loss.hours for loss in found.evicted_gangs):.1f} h of work of a pod{ends}"


def _alternative_text(other: Alternative) -> str:
    where = other.domain if other.domain != WHOLE_CLUSTER.name else other.action
    if other.gpu_hours is None:
        return f"{where}: {other.why}"
    return f"{where}: {other.gpu_hours:.1f} GPU-hours (evicts {', '.join(other.evicts) or 'nobody'})"


def _rows(word: str, texts: Sequence[str]) -> Iterator[TextLine]:
    for number, text in enumerate(texts):
        yield TextLine.of((f" {word if not number else '':<8} ", DIM), text)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _document(found: Forecast) -> dict[str, object]:
    return {**asdict(found), "gpu_hours": found.gpu_hours}
