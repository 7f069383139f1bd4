"""`muster plan`: whether a job would run, on which nodes, and what it would evict. One cycle on a copy of a cluster; a dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muster.cli.cluster_file import list_items, read_cluster, read_text_or_gzip
from muster.cli.errors import InvalidFiles, UserError, show_user_error
from muster.cli.json_output import JsonDocument, errors_document, to_json, write_json
from muster.cli.scenario_files import read_scenarios, read_text
from muster.cli.screen import BAD, BOLD, DIM, GOOD, NOTE, TextLine, to_stdout
from muster.cli.text_format import compact_names, count, queue_name
from muster.cli.usage_errors import USAGE_ERROR
from muster.config import load_policy
from muster.forecast import CANNOT_RUN, RUNS_AFTER_EVICTION, RUNS_NOW, Alternative, EvictedGang, Forecast, NoSuchJob, forecast
from muster.kube.read.object_references import Manifest
from muster.model.events import Event, Upsert
from muster.model.pod import Pod
from muster.scenario.loader import policy_of
from muster.scenario.object_parser import ParseScope, parse_gang
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.step_parser import parse_manifest
from muster.scenario.symbol_table import SymbolTable, is_manifest
from muster.scenario.syntax_tree import GangSpec, Scenario, SourceManifest, SubmitStep
from muster.state.derived.topology_domains import WHOLE_CLUSTER
from muster.yaml_positions import InputError, InputFaults, YamlValue, read_yaml_documents

_MAX_ALTERNATIVES = 6
_SCENARIO_KEYS = ("nodes", "gangs", "steps")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The command's options. `after_steps`: plan on the cluster as the scenario's steps leave it."""

    job: Path
    cluster: str
    policy: Path | None = None
    after_steps: bool = False
    json: bool = False


def plan(options: PlanOptions) -> int:
    """Print the forecast of each gang of the job; the exit code is that of the worst."""
    try:
        forecasts = _forecasts(options)
    except (UserError, InputError, NoSuchJob) as error:
        return _show_error(error, options)
    code = max(each.code for each in forecasts)
    if options.json:
        write_json("plan", ok=code != CANNOT_RUN, errors=[], code=code, gangs=[_document(each) for each in forecasts])
        return code
    screen = to_stdout()
    for number, each in enumerate(forecasts):
        screen.print_lines([TextLine.of("")] * (number > 0) + list(forecast_lines(each)))
    return code


def _show_error(error: UserError | InputError | NoSuchJob, options: PlanOptions) -> int:
    shown: UserError
    if isinstance(error, InputError):
        shown = InvalidFiles(error.faults)
    elif isinstance(error, UserError):
        shown = error
    else:
        shown = UserError(f"{options.job}: {error}")
    if options.json:
        write_json("plan", ok=False, errors=errors_document(shown))
    show_user_error(shown)
    return USAGE_ERROR


# -- the cluster and the job -------------------------------------------------------------------------------------------------------


def _forecasts(options: PlanOptions) -> tuple[Forecast, ...]:
    scenario = _cluster(options.cluster)
    if options.policy is not None:
        read_text(options.policy)
        load_policy(options.policy)
        scenario = replace(scenario, policy=options.policy)
    runner = ScenarioRunner(scenario)
    runner.set_up()
    for step in scenario.steps if options.after_steps else ():
        runner.run_step(step)
    before = {event.obj.uid for event in runner.cluster.list_events() if isinstance(event, Upsert) and isinstance(event.obj, Pod)}
    runner.run_step(_job(options.job, runner))
    facts: list[Event] = []
    job: list[Event] = []
    for event in runner.cluster.list_events():
        is_new = isinstance(event, Upsert) and isinstance(event.obj, Pod) and event.obj.uid not in before
        (job if is_new else facts).append(event)
    return forecast(policy_of(scenario), facts, job, now=runner.cluster.now)


def _cluster(argument: str) -> Scenario:
    """A scenario (`file.yaml`, `file.yaml:12`), or Kubernetes objects as `kubectl get` or `muster snapshot` writes them."""
    path = Path(argument)
    if path.is_file() and (cluster := read_cluster(path)) is not None:
        return cluster
    scenarios = read_scenarios([argument])
    if len(scenarios) > 1:
        lines = ", ".join(str(each.line) for each in scenarios)
        hint = f"select one, such as {argument}:{scenarios[0].line}"
        raise UserError(f"{argument} contains {len(scenarios)} scenarios, at lines {lines}: {hint}")
    return scenarios[0]


def _job(path: Path, runner: ScenarioRunner) -> SubmitStep:
    """Manifests, or gangs in scenario syntax."""
    faults = InputFaults(str(path))
    items = [
        item
        for document in read_yaml_documents(read_text_or_gzip(path), file=str(path))
        for item in (document.items or (document,))
    ]
    if not items:
        raise UserError(f"{path}: no job in this file")
    scope = ParseScope(_symbol_table(items, runner), faults)
    objects: list[SourceManifest] = []
    gangs: list[GangSpec] = []
    for item in list_items(items):
        if any(key in item.mapping for key in _SCENARIO_KEYS):
            raise UserError(f"{path}: this is a scenario, not a job: pass it as --cluster")
        if is_manifest(item):
            objects.extend(parse_manifest(item, path="job", faults=faults))
        else:
            gangs.extend(parse_gang(item, path="job", scope=scope))
    faults.raise_any()
    return SubmitStep(items[0].line, tuple(gangs), tuple(objects))


def _symbol_table(items: Sequence[YamlValue], runner: ScenarioRunner) -> SymbolTable:
    """The names that a job may use: those of the cluster and its own."""
    symbols = SymbolTable(YamlValue({"gangs": YamlValue(tuple(items))}))
    for names, kind in ((symbols.queues, "Queue"), (symbols.classes, "PriorityClass"), (symbols.nodes, "Node")):
        names.update(dict.fromkeys(_name(manifest) for manifest in runner.cluster.listed(kind)))
    return symbols


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


# -- text output -------------------------------------------------------------------------------------------------------------------


def forecast_lines(forecast: Forecast) -> Iterator[TextLine]:
    yield _headline(forecast)
    yield TextLine.of("")
    if forecast.code == CANNOT_RUN:
        yield from _rows("why", [forecast.why or "no reason given"])
    else:
        yield from _rows("where", [_where(forecast)])
    if forecast.evicted_gangs:
        yield from _rows("evicts", _aligned([_evicted_cells(evicted, forecast) for evicted in forecast.evicted_gangs]))
        yield from _rows("costs", [_costs(forecast)])
    if forecast.code == RUNS_AFTER_EVICTION:
        budgets = dict.fromkeys(budget for evicted in forecast.evicted_gangs for budget in evicted.budgets)
        yield from _rows("touches", [f"disruption budgets {', '.join(budgets)}" if budgets else "no disruption budget"])
    if forecast.why_not_now:
        yield from _rows("without", [forecast.why_not_now])
    shown = forecast.alternatives[:_MAX_ALTERNATIVES]
    hidden = len(forecast.alternatives) - len(shown)
    yield from _rows("instead", [*map(_alternative_text, shown), *([f"{hidden} more domains: see --json"] if hidden else [])])


def _headline(forecast: Forecast) -> TextLine:
    gang = (forecast.gang, BOLD)
    if forecast.code == CANNOT_RUN:
        return TextLine.of(gang, " ", ("cannot run", BAD), ".")
    missing = forecast.members - len(forecast.placements)
    partly = f" with {len(forecast.placements)} of {forecast.members} members" if missing > 0 else ""
    if forecast.code == RUNS_NOW:
        return TextLine.of(gang, " ", ("can run now", GOOD), f"{partly}.")
    if not forecast.evicted_gangs:
        return TextLine.of(gang, " ", ("can run soon", NOTE), f"{partly}: the capacity it needs is being released, no eviction.")
    ended = sum(evicted.whole_gang for evicted in forecast.evicted_gangs)
    reduced = len(forecast.evicted_gangs) - ended
    whole = [count(ended, "gang")] * (ended > 0)
    surplus = [f"surplus members of {count(reduced, 'gang')}"] * (reduced > 0)
    return TextLine.of(gang, " ", ("can run after evicting", NOTE), f" {' and '.join(whole + surplus)}{partly}.")


def _where(forecast: Forecast) -> str:
    on_node = Counter(node for _, node in forecast.placements)
    by_count: dict[int, list[str]] = {}
    for node, members in on_node.items():
        by_count.setdefault(members, []).append(node)
    nodes = "; ".join(
        f"{compact_names(sorted(names))}, {count(members, 'member')} each" for members, names in sorted(by_count.items())
    )
    domain = f"{forecast.domain}, " if forecast.domain not in ("", WHOLE_CLUSTER.name, *on_node) else ""
    return f"{domain}{count(len(on_node), 'node')}: {nodes}"


def _evicted_cells(evicted: EvictedGang, forecast: Forecast) -> tuple[str, str, str, str]:
    if evicted.queue == forecast.queue and evicted.priority < forecast.priority:
        entitled = f"priority {evicted.priority} < {forecast.priority}"
    else:
        entitled = f"queue {queue_name(evicted.queue)} is over its share"
    if evicted.whole_gang:
        pods = count(len(evicted.pods), "pod")
        return (
            evicted.gang,
            f"{pods}, whole gang" if evicted.gang_size > 1 else pods,
            entitled,
            f"loses {evicted.hours:.1f} h of work",
        )
    return (
        evicted.gang,
        f"{len(evicted.pods)} of {evicted.gang_size} pods, above its minimum of {evicted.min}",
        entitled,
        "keeps running",
    )


def _costs(forecast: Forecast) -> str:
    ended = sum(evicted.whole_gang for evicted in forecast.evicted_gangs)
    ends = f"; {count(ended, 'gang')} end{'s' * (ended == 1)}" if ended else "; no gang ends"
    if forecast.gpu_hours:
        return f"{forecast.gpu_hours:.1f} GPU-hours of lost work{ends}"
    return f"at most {max(evicted.hours for evicted in forecast.evicted_gangs):.1f} h of work of a pod{ends}"


def _alternative_text(alternative: Alternative) -> str:
    where = alternative.domain if alternative.domain != WHOLE_CLUSTER.name else alternative.action
    if alternative.gpu_hours is None:
        return f"{where}: {alternative.why}"
    return f"{where}: {alternative.gpu_hours:.1f} GPU-hours (evicts {', '.join(alternative.evicts) or 'nothing'})"


def _rows(label: str, texts: Sequence[str]) -> Iterator[TextLine]:
    for number, text in enumerate(texts):
        yield TextLine.of((f" {label if not number else '':<8} ", DIM), text)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _document(forecast: Forecast) -> JsonDocument:
    return {**to_json(forecast), "gpuHours": forecast.gpu_hours}
