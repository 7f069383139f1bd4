"""`muster plan`: whether a job would run, on which nodes, and what it would evict. One cycle on a copy of a cluster; a dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rich.text import Text

from muster.cli.cluster_file import job_texts
from muster.cli.cluster_state import ClusterOptions, read_cluster_state
from muster.cli.errors import UserError
from muster.cli.json_output import write_json
from muster.cli.outlook_text import OUTLOOK_QUESTIONS, bounds_of, deadline, remedy_rows, start_rows
from muster.cli.screen import BAD, BOLD, GOOD, NOTE, Line, rows_of, styled, to_stdout
from muster.cli.text_format import compact_names, count, queue_name
from muster.forecast.dry_run import (
    CANNOT_RUN,
    RUNS_AFTER_EVICTION,
    RUNS_NOW,
    Alternative,
    EvictedGang,
    Forecast,
    NoSuchJob,
    forecast,
)
from muster.jobs.job_input import BadJob, JobOptions, plan_answers, plan_document, read_job
from muster.state.derived.topology_domains import WHOLE_CLUSTER

_MAX_ALTERNATIVES = 6


def plan(job: str, cluster: ClusterOptions, options: JobOptions, *, json: bool) -> int:
    """Print the forecast of each gang of the job; the exit code is that of the worst."""
    state = read_cluster_state(cluster)
    names = state.policy.settings.scheduler_names
    options = replace(options, workload=replace(options.workload, scheduler_names=names))
    try:
        found = read_job(job_texts(job), state, options, name=job)
        forecasts = forecast(
            state.policy,
            (*state.objects, *found.objects),
            found.uids,
            now=state.now,
            run_times=state.run_times,
            limit=partial(deadline, cluster.seconds / OUTLOOK_QUESTIONS),
        )
    except NoSuchJob as error:
        raise UserError(f"{job}: {error}") from None
    except BadJob as error:
        raise UserError(str(error)) from None
    answers = list(plan_answers(forecasts, found))
    code = max(each.forecast.code for each in answers)
    notes = [*found.notes, *state.notes]
    if json:
        gangs = [plan_document(each) for each in answers]
        write_json("plan", ok=code != CANNOT_RUN, errors=[], code=code, gangs=gangs, notes=notes)
        return code
    screen = to_stdout()
    for number, each in enumerate(answers):
        screen.print_lines([styled("")] * (number > 0))
        screen.print_wrapped(forecast_lines(each.forecast))
        screen.print_wrapped(start_rows(each.forecast, now=state.now, seconds=cluster.seconds))
        screen.print_wrapped(remedy_rows(each.forecast, seconds=cluster.seconds))
        screen.print_wrapped(rows_of("assumed", ["; ".join(each.assumed)] * bool(each.assumed)))
    screen.print_wrapped(rows_of("note", [*bounds_of(answers[0].forecast, seconds=cluster.seconds), *notes]))
    return code


# -- text output -------------------------------------------------------------------------------------------------------------------


def forecast_lines(forecast: Forecast, *, after_why: bool = False) -> Iterator[Line]:
    """`after_why`: the reasons were given before."""
    yield _headline(forecast)
    yield styled("")
    if forecast.code == CANNOT_RUN:
        yield from rows_of("why", [forecast.why or "no reason given"])
    else:
        yield from rows_of("where", [_where(forecast)])
    if forecast.evicted_gangs:
        verb = "moves" if _only_moves(forecast) else "evicts"
        yield from rows_of(verb, _aligned([_evicted_cells(evicted, forecast) for evicted in forecast.evicted_gangs]))
        yield from rows_of("costs", [_costs(forecast)])
    if forecast.code == RUNS_AFTER_EVICTION:
        budgets = dict.fromkeys(budget for evicted in forecast.evicted_gangs for budget in evicted.budgets)
        yield from rows_of("touches", [f"disruption budgets {', '.join(budgets)}" if budgets else "no disruption budget"])
    if forecast.why_not_now and not after_why:
        yield from rows_of("without", [forecast.why_not_now])
    others = new_alternatives(forecast)
    shown = others[:_MAX_ALTERNATIVES]
    hidden = len(others) - len(shown)
    yield from rows_of("instead", [*map(_alternative_text, shown), *([f"{hidden} more domains: see --json"] if hidden else [])])


def new_alternatives(forecast: Forecast) -> list[Alternative]:
    """Those of which the reason does not say it all."""
    return [each for each in forecast.alternatives if each.gpu_hours is not None or each.why not in forecast.why]


def _headline(forecast: Forecast) -> Text:
    gang = (forecast.gang, BOLD)
    if forecast.code == CANNOT_RUN:
        return styled(gang, " ", ("cannot run", BAD), ".")
    missing = forecast.members - len(forecast.placements)
    partly = f" with {len(forecast.placements)} of {forecast.members} members" if missing > 0 else ""
    if forecast.runs_already:
        return styled(gang, " ", ("runs already", GOOD), f"{partly}.")
    if forecast.code == RUNS_NOW:
        return styled(gang, " ", ("can run now", GOOD), f"{partly}.")
    if not forecast.evicted_gangs:
        return styled(gang, " ", ("can run soon", NOTE), f"{partly}: the capacity it needs is being released, no eviction.")
    if _only_moves(forecast):
        pods = count(sum(len(evicted.pods) for evicted in forecast.evicted_gangs), "pod")
        gangs = count(len(forecast.evicted_gangs), "gang")
        return styled(gang, " ", ("can run after moving", NOTE), f" {pods} of {gangs}{partly}; nobody ends.")
    ended = sum(evicted.whole_gang for evicted in forecast.evicted_gangs)
    reduced = len(forecast.evicted_gangs) - ended
    whole = [count(ended, "gang")] * (ended > 0)
    surplus = [f"surplus members of {count(reduced, 'gang')}"] * (reduced > 0)
    return styled(gang, " ", ("can run after evicting", NOTE), f" {' and '.join(whole + surplus)}{partly}.")


def _only_moves(forecast: Forecast) -> bool:
    return any(evicted.moved_to for evicted in forecast.evicted_gangs)


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
    if evicted.moved_to:
        pods = f"{count(len(evicted.pods), 'pod')} to {compact_names(sorted(evicted.moved_to))}"
        priorities = f"priority {evicted.priority}, asked for by {forecast.priority}"
        return (evicted.gang, pods, priorities, f"loses {evicted.hours:.1f} h of work")
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
    ended = 0 if _only_moves(forecast) else sum(evicted.whole_gang for evicted in forecast.evicted_gangs)
    ends = f"; {count(ended, 'gang')} end{'s' * (ended == 1)}" if ended else "; no gang ends"
    if forecast.gpu_hours:
        return f"{forecast.gpu_hours:.1f} GPU-hours of lost work{ends}"
    return f"at most {max(evicted.hours for evicted in forecast.evicted_gangs):.1f} h of work of a pod{ends}"


def _alternative_text(alternative: Alternative) -> str:
    where = alternative.domain if alternative.domain != WHOLE_CLUSTER.name else alternative.action
    if alternative.gpu_hours is None:
        return f"{where}: {alternative.why}"
    return f"{where}: {alternative.gpu_hours:.1f} GPU-hours (evicts {', '.join(alternative.evicts) or 'nothing'})"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
