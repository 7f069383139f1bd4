"use strict";
/* The page about a cluster: of a running scheduler, or of a file. No library and no build step. This script is the last one: it
   has the state, the time line and the way from an address to a view. */

// -- state ------------------------------------------------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);
const embedded = $("report");
const data = embedded ? new ReportData(JSON.parse(embedded.textContent)) : new ApiData();
const state = { cluster: null, at: momentOf(address()), colour: "use", marked: new Set(), leaving: new Set(), view: null, starts: { time: 0, rows: new Map() } };

function trouble(text) { $("trouble").hidden = !text; $("trouble").replaceChildren(...lines(text || "")); }

/** What there is stays: whoever looks is told of when it is. */
function failed(error) {
  $("token-form").hidden = error.status !== 401;
  if (error.status === 401) trouble(data.token ? "The cluster does not know this token, or not any more." : "");
  else if (state.cluster) trouble((error.status ? "No newer figures (" + error.message + ")" : "The connection is lost") + ": these are the figures of " + day(state.cluster.time) + " " + clock(state.cluster.time) + " UTC. Trying again ...");
  else trouble("No figures: " + error.message);
}

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
    failed(error);
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
  const here = state.at === null ? last : cluster.time;
  if (document.activeElement !== bar || state.at === null) bar.value = 1000 * (here - first) / Math.max(1, last - first);
  $("moment-text").textContent = times.length ? clock(here) + (state.at === null ? ", the newest" : ", " + duration(last - here) + " before the newest") : "since " + clock(first);
  bar.setAttribute("aria-valuetext", $("moment-text").textContent);
}

let dragging = 0, resting = 0;
function goTo(number) {
  const times = state.cluster.timeline.times, at = Math.max(0, Math.min(times.length - 1, number));
  state.at = at === times.length - 1 ? null : times[at];
  // Browsers take few changes of an address in a short time.
  clearTimeout(resting);
  resting = setTimeout(() => remember({ at: state.at }), 300);
  cancelAnimationFrame(dragging);
  dragging = requestAnimationFrame(refresh);
}
$("moment").addEventListener("input", () => {
  const { times, samples } = state.cluster.timeline, first = samples.length ? samples[0].time : times[0], last = times[times.length - 1];
  const wanted = first + (last - first) * $("moment").value / 1000;
  goTo(times.findLastIndex((time) => time <= wanted + 1e-6));
});
$("moment").addEventListener("keydown", (event) => {
  const times = state.cluster.timeline.times, here = state.at === null ? times.length - 1 : times.findLastIndex((time) => time <= state.at);
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  if (!(event.key in steps)) return;
  event.preventDefault();
  goTo(here + steps[event.key]);
});

// -- which view ---------------------------------------------------------------------------------------------------------------------------

/** What stands behind the #: a view, what it is about, and settings of it. */
function address() {
  const [path, settings = ""] = location.hash.slice(2).split(/\?(.*)/s), [view, ...rest] = path.split("/");
  let about = rest.join("/");
  try { about = decodeURIComponent(about); } catch { /* A link that was cut off: there is nothing of this name. */ }
  return { path, view, about, parameters: new URLSearchParams(settings) };
}
function momentOf({ parameters }) {
  const at = Number.parseFloat(parameters.get("at"));
  return Number.isFinite(at) ? at : null;
}
/** Puts settings into the address, so that it can be sent to somebody; the way back is one of views and not of settings. */
function remember(settings) {
  const { path, parameters } = address();
  for (const [key, value] of Object.entries(settings)) { if (value === null || value === "") parameters.delete(key); else parameters.set(key, value); }
  history.replaceState(null, "", "#/" + path + (parameters.size ? "?" + parameters : ""));
}

function nowhereView(view) {
  return { update() {}, node: el("section", { class: "panel" }, el("p", {}, "There is no view ", name(view), ". ", el("a", { href: "#/" }, "The cluster"))) };
}

function route() {
  if (!state.cluster) return;
  const { view: known, about } = address();
  const views = { "": clusterView, gangs: gangsView, evictions: evictionsView, plan: planView, gang: () => about ? gangView(about) : gangsView() };
  if (known === "plan" && !data.canAsk) { location.hash = "#/"; return; }
  state.leaving = new Set();
  state.view = Object.hasOwn(views, known) ? views[known]() : nowhereView(known);
  $("main").replaceChildren(state.view.node);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === "#/" + (known === "gang" ? "gangs" : known)) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  state.view.update(state.cluster);
  if (!performance.getEntriesByName("first picture").length) performance.mark("first picture");
}

addEventListener("hashchange", () => {
  const at = momentOf(address());
  // A link to a view stays at the moment that is looked at.
  if (at === null) remember({ at: state.at });
  else if (at !== state.at) { state.at = at; refresh(); }
  route();
  scrollTo(0, 0);
  $("main").focus({ preventScroll: true });
});
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  data.token = $("token").value.trim();
  sessionStorage.setItem("token", data.token);
  $("token").value = "";
  refresh();
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
$("plan-link").hidden = !data.canAsk;
refresh().then(() => {
  if (data.canAsk) data.follow(() => state.at === null ? refresh() : trouble(""), failed);
});
