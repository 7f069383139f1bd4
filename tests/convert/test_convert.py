"""From Volcano's scheduler configuration to a policy: what is taken over, what is told, and what is no configuration at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.config import load_policy
from muster.convert import Conversion, convert
from muster.convert.volcano_actions import ACTION_MAP, OMITTED_ACTIONS
from muster.convert.volcano_conf import FLAGS
from muster.convert.volcano_plugins import CONVERTERS, UNSUPPORTED
from muster.engine.hooks import Policy
from muster.plugins.binpack import Binpack
from muster.plugins.proportion import Proportion
from muster.plugins.spread import Spread
from muster.plugins.topology import Topology
from muster.yaml_positions import InputError

USUAL = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def plugins(*names: str, actions: str = "allocate", more: str = "") -> str:
    """A configuration of one tier; a name may have arguments below it, indented as they are."""
    return f'actions: "{actions}"\ntiers:\n- plugins:\n' + "".join(f"  - name: {name}\n" for name in names) + more


def policy_of(text: str) -> Policy:
    return load_policy(convert(text).text)


def names_of(text: str) -> list[str]:
    return [plugin.name for plugin in policy_of(text).plugins]


def notes_of(made: Conversion) -> str:
    return "\n".join(str(note) for note in made.notes)


def settings_of(policy: str) -> str:
    """The policy without its comments."""
    return "\n".join(line for line in policy.splitlines() if not line.startswith("#"))


def test_the_usual_configuration_becomes_a_policy_that_reads_like_the_default_one() -> None:
    assert (
        convert(USUAL).text
        == """\
# Made from volcano-scheduler.conf.
# Changes decisions:
# - line 10: drf without enableHierarchy has no counterpart: gangs of one queue are ordered by priority and creation, \
whatever share each of them has
# - line 14: nodeorder: balancedresource.weight and imagelocality.weight have no counterpart
# The same by another name:
# - schedulerNames includes volcano, the schedulerName of your pods: stop Volcano's scheduler before Muster starts
# - line 5: plugin gang is no plugin here: gangs are always scheduled whole
# - line 1: action backfill was left out: allocate places pods without requests together with all others
schedulerNames: [volcano, muster]
actions: [expire, enqueue, allocate]
plugins:
# Order of gangs and queues, and quotas.
- priority
- overcommit: {factor: 1.2}
- proportion: {strict: true}
# Filters.
- unschedulable
- selectors
- taints
- volumes
- ports
- fit
- pod-affinity
- spread-constraints: {weight: 2}
# Scores.
- spread: {weight: 1, resources: {cpu: 1, memory: 1}}
- node-affinity-preference: {weight: 2}
- taint-preference: {weight: 3}
- pod-affinity-preference: {weight: 2}
- nominated
# Victims.
- conformance
"""
    )


def test_every_change_is_reported_with_its_line() -> None:
    assert [str(note) for note in convert(USUAL).notes] == [
        "line 10: drf without enableHierarchy has no counterpart: gangs of one queue are ordered by priority and creation, "
        "whatever share each of them has",
        "line 14: nodeorder: balancedresource.weight and imagelocality.weight have no counterpart",
        "schedulerNames includes volcano, the schedulerName of your pods: stop Volcano's scheduler before Muster starts",
        "line 5: plugin gang is no plugin here: gangs are always scheduled whole",
        "line 1: action backfill was left out: allocate places pods without requests together with all others",
    ]


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata:\n  volcano-scheduler.conf: "


def in_config_map(conf: str) -> str:
    """As `kubectl apply` takes it: the text is a block of its own lines, after five others."""
    return f"{CONFIG_MAP}|\n" + "".join(f"    {line}\n" for line in conf.splitlines())


def test_a_config_map_is_read_as_well_as_the_file_in_it() -> None:
    assert settings_of(convert(in_config_map(USUAL)).text) == settings_of(convert(USUAL).text)


def test_notes_on_a_config_map_have_the_lines_of_the_manifest() -> None:
    lines = [note.line for note in convert(in_config_map(USUAL)).notes]
    assert lines == [note.line and note.line + 5 for note in convert(USUAL).notes]


def test_a_fault_in_a_config_map_has_the_line_and_column_of_the_manifest() -> None:
    with pytest.raises(InputError) as caught:
        convert(in_config_map("actions: allocate\ntier: []\n"), file="conf.yaml")
    (fault,) = caught.value.faults
    assert (fault.file, fault.line, fault.column) == ("conf.yaml", 7, 5)


def test_a_configuration_in_quotes_is_reported_where_it_begins() -> None:
    quoted = json.dumps(USUAL)
    assert {note.line for note in convert(f"{CONFIG_MAP}{quoted}\n").notes} == {0, 5}


# -- actions -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("allocate", ["expire", "allocate"]),
        ("enqueue, allocate, preempt, reclaim", ["expire", "enqueue", "allocate", "preempt", "gang-preempt", "gang-reclaim"]),
        ("enqueue, allocate, gangpreempt, gangreclaim", ["expire", "enqueue", "allocate", "gang-preempt", "gang-reclaim"]),
        ("enqueue, reclaim, allocate", ["expire", "enqueue", "allocate", "gang-reclaim"]),
        ("enqueue, shuffle", ["expire", "enqueue", "allocate"]),
    ],
)
def test_actions_become_ours_in_an_order_in_which_they_make_sense(theirs: str, ours: list[str]) -> None:
    assert list(policy_of(plugins("priority", "gang", "conformance", "proportion", "overcommit", actions=theirs)).actions) == ours


def test_a_change_of_order_and_a_missing_action_are_reported() -> None:
    told = notes_of(convert(plugins("gang", "proportion", actions="reclaim, shuffle")))
    assert "action allocate was added" in told
    assert "the order of the actions is now expire, allocate, gang-reclaim" in told
    assert "line 1: action shuffle has no counterpart" in told


def test_an_action_that_volcano_refuses_is_reported_with_the_nearest_that_it_takes() -> None:
    told = notes_of(convert(plugins("gang", actions="allocate, gangPreempt")))
    assert "unknown action 'gangPreempt' was left out, as Volcano itself refuses it; did you mean 'gangpreempt'?" in told


@pytest.mark.parametrize(
    ("action", "flags", "why"),
    [
        (
            "preempt",
            "enablePreemptable: false",
            "no plugin with enablePreemptable decides which pods are evictable, so Volcano evicts none",
        ),
        (
            "preempt",
            "enableJobStarving: false",
            "no plugin with enableJobStarving decides which jobs are starving, so Volcano evicts none",
        ),
        (
            "enqueue",
            "enableJobOrder: true",
            "no plugin with enableJobEnqueued decides which jobs are enqueued, so Volcano enqueues all",
        ),
    ],
)
def test_an_action_that_has_no_effect_in_volcano_has_none_here(action: str, flags: str, why: str) -> None:
    made = convert(plugins(f"priority\n    {flags}", actions=f"allocate, {action}"))
    assert load_policy(made.text).actions == ("expire", "allocate")
    assert f"line 1: action {action} was left out: {why}" in notes_of(made)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("", "with enablePreemptable: true Volcano's preempt does not evict gangs that have no surplus members; here"),
        (
            "\n    enablePreemptable: false",
            "with enablePreemptable: false Volcano's preempt evicts single members of any gang; here",
        ),
    ],
)
def test_a_change_in_who_is_evicted_is_reported(flag: str, words: str) -> None:
    assert words in notes_of(convert(plugins("priority", f"gang{flag}", actions="allocate, preempt")))
    assert words not in notes_of(convert(plugins("priority", f"gang{flag}")))


def test_gang_by_gang_eviction_frees_one_hypernode_as_volcano_does() -> None:
    made = convert(plugins("gang", actions="allocate, gangpreempt"))
    assert load_policy(made.text).settings.whole_gang == "domain"
    assert "wholeGang: cluster evicts all of it" in notes_of(made)
    assert load_policy(convert(plugins("gang", actions="allocate, preempt")).text).settings.whole_gang == "cluster"


def test_arguments_of_actions_are_taken_over_or_reported() -> None:
    more = """\
configurations:
- name: gangpreempt
  arguments: {maxDomains: 3, allowWholeBundle: false}
- name: preempt
  arguments:
    enableTopologyAwarePreemption: true
    predicateErrorCacheEnable: true
    somethingNew: 1
"""
    made = convert(plugins("gang", "network-topology-aware", actions="allocate, gangpreempt", more=more))
    assert load_policy(made.text).settings.max_evict_domains == 3
    told = notes_of(made)
    assert "line 8: gangpreempt: allowWholeBundle: false has no counterpart" in told
    assert "line 11: preempt: enableTopologyAwarePreemption was left out: every eviction is simulated with all checks" in told
    assert "line 12: preempt: predicateErrorCacheEnable was left out: it is about speed, not about decisions" in told
    assert "line 13: preempt: somethingNew has no counterpart" in told


def test_evicting_without_budgets_is_reported_with_the_plugin_there_is() -> None:
    advice = "consider adding pdb, min-runtime, lost-work"
    assert advice in notes_of(convert(plugins("gang", actions="allocate, preempt")))
    assert "consider adding min-runtime, lost-work" in notes_of(convert(plugins("gang", "pdb", actions="allocate, preempt")))
    assert advice not in notes_of(convert(plugins("gang")))


# -- plugins -----------------------------------------------------------------------------------------------------------------------


def test_an_unknown_plugin_is_reported_with_the_nearest_that_is_known() -> None:
    assert "line 4: unknown plugin 'tasktopology' was left out; did you mean 'task-topology'?" in notes_of(
        convert(plugins("tasktopology"))
    )
    assert "line 4: unknown plugin 'weather' was left out" in notes_of(convert(plugins("weather")))


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_plugin_without_a_counterpart_is_reported_with_what_that_means(name: str) -> None:
    made = convert(plugins(name))
    assert f"line 4: plugin {name} has no counterpart: {UNSUPPORTED[name]}" in notes_of(made)


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_plugin_of_which_everything_is_switched_off_is_reported_and_changes_nothing_that_can_break(name: str) -> None:
    off = "".join(f"\n    {flag}: false" for flag in FLAGS)
    made = convert(plugins(f"{name}{off}", actions="enqueue, allocate, preempt, reclaim"))
    assert load_policy(made.text).actions == ("expire", "allocate")
    assert len(made.notes) > 1


def test_a_part_that_is_switched_off_is_left_out_and_a_flag_without_meaning_is_reported() -> None:
    assert "priority" not in names_of(plugins("priority\n    enableJobOrder: false"))
    assert "taints" not in names_of(plugins("predicates\n    enablePredicate: false"))
    told = notes_of(convert(plugins("conformance\n    enabledVictim: false")))
    assert "line 5: conformance: enabledVictim: false has no counterpart and was left out" in told


def test_without_the_gang_plugin_it_is_reported_that_gangs_start_whole_all_the_same() -> None:
    assert "plugin gang is missing" in notes_of(convert(plugins("priority")))


def test_filters_that_are_switched_off_are_left_out() -> None:
    text = plugins('predicates\n    arguments: {predicate.NodePortsEnable: "false", predicate.PodAffinityEnable: false}')
    found = names_of(text)
    assert {"ports", "pod-affinity"}.isdisjoint(found)
    assert {"selectors", "taints", "volumes", "spread-constraints", "unschedulable"} <= set(found)


def test_an_unknown_argument_is_reported_with_the_nearest() -> None:
    told = notes_of(convert(plugins("nodeorder\n    arguments: {leastRequested.wieght: 2}")))
    assert "nodeorder: unknown argument 'leastRequested.wieght' was left out; did you mean 'leastrequested.weight'?" in told
    told = notes_of(convert(plugins("predicates\n    arguments: {predicate.NodePortEnable: true}")))
    assert "did you mean 'predicate.NodePortsEnable'?" in told


def test_weights_of_scores_are_taken_over_and_zero_leaves_a_score_out() -> None:
    arguments = "{nodeaffinity.weight: 7, tainttoleration.weight: 0, podtopologyspread.weight: 5, leastrequested.weight: 0}"
    text = convert(plugins("predicates", f"nodeorder\n    arguments: {arguments}")).text
    assert "- node-affinity-preference: {weight: 7}" in text
    assert "- spread-constraints: {weight: 5}" in text
    assert "taint-preference" not in text
    assert "- spread:" not in text


def test_the_same_score_from_two_plugins_is_one_with_both_their_weights() -> None:
    text = plugins(
        "nodeorder\n    arguments: {mostrequested.weight: 2, leastrequested.weight: 0}",
        "binpack\n    arguments: {binpack.weight: 6, binpack.cpu: 0, binpack.memory: 1}",
    )
    pack = next(plugin for plugin in policy_of(text).plugins if isinstance(plugin, Binpack))
    assert (pack.weight, pack.resources) == (8.0, {"cpu": 1.0, "memory": 7.0})


def test_binpack_with_weights_for_devices_is_taken_over() -> None:
    arguments = """
    arguments:
      binpack.weight: 10
      binpack.cpu: 5
      binpack.resources: nvidia.com/gpu, example.com/foo
      binpack.resources.nvidia.com/gpu: "2\""""
    pack = next(plugin for plugin in policy_of(plugins(f"binpack{arguments}")).plugins if isinstance(plugin, Binpack))
    assert pack.weight == 10.0
    assert pack.resources == {"cpu": 5.0, "memory": 1.0, "nvidia.com/gpu": 2.0, "example.com/foo": 1.0}


def test_scores_that_cancel_each_other_out_leave_binpack() -> None:
    made = convert(plugins("nodeorder", "binpack"))
    assert "cancel each other out" in notes_of(made)
    found = [plugin for plugin in load_policy(made.text).plugins if isinstance(plugin, Binpack | Spread)]
    assert [plugin.name for plugin in found] == ["binpack"]


def test_a_strategy_by_resource_becomes_one_score_that_fills_up_and_one_that_spreads() -> None:
    arguments = """
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
        cpu: {type: LeastAllocated, weight: 3}
        "example.com/*": {type: MostAllocated, weight: 1}
      sra: {enable: true, weight: 5}"""
    made = convert(plugins(f"resource-strategy-fit{arguments}"))
    assert "- binpack: {weight: 4, resources: {nvidia.com/gpu: 2}}" in made.text
    assert "- spread: {weight: 6, resources: {cpu: 3}}" in made.text
    assert "resource-strategy-fit: sra has no counterpart" in notes_of(made)
    assert "resource-strategy-fit: example.com/* has no counterpart: name each resource" in notes_of(made)


def test_topology_takes_its_weights_and_its_bound_on_domains() -> None:
    arguments = "{weight: 3, hypernode.binpack.cpu: 4, hypernode.gradient.evict.max-hypernodes: 2}"
    text = plugins(f"network-topology-aware\n    arguments: {arguments}")
    policy = policy_of(text)
    topology = next(plugin for plugin in policy.plugins if isinstance(plugin, Topology))
    assert (topology.weight, policy.settings.max_evict_domains, topology.resources["cpu"]) == (3.0, 2, 4.0)


def test_devices_are_shared_where_volcano_shares_them() -> None:
    given = "{deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: spread, deviceshare.ScheduleWeight: 10}"
    text = f"deviceshare\n    arguments: {given}"
    made = convert(plugins(text))
    assert "- devices: {strategy: spread}" in made.text
    assert "deviceshare: deviceshare.ScheduleWeight has no counterpart" in notes_of(made)
    assert "devices" not in names_of(plugins("deviceshare"))


def test_shares_are_kept_strictly_only_where_volcano_keeps_them_so() -> None:
    def strict(flags: str) -> bool:
        found = policy_of(plugins(f"proportion{flags}")).plugins
        return next(plugin for plugin in found if isinstance(plugin, Proportion)).strict

    assert strict("")
    assert not strict("\n    enabledAllocatable: false\n    enabledOverused: false")


def test_of_two_plugins_that_share_out_the_cluster_one_stays() -> None:
    made = convert(plugins("proportion\n    enableReclaimable: false", "capacity"))
    assert "capacity" in settings_of(made.text)
    assert "proportion" not in settings_of(made.text)
    assert "this policy keeps capacity, of which more is switched on" in notes_of(made)


def test_hierarchical_drf_becomes_drf_over_the_tree_of_queues() -> None:
    assert "drf" in names_of(plugins("drf\n    enableHierarchy: true"))
    assert "drf" not in names_of(plugins("drf"))


def test_an_overcommit_factor_below_one_is_what_volcano_takes_instead() -> None:
    made = convert(plugins('overcommit\n    arguments: {overcommit-factor: "0.5"}', actions="enqueue, allocate"))
    assert "- overcommit: {factor: 1.2}" in made.text
    assert "a factor of 0.5 is below 1" in notes_of(made)


def test_metrics_are_reported_as_unused() -> None:
    assert "metrics was left out" in notes_of(convert(plugins("gang", more="metrics: {type: prometheus}\n")))


# -- what is no configuration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "a scheduler configuration must be a mapping with the keys actions, tiers, configurations, metrics, not nothing"),
        ("- a\n", 1, "a scheduler configuration must be a mapping"),
        ("tiers: []\n", 1, 'actions is missing: write for example actions: "enqueue, allocate, backfill"'),
        ("actions: [allocate]\n", 1, "actions is a list, and must be names with commas between them"),
        ("actions: allocate\ntier: []\n", 2, "unknown key 'tier'. Did you mean 'tiers'?"),
        ("actions: allocate\ntiers: 3\n", 2, "tiers must be a list, not the number 3"),
        ("actions: allocate\ntiers:\n- name: gang\n", 3, "a tier must be a mapping with the key plugins and a list below it"),
        ("actions: allocate\ntiers:\n- plugins:\n  - gang\n", 4, "a plugin must be a mapping with a name"),
        (plugins("gang\n    enableJobOder: true"), 5, "Did you mean 'enableJobOrder'?"),
        (plugins("gang\n    enableJobOrder: perhaps"), 5, "enableJobOrder must be true or false, not the text 'perhaps'"),
        (plugins("binpack\n    arguments: 3"), 5, "arguments must be a mapping, not the number 3"),
        (plugins("binpack\n    arguments: {binpack.weight: much}"), 5, "binpack.weight must be a number, not the text 'much'"),
        (plugins("binpack\n    arguments: {binpack.resources: [a]}"), 5, "binpack.resources must be names with commas"),
        (
            plugins("predicates\n    arguments: {predicate.NodePortsEnable: 7}"),
            5,
            "predicate.NodePortsEnable must be true or false",
        ),
        (plugins("gang", more="configurations: 1\n"), 5, "configurations must be a list, not the number 1"),
        (plugins("gang", more="configurations: [{}]\n"), 5, "a configuration must be a mapping with the name of an action"),
        ('actions: "allocate\n', 1, "this is no YAML"),
        ("actions: allocate\nactions: enqueue\n", 2, "key 'actions' is given twice, first on line 1"),
    ],
)
def test_what_is_no_configuration_is_an_error_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        convert(text, file="volcano-scheduler.conf")
    assert caught.value.faults[0].line == line
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"volcano-scheduler.conf:{line}: ")


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        convert("actions: 3\ntiers: 4\nother: 5\n")
    assert [fault.line for fault in caught.value.faults] == [1, 2, 3]


# -- anything ----------------------------------------------------------------------------------------------------------------------

SCALARS = st.one_of(st.booleans(), st.integers(-3, 20), st.floats(-2, 20), st.sampled_from(["1", "x", "nvidia.com/gpu, gpu", ""]))
KEYS = [
    "binpack.weight", "binpack.cpu", "binpack.resources", "binpack.resources.nvidia.com/gpu", "leastrequested.weight",
    "mostrequested.weight", "nodeaffinity.weight", "podtopologyspread.weight", "weight", "hypernode.binpack.memory", "other",
    "hypernode.gradient.evict.max-hypernodes", "overcommit-factor", "resourceStrategyFitWeight", "predicate.CacheEnable",
    "predicate.PodAffinityEnable", "deviceshare.VGPUEnable", "deviceshare.SchedulePolicy", "ancestorReclaimLevel",
]  # fmt: skip
VOLCANO_CONF = st.fixed_dictionaries(
    {"name": st.sampled_from([*CONVERTERS, *UNSUPPORTED, "weather"])},
    optional={"arguments": st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=4)}
    | {flag: st.booleans() for flag in FLAGS[:20]},
)
CONFS = st.fixed_dictionaries(
    {
        "actions": st.lists(st.sampled_from([*ACTION_MAP, *OMITTED_ACTIONS, "gangPreempt"]), min_size=1, max_size=4).map(", ".join),
        "tiers": st.lists(st.fixed_dictionaries({"plugins": st.lists(VOLCANO_CONF, max_size=5)}), max_size=3),
    },
    optional={
        "configurations": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from([*ACTION_MAP, "x"])},
                optional={"arguments": st.dictionaries(st.sampled_from(["maxDomains", "allowWholeBundle", "y"]), SCALARS)},
            ),
            max_size=2,
        )
    },
)


@settings(max_examples=40, deadline=None)
@given(CONFS)
def test_whatever_is_written_becomes_a_policy_or_an_error_with_its_line(conf: dict[str, object]) -> None:
    text = yaml.safe_dump(conf)
    made, line = policy_or_error_line(text)
    assert line <= len(text.splitlines())
    if made is not None:
        assert convert(text) == made
        assert load_policy(made.text).actions
        assert all(note.text and note.line <= len(text.splitlines()) for note in made.notes)


def policy_or_error_line(text: str) -> tuple[Conversion | None, int]:
    """The policy, or the line of the first error."""
    try:
        return convert(text), 0
    except InputError as error:
        return None, error.faults[0].line


# -- the manual --------------------------------------------------------------------------------------------------------------------


def test_the_manual_names_every_action_and_every_plugin_of_volcanos() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "from-volcano.md").read_text(encoding="utf-8")
    for name in (*ACTION_MAP, *OMITTED_ACTIONS, *CONVERTERS, *UNSUPPORTED):
        assert f"`{name}`" in manual, name


def test_the_wait_after_which_a_job_goes_first_is_the_one_after_which_nodes_are_kept() -> None:
    conf = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: sla\n    arguments: {sla-waiting-time: 1h30m}\n'
    assert policy_of(conf).settings.reserve_after_s == 5400
    made = convert(conf.replace("1h30m", "soon"))
    assert "line 6: sla: sla-waiting-time" in notes_of(made)
    assert load_policy(made.text).settings.reserve_after_s == 600
