"use strict";
/* A job in, and where it would run out. */

const EXAMPLE = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train, namespace: default}\nspec:\n  parallelism: 4\n  template:\n    spec:\n      schedulerName: muster\n      containers:\n      - name: main\n        resources: {limits: {nvidia.com/gpu: 8}}\n";

function planView() {
  state.marked = new Set();
  const job = el("textarea", { id: "job", spellcheck: "false", onfocus: () => { if (job.value === EXAMPLE) job.select(); } }), namespace = el("input", { id: "namespace", placeholder: "default" });
  const answer = el("div", { "aria-live": "polite" }), map = mapPanel("Where it would run"), button = el("button", {}, "Plan");
  job.value = EXAMPLE;
  function mark(gangs) {
    const leave = new Set(gangs.flatMap((each) => each.evictedGangs.map((evicted) => evicted.gang)).filter(Boolean));
    state.marked = new Set(gangs.flatMap((each) => each.placements.map(([, node]) => node)));
    state.leaving = new Set(state.cluster.nodes.filter((node) => node.gangs.some((each) => leave.has(each.gang))).map((node) => node.node));
    map.show(state.cluster);
  }
  function show(found) {
    mark(found.gangs);
    answer.replaceChildren(...found.gangs.map((each) => el("div", {}, forecastNode(each), each.assumed.length ? el("p", { class: "quiet" }, "assumed: " + each.assumed.join("; ")) : "")),
      state.leaving.size ? el("p", { class: "quiet" }, "On the map: outlined where it would run, dashed where pods would be evicted.") : "",
      ...found.notes.map((note) => el("p", { class: "quiet" }, note)));
  }
  const form = el("form", { onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.replaceChildren(el("p", { class: "quiet" }, "A dry run decides one cycle ..."));
    try {
      const first = await data.plan(job.value, namespace.value, false);
      show(first);
      if (first.code !== 0) {
        answer.append(el("p", { class: "quiet" }, "When it starts, and what would make it run, is being tried ..."));
        show(await data.plan(job.value, namespace.value, true));
      }
    } catch (error) { mark([]); answer.replaceChildren(el("p", { class: "bad" }, lines(error.message))); }
    button.disabled = false;
  } }, el("label", { for: "job" }, "A manifest of any workload, in YAML or JSON"), job, el("div", { class: "controls" }, el("label", { for: "namespace" }, "namespace of what names none"), namespace, button));
  return { update: map.show, node: el("div", { class: "panels" }, el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, "Would this job run?")), form, answer), map.node) };
}
