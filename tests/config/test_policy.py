"""Policy files: what a good one gives, and what is said about a bad one."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import plugins
from muster.config import DEFAULT_POLICY, PolicyError, default_policy, load_policy, retired_names
from muster.config.plugin_check import all_hooks, plugin_errors
from muster.config.plugin_options import options_of
from muster.config.policy_file import SETTINGS
from muster.config.policy_warnings import UNCHECKED, policy_warnings
from muster.engine.policy_settings import PolicySettings
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.min_runtime import MinRuntime
from muster.plugins.spread import Spread
from muster.yaml_reader import read_yaml


def errors_of(text: str) -> list[str]:
    """All that is said about a bad policy, without file names."""
    with pytest.raises(PolicyError) as raised:
        load_policy(dedent(text), file="p")
    return [str(fault).removeprefix("p:") for fault in raised.value.faults]


# -- good ones ---------------------------------------------------------------------------------------------------------------------


def test_the_default_policy_has_every_placement_check_and_protects_pods_that_have_just_started_from_reclaim() -> None:
    policy = default_policy()
    names = [plugin.name for plugin in policy.plugins]
    checks = {"unschedulable", "selectors", "taints", "volumes", "ports", "fit", "devices", "pod-affinity", "spread-constraints"}
    assert checks | {"priority", "topology", "binpack", "nominated", "pdb", "lost-work"} <= set(names)
    assert MinRuntime(actions=("gang-reclaim",)) in policy.plugins
    assert policy.settings == PolicySettings()
    assert policy.source == DEFAULT_POLICY


def test_every_setting_can_be_written_into_a_policy_and_is_in_the_default_policy() -> None:
    written = read_yaml(DEFAULT_POLICY, file="p").mapping["settings"].plain()
    assert written == {o.key: list(o.default) if isinstance(o.default, tuple) else o.default for o in SETTINGS}
    assert all(option.doc.endswith(".") for option in SETTINGS)
    changed = load_policy({"settings": {"wholeGang": "domain", "strictDeserved": True, "nominationSeconds": 5}}).settings
    assert changed == PolicySettings(whole_gang="domain", strict_deserved=True, nomination_s=5.0)


def test_what_a_policy_names_is_in_kebab_case_for_plugins_and_actions_and_in_camel_case_for_the_rest() -> None:
    names = [*plugins.PLUGINS, *default_policy().actions]
    keys = [option.key for make in plugins.PLUGINS.values() for option in options_of(make)] + [option.key for option in SETTINGS]
    assert [name for name in names if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []
    assert [key for key in keys if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", key)] == []


@pytest.mark.parametrize(("old", "new"), retired_names.PLUGINS.items())
def test_a_plugin_that_was_renamed_is_an_error_that_names_it(old: str, new: str) -> None:
    assert errors_of(f"plugins:\n- fit\n- {old}") == [f"3: plugin {old} is now {new}"]
    assert new in plugins.PLUGINS


@pytest.mark.parametrize(("old", "new"), retired_names.SETTINGS.items())
def test_a_setting_that_was_renamed_is_an_error_that_names_it(old: str, new: str) -> None:
    assert errors_of(f"settings:\n  {old}: 3") == [f"2: setting {old} is now {new}"]
    assert new in {option.key for option in SETTINGS}


@pytest.mark.parametrize(
    ("plugin", "old", "new"),
    [(plugin, *names) for plugin, all_names in retired_names.OPTIONS.items() for names in all_names.items()],
)
def test_an_option_that_was_renamed_is_an_error_that_names_it(plugin: str, old: str, new: str) -> None:
    wrong = f"3: option of plugin {plugin}: {old} is now {new}"
    assert errors_of(f"plugins:\n- fit\n- {plugin}: {{{old}: 3}}") == [wrong]
    present = {option.key for option in options_of(plugins.PLUGINS[plugin])} | {f"settings.{option.key}" for option in SETTINGS}
    assert new in present


@pytest.mark.parametrize(("old", "new"), retired_names.HOOKS.items())
def test_a_hook_that_was_renamed_is_an_error_that_names_it(module: Path, old: str, new: str) -> None:
    source = f"class P:\n    name = 'p'\n    def admit(self, s, ask): ...\n    def {old}(self, s): ..."
    assert errors_of_plugin(module, source, "others:P") == [
        f"1: plugin others:P has the method {old!r}, which is now the hook {new!r}"
    ]
    assert new in all_hooks()


def test_every_plugin_file_is_in_the_catalogue_under_its_own_name() -> None:
    files = {path.stem.replace("_", "-") for path in Path(plugins.__file__).parent.glob("[!_]*.py")}
    assert plugins.PLUGINS.keys() == files
    for name, make in plugins.PLUGINS.items():
        summary = (inspect.getdoc(make) or "").split("\n\n", 1)[0]
        assert summary.endswith((".", ":")), f"{name} says what it is for"
        assert all(option.doc.endswith(".") for option in options_of(make)), f"{name} says what its options mean"


def test_every_plugin_of_ours_is_one_by_the_rules_for_those_of_others() -> None:
    for make in plugins.PLUGINS.values():
        assert plugin_errors(make()) == []


def test_options_reach_their_plugin() -> None:
    policy = load_policy("plugins: [fit, {binpack: {weight: 2, resources: {nvidia.com/gpu: 10, cpu: 0.5}}}]")
    assert policy.plugins == (Fit(), Binpack(weight=2.0, resources={"nvidia.com/gpu": 10.0, "cpu": 0.5}))


def test_what_a_policy_does_not_say_is_as_in_the_default_policy() -> None:
    policy = load_policy("settings: {defaultPermitWaitSeconds: 60}\nschedulerNames: [muster, batch]")
    assert policy.settings == PolicySettings(scheduler_names=("muster", "batch"), default_permit_wait_s=60.0)
    assert policy.plugins == default_policy().plugins
    assert policy.actions == default_policy().actions


def test_an_empty_policy_is_the_default_policy() -> None:
    assert load_policy("").plugins == default_policy().plugins


@pytest.mark.parametrize("form", ["text", "mapping", "marked", "file"])
def test_a_policy_may_come_as_a_text_a_mapping_a_part_of_a_file_or_a_file(form: str, tmp_path: Path) -> None:
    text = "plugins: [fit, {spread: {weight: 3}}]\nactions: [allocate]\n"
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    mapping = {"plugins": ["fit", {"spread": {"weight": 3}}], "actions": ["allocate"]}
    sources = {"text": text, "mapping": mapping, "marked": read_yaml(text, file="scenario.yaml"), "file": path}
    policy = load_policy(sources[form])  # type: ignore[arg-type]
    assert policy.plugins == (Fit(), Spread(weight=3.0))
    assert policy.actions == ("allocate",)
    assert load_policy(policy.source).plugins == policy.plugins


def test_a_plugin_without_options_may_be_written_with_a_colon() -> None:
    assert load_policy("plugins:\n- fit:\n- priority: {}\n").plugins[0] == Fit()


# -- bad ones ----------------------------------------------------------------------------------------------------------------------


def test_an_error_points_at_its_place() -> None:
    text = "plugins:\n- fit\n- binpakc: {weight: 2}\n"
    with pytest.raises(PolicyError) as raised:
        load_policy(text, file="policy.yaml")
    error = raised.value
    assert error.render(text) == (
        "policy.yaml:3: unknown plugin 'binpakc'. Did you mean 'binpack'?\n"
        "   2 | - fit\n"
        "   3 | - binpakc: {weight: 2}\n"
        "     |   ^^^^^^^"
    )
    (fault,) = error.faults
    assert (fault.file, fault.line, fault.column, fault.field) == ("policy.yaml", 3, 3, "plugins[1]")
    assert (fault.value, fault.suggestion) == ("binpakc", "binpack")


def test_all_errors_are_reported_at_once() -> None:
    text = """\
        schedulerName: [muster]
        actions: [allocate, expire, allocat]
        plugins:
        - binpack: {wieght: 2, resources: {gpu: 10, cpus: 1}, weight: -1}
        - spread: [3]
        - fit: {x: 1}
        - fit: {x: 1}
        - 3
        - {priority: , creation: }
        - taints
        - taints
        settings: {defaultPermitWaitSecond: 3, defaultPermitWaitSeconds: soon}
        on: 3
    """
    assert errors_of(text) == [
        "1: unknown key 'schedulerName'. Did you mean 'schedulerNames'?",
        "2: expire must come before allocate, which decides on its result",
        "2: unknown action 'allocat'. Did you mean 'allocate'?",
        "4: unknown option of plugin binpack: 'wieght'. Did you mean 'weight'?",
        "4: unknown resource 'gpu'. Did you mean 'nvidia.com/gpu'?",
        "4: unknown resource 'cpus'. Did you mean 'cpu'?",
        "4: weight must be at least 0, not -1",
        "5: the options of plugin spread must be a mapping, not a list",
        "6: unknown option 'x': plugin fit has no options",
        "7: unknown option 'x': plugin fit has no options",
        "8: a plugin is a name, or a mapping of one name to its options, not the number 3",
        "9: one plugin to an item, not 2: begin a new line with `- `",
        "11: plugin taints is given twice, first on line 10",
        "12: unknown setting 'defaultPermitWaitSecond'. Did you mean 'defaultPermitWaitSeconds'?",
        "12: defaultPermitWaitSeconds must be a number, not the text 'soon'",
        "13: YAML reads the key on as a boolean: write it in quotes, 'on'",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("plugins: []", "1: plugins is empty: no plugin would decide anything, and nodes would be filled beyond what they have"),
        ("plugins: [priority]", "1: the plugin fit is missing: nodes would be filled beyond what they have"),
        (
            "plugins: [fit, binpack, spread]",
            "1: binpack and spread cancel out: both have the weight 1 on the same resources. "
            "Leave one out, or give them different weights or resources",
        ),
        (
            "plugins: [fit, proportion, capacity]",
            "1: capacity and proportion both define what a queue deserves: "
            "the one by what was configured, the other by weight. Leave one out",
        ),
        (
            "plugins: [fit, {min-runtime: {actions: [gang-reclam]}}]",
            "1: unknown actions[0]: 'gang-reclam'. Did you mean 'gang-reclaim'?",
        ),
        ("plugins: fit", "1: plugins must be a list of plugins, not the text 'fit'"),
        ("plugins:", "1: plugins must be a list of plugins, not nothing"),
        ("plugins: [on]", "1: a plugin is a name, or a mapping of one name to its options, not the boolean on"),
        ("actions: [expire, enqueue]", "1: the action allocate is missing: nothing would ever be placed"),
        ("actions: []", "1: the action allocate is missing: nothing would ever be placed"),
        ("actions: allocate", "1: actions must be a list of actions, not the text 'allocate'"),
        ("actions: [allocate, allocate]", "1: action allocate is given twice"),
        ("actions: [allocate, enqueue]", "1: enqueue must come before allocate, which decides on its result"),
        ("actions: [allocate, 3]", "1: actions must be a list of actions, not of the number 3"),
        ("schedulerNames: []", "1: schedulerNames is empty: no pod would be scheduled"),
        ("schedulerNames: [a, a]", "1: scheduler name a is given twice"),
        ("schedulerNames: ['']", "1: a scheduler name may not be empty"),
        ("schedulerNames: muster", "1: schedulerNames must be a list of scheduler names, not the text 'muster'"),
        ("settings: [1]", "1: settings must be a mapping, not a list"),
        ("settings: {defaultPermitWaitSeconds: -5}", "1: defaultPermitWaitSeconds must be at least 0, not -5"),
        ("settings: {wholeGang: domains}", "1: unknown wholeGang: 'domains'. Did you mean 'domain'?"),
        ("settings: {defaultPermitWaitSeconds: .nan}", "1: defaultPermitWaitSeconds must be a number, not the number .nan"),
        ("- fit", "1: a policy must be a mapping with the keys schedulerNames, actions, plugins, settings, base, not a list"),
        ("plugins: [fit, {binpack: {weight: true}}]", "1: weight must be a number, not the boolean true"),
        ("plugins: [fit, {binpack: {resources: {}}}]", "1: resources names no resource"),
        ("plugins: [fit, {binpack: {resources: 3}}]", "1: resources must be a mapping of names to numbers, not the number 3"),
        ("plugins: [fit, {binpack: {resources: {cpu: lots}}}]", "1: cpu must be a number, not the text 'lots'"),
        ("plugins: [fit, {binpack: {resources: {cpu: -1}}}]", "1: cpu must be at least 0, not -1"),
        ("plugins: [fit, no.such.module:Plugin]", "1: plugin no.such.module:Plugin: there is no module 'no' on the Python path"),
        ("plugins: [fit, ./nowhere.py:Plugin]", "1: plugin ./nowhere.py:Plugin: there is no file nowhere.py"),
        (
            "plugins: [fit, collections:Ordereddict]",
            "1: plugin collections:Ordereddict: collections has no 'Ordereddict'. Did you mean 'collections:OrderedDict'?",
        ),
        ("plugins: [fit, json:dumps]", "1: plugin json:dumps: dumps is no class"),
        ("plugins: [fit", "1: this is no YAML: while parsing a flow sequence did not find expected ',' or ']'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_the_reason(text: str, complaint: str) -> None:
    assert errors_of(text) == [complaint]


def test_packing_and_spreading_different_resources_is_a_policy() -> None:
    assert load_policy("plugins: [fit, {binpack: {resources: {nvidia.com/gpu: 1}}}, {spread: {resources: {cpu: 1}}}]").scores


def test_a_file_that_is_not_there_is_an_error_of_the_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="this file cannot be read: No such file or directory"):
        load_policy(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_an_error_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(PolicyError, match="this file cannot be read"):
        load_policy(tmp_path / "policy.yaml")


key_names = st.sampled_from([*plugins.PLUGINS, "plugins", "actions", "settings", "weight", "resources", "cpu", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | key_names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(key_names, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["plugins", "actions", "settings", "schedulerNames", "x"]), values, max_size=4))
@settings(max_examples=300, deadline=None)
def test_whatever_is_in_a_policy_file_it_is_a_policy_or_an_error_with_fields(mapping: dict[str, object]) -> None:
    error: PolicyError | None = None
    try:
        load_policy(mapping)
    except PolicyError as refused:
        error = refused
    assert error is None or all(fault.message and fault.file == "<policy>" for fault in error.faults)


# -- plugins of others -------------------------------------------------------------------------------------------------------------

GOOD = """
    from dataclasses import dataclass
    from enum import Enum
    from typing import Literal
    import numpy as np

    class Mood(Enum):
        GOOD = "good"
        BAD = "bad"

    @dataclass(frozen=True)
    class Everything:
        needed: str
        count: int = 1
        ratio: float = 0.5
        strict: bool = False
        names: tuple[str, ...] = ()
        rooms_left: dict[str, int] | None = None
        mood: Mood = Mood.GOOD
        size: Literal["small", "large"] = "small"
        weight: float = 1.0
        name: str = "everything"

        def __post_init__(self):
            if self.count == 13:
                raise ValueError("13 brings bad luck")

        def score(self, s, pod, rows):
            return np.zeros(len(rows))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `others` on the Python path, to be written by a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "others", raising=False)
    return tmp_path / "others.py"


def errors_of_plugin(module: Path, source: str, plugin: str) -> list[str]:
    module.write_text(dedent(source))
    return errors_of(f"plugins: [fit, {plugin}]")


def test_options_of_any_plugin_are_read_by_its_type_hints(module: Path) -> None:
    module.write_text(dedent(GOOD))
    text = """\
        plugins:
        - fit
        - others:Everything:
            needed: here
            count: 3
            strict: true
            names: [a, b]
            roomsLeft: {a: 1}
            mood: bad
            size: large
    """
    _, plugin = load_policy(dedent(text)).plugins
    assert vars(plugin) == {
        "needed": "here",
        "count": 3,
        "ratio": 0.5,
        "strict": True,
        "names": ("a", "b"),
        "rooms_left": {"a": 1},
        "mood": type(vars(plugin)["mood"]).BAD,
        "size": "large",
        "weight": 1.0,
        "name": "everything",
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("{}", "plugin others:Everything needs the option needed (a text)"),
        ("{needed: 3}", "needed must be a text, not the number 3 (write it in quotes)"),
        ("{needed: x, count: 1.5}", "count must be a whole number, not the number 1.5"),
        ("{needed: x, strict: 1}", "strict must be true or false, not the number 1"),
        ("{needed: x, names: a}", "names must be a list of texts, not the text 'a'"),
        ("{needed: x, names: [a, 3]}", "names[1] must be a text, not the number 3 (write it in quotes)"),
        ("{needed: x, mood: goood}", "unknown mood: 'goood'. Did you mean 'good'?"),
        ("{needed: x, size: [1]}", "size must be one of small, large, not a list"),
        ("{needed: x, rooms_left: {a: 1}}", "unknown option of plugin others:Everything: 'rooms_left'. Did you mean 'roomsLeft'?"),
        ("{needed: x, count: 13}", "plugin others:Everything: 13 brings bad luck"),
    ],
)
def test_a_wrong_option_says_what_it_must_be(module: Path, options: str, complaint: str) -> None:
    assert errors_of_plugin(module, GOOD, f"{{'others:Everything': {options}}}") == [f"1: {complaint}"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (
            "class P:\n    weight = 1.0\n    def score(self, s, pod, rows): ...",
            "has no name: give it an attribute `name` that is a text",
        ),
        (
            "class P:\n    name = 3\n    def match(self, s, pod, rows): ...",
            "has no name: give it an attribute `name` that is a text, not 3",
        ),
        (
            "class P:\n    name = 'p'\n    def gang_keys(self, s, gang): ...",
            "has no hook, so it would never be called. It has 'gang_keys': did you mean 'gang_key'?",
        ),
        (
            "class P:\n    name = 'p'\n    weight = 1.0\n    def score(self, pod, rows): ...",
            "is no plugin: `score` must be a method that takes (s, pod, rows), not (pod, rows)",
        ),
        (
            "class P:\n    name = 'p'\n    match = True",
            "is no plugin: `match` must be a method that takes (s, pod, rows), not bool",
        ),
        (
            "class P:\n    name = 'p'\n    async def admit(self, s, ask): ...",
            "is no plugin: `admit` must be a method that takes (s, ask), not an async one",
        ),
        ("class P:\n    name = 'p'\n    def score(self, s, pod, rows): ...", "is no plugin: `score` is of no use without `weight`"),
        (
            "class P:\n    name = 'p'\n    def quota_fit(self, s, pod, count): ...",
            "is no plugin: `quota_fit` must be a method that takes (s, pod, *, count, phase), not (s, pod, count)",
        ),
        (
            "class P:\n    name = 'p'\n    weight = 'heavy'\n    def score(self, s, pod, rows): ...",
            "is no plugin: its `weight` must be a number of at least 0, not 'heavy'",
        ),
        (
            "class P:\n    name = 'p'\n    depends = 'gangs'\n    def match(self, s, pod, rows): ...",
            "is no plugin: its `depends` must be a tuple of muster.model.topics.Topic, not 'gangs'",
        ),
        (
            "from muster.model.topics import Topic\n"
            "class P:\n    name = 'p'\n    depends = (Topic.GANGS,)\n    def admit(self, s, ask): ...",
            "is no plugin: `depends` is of no use without one of `match`, `prefer`, `fit`, `score`",
        ),
        (
            "class P:\n    name = 'p'\n    def has_inter_pod_constraints(self, s, pod): ...",
            "is no plugin: `has_inter_pod_constraints` is of no use without `fit_inter_pod`",
        ),
        (
            "class P:\n    name = 'p'\n    def __init__(self, when: complex): ...\n    def match(self, s, pod, rows): ...",
            "has an option when of a type that no policy file can write: <class 'complex'>",
        ),
        (
            "class P:\n    name = 'p'\n    def __init__(self, when: 'Nowhere'): ...\n    def match(self, s, pod, rows): ...",
            "does not say what options it takes: name 'Nowhere' is not defined",
        ),
    ],
)
def test_a_class_that_is_no_plugin_is_refused_with_what_it_lacks(module: Path, source: str, complaint: str) -> None:
    assert errors_of_plugin(module, source, "others:P") == [f"1: plugin others:P {complaint}"]


def test_a_class_without_any_hook_is_refused_with_the_hooks_there_are(module: Path) -> None:
    [fault] = errors_of_plugin(module, "class P:\n    name = 'p'", "others:P")
    assert fault.startswith("1: plugin others:P has no hook, so it would never be called; it needs one of admit, ")


def test_a_module_that_fails_is_the_policys_error_not_a_crash(module: Path) -> None:
    assert errors_of_plugin(module, "1 / 0", "others:P") == [
        "1: plugin others:P: importing others failed: ZeroDivisionError: division by zero"
    ]


def test_two_plugins_of_one_name_are_refused(module: Path) -> None:
    source = "class P:\n    name = 'fit'\n    def match(self, s, pod, rows): ..."
    assert errors_of_plugin(module, source, "others:P") == ["1: plugin fit is given twice, first on line 1"]


def test_a_plugin_may_lie_in_a_file_beside_the_policy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    name = 'mine'\n    def match(self, s, pod, rows): ...\n")
    policy_file = tmp_path / "policy.yaml"
    policy_file.write_text("plugins: [fit, ./mine.py:Mine]\n")
    assert load_policy(policy_file).plugins[1].name == "mine"


def test_an_installed_package_offers_plugins_by_name(module: Path) -> None:
    module.write_text("class P:\n    'Stays at home.'\n    name = 'home'\n    def match(self, s, pod, rows): ...\n")
    info = module.parent / "homely-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: homely\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[muster.plugins]\nhome = others:P\nbroken = others:Nothing\nfit = others:P\n")
    assert load_policy("plugins: [fit, home]").plugins[1].name == "home"
    assert load_policy("plugins: [fit]").plugins == (Fit(),)
    assert errors_of("plugins: [fit, broken]") == ["1: plugin others:Nothing: others has no 'Nothing'"]
    assert errors_of("plugins: [fit, homes]") == ["1: unknown plugin 'homes'. Did you mean 'home'?"]


def test_every_filter_but_fit_has_a_warning_for_policies_without_it() -> None:
    assert {str(plugin.name) for plugin in plugins.SECTIONS["Filters."]} - {"fit"} == set(UNCHECKED)


def test_a_policy_by_difference_changes_one_option_of_one_plugin() -> None:
    default = default_policy()
    changed = load_policy("base: default\nplugins:\n- binpack: {weight: 3}\n- lost-work: false\n- min-runtime\n- drf\n")
    names = [plugin.name for plugin in default.plugins]
    assert [plugin.name for plugin in changed.plugins] == [name for name in names if name != "lost-work"] + ["drf"]
    for old, new in zip([plugin for plugin in default.plugins if plugin.name != "lost-work"], changed.plugins, strict=False):
        assert (old == new) == (old.name != "binpack")
    assert changed.actions == default.actions


def test_only_the_default_policy_is_a_base() -> None:
    with pytest.raises(PolicyError, match="base must be default"):
        load_policy("base: other\n")


def test_reclaim_without_shares_is_warned_of() -> None:
    assert policy_warnings(default_policy()) == ()
    (warning,) = policy_warnings(load_policy("base: default\nplugins: [capacity: false, elastic-quota: false]\n"))
    assert warning.startswith("gang-reclaim has no share plugin")
