"use strict";
/* The page about a cluster: of a running scheduler, or of a file. No library and no build step. This script is the last one: it
   has the state, the time line and the way from an address to a view. */

// -- state ------------------------------------------------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);
const embedded = $("report");
const data = embedded ? new ReportData(JSON.parse(embedded.textContent)) : new ApiData();
const state = { cluster: null, at: null, colour: "use", marked: new Set(), leaving: new Set(), view: null, starts: { time: 0, rows: new Map() } };

function trouble(text) { $("trouble").hidden = !text; $("trouble").textContent = shown(text || ""); }

let reading = false, stale = false;

/** One request at a time: whoever drags the time line gets the moment at which it stopped, and not all of those before. */
async function refresh() {
  if (reading) { stale = true; return; }
  reading = true;
  try {
    const wanted = state.at, cluster = await data.cluster(wanted);
    if (wanted !== state.at) return;
    state.cluster = cluster;
    trouble("");
    $("token-form").hidden = true;
    showHead(cluster);
    showPast(cluster);
    if (!state.view) route(); else state.view.update(cluster);
    askStarts(cluster);
  } catch (error) {
    $("token-form").hidden = error.status !== 401;
    trouble(error.status === 401 && !data.token ? "" : "No figures: " + error.message);
    if (!state.cluster) $("main").replaceChildren();
  } finally {
    reading = false;
    if (stale) { stale = false; refresh(); }
  }
}

const STARTS_EVERY_MS = 30000;
let startsAsked = -Infinity;

/** Expected starts, where gangs wait: the server works them out for all readers once. */
async function askStarts(cluster) {
  if (state.at !== null || performance.now() - startsAsked < STARTS_EVERY_MS || !cluster.gangs.some((row) => !["running", "finished"].includes(row.stage))) return;
  startsAsked = performance.now();
  try {
    const found = await data.starts();
    state.starts = { time: found.time, rows: new Map(found.starts.map((row) => [row.gang, row])) };
    state.view.update(state.cluster);
  } catch { /* The column stays empty. */ }
}

function showHead(cluster) {
  const { summary } = cluster, resource = summary.resource;
  const share = summary.allocatable ? Math.round(100 * summary.used / summary.allocatable) : 0;
  const stages = ORDER.filter((each) => summary.stages[each]).map((each) => count(summary.stages[each], each, each));
  $("headline").replaceChildren(
    el("b", {}, amount(resource, summary.used) + " of " + amount(resource, summary.allocatable) + " " + unit(resource)), " in use (" + share + " %)",
    summary.releasing ? ", " + amount(resource, summary.releasing) + " being released" : "",
    " \u00b7 ", summary.readyNodes === summary.nodes ? count(summary.nodes, "node") : summary.readyNodes + " of " + count(summary.nodes, "node") + " ready",
    " \u00b7 ", stages.length ? "gangs: " + stages.join(", ") : "no gangs", " \u00b7 ", day(cluster.time) + " " + clock(cluster.time) + " UTC");
  document.title = "Muster: " + share + " % of " + unit(resource) + " in use";
}

// -- the time line ------------------------------------------------------------------------------------------------------------------

function showPast(cluster) {
  const { times, samples } = cluster.timeline, bar = $("moment");
  $("past").hidden = times.length < 2 && samples.length < 2;
  bar.hidden = times.length < 2;
  if ($("past").hidden) return;
  const first = samples.length ? samples[0].time : times[0], last = Math.max(samples.length ? samples[samples.length - 1].time : 0, times.length ? times[times.length - 1] : 0);
  const x = (time) => (1000 * (time - first) / Math.max(1, last - first)).toFixed(1);
  const y = (each) => (40 - 38 * each.used / Math.max(1, each.allocatable)).toFixed(1);
  let line = "M0 40";
  samples.forEach((each, number) => { line += (number ? " H" + x(each.time) : "") + " L" + x(each.time) + " " + y(each); });
  const svg = $("use-chart"), SVG = "http://www.w3.org/2000/svg";
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", line + " H1000 V40 Z");
  const marks = [...new Set(cluster.evictions.map((row) => row.time))].map((time) => {
    const mark = document.createElementNS(SVG, "line");
    for (const [key, value] of [["x1", x(time)], ["x2", x(time)], ["y1", 30], ["y2", 40]]) mark.setAttribute(key, value);
    return mark;
  });
  svg.setAttribute("aria-label", "Use from " + clock(first) + " to " + clock(last) + "; " + count(marks.length, "moment") + " with evictions");
  svg.replaceChildren(path, ...marks);
  const here = state.at === null ? last : state.at;
  if (document.activeElement !== bar || state.at === null) bar.value = 1000 * (here - first) / Math.max(1, last - first);
  $("moment-text").textContent = times.length ? clock(here) + (state.at === null ? ", the newest" : ", " + duration(last - here) + " before the newest") : "since " + clock(first);
  bar.setAttribute("aria-valuetext", $("moment-text").textContent);
}

let dragging = 0;
function goTo(number) {
  const times = state.cluster.timeline.times, at = Math.max(0, Math.min(times.length - 1, number));
  state.at = at === times.length - 1 ? null : times[at];
  cancelAnimationFrame(dragging);
  dragging = requestAnimationFrame(refresh);
}
$("moment").addEventListener("input", () => {
  const { times, samples } = state.cluster.timeline, first = samples.length ? samples[0].time : times[0], last = times[times.length - 1];
  const wanted = first + (last - first) * $("moment").value / 1000;
  goTo(times.findLastIndex((time) => time <= wanted + 1e-6));
});
$("moment").addEventListener("keydown", (event) => {
  const times = state.cluster.timeline.times, here = state.at === null ? times.length - 1 : times.indexOf(state.at);
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  if (!(event.key in steps)) return;
  event.preventDefault();
  goTo(here + steps[event.key]);
});

// -- which view ---------------------------------------------------------------------------------------------------------------------------

function route() {
  if (!state.cluster) return;
  const [, where = "", ...rest] = location.hash.split("/");
  const views = { "": clusterView, gangs: gangsView, evictions: evictionsView, plan: planView, gang: () => gangView(decodeURIComponent(rest.join("/"))) };
  const known = views[where] ? where : "";
  if (known === "plan" && !data.canAsk) { location.hash = "#/"; return; }
  state.leaving = new Set();
  state.view = views[known]();
  $("main").replaceChildren(state.view.node);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === "#/" + (known === "gang" ? "gangs" : known)) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  state.view.update(state.cluster);
  if (!performance.getEntriesByName("first picture").length) performance.mark("first picture");
}

addEventListener("hashchange", () => { route(); scrollTo(0, 0); $("main").focus({ preventScroll: true }); });
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  data.token = $("token").value.trim();
  sessionStorage.setItem("token", data.token);
  $("token").value = "";
  refresh();
});
$("plan-link").hidden = !data.canAsk;
refresh().then(() => {
  if (data.canAsk) data.follow(() => state.at === null ? refresh() : undefined, () => trouble("The connection is lost: these are the figures of " + (state.cluster ? clock(state.cluster.time) : "before") + ". Trying again ..."));
});
