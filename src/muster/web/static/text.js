"use strict";
/* Text, figures and elements. Whatever comes from objects of the cluster becomes text nodes, never HTML. */

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const HEX = (character) => "\\u" + character.codePointAt(0).toString(16).padStart(4, "0");
/** Characters that do not print (controls, marks that reverse what a reader sees) become visible. */
const shown = (text) => String(text).replace(HIDDEN, HEX);

function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") made.append(child instanceof Node ? child : shown(child));
  }
  return made;
}

const BYTES = [["Ei", 2 ** 60], ["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 1024]];
const grouped = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 1 });
/** One digit after the point in all rows, so that they stand below each other. */
const hours = (value) => Number(value).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
/** An error may have several lines. */
const lines = (text) => String(text).split("\n").map((line) => el("span", { class: "line" }, line));

function amount(resource, value) {
  if (resource === "cpu") return grouped(value / 1000);
  if (resource === "memory" || resource.endsWith("storage") || resource.startsWith("hugepages-")) {
    const found = BYTES.find(([, size]) => value >= size);
    if (found) return grouped(value / found[1]) + " " + found[0];
  }
  return grouped(value);
}
const unit = (resource) => resource === "nvidia.com/gpu" ? "GPU" : resource;
const amounts = (found) => Object.entries(found).filter(([, value]) => value).map(([name, value]) => amount(name, value) + " " + unit(name)).join(", ");
const count = (number, word, plural) => grouped(number) + " " + (number === 1 ? word : plural || word + "s");
const queueName = (key) => key.includes("/") ? key.slice(key.indexOf("/") + 1) : key;

function duration(seconds) {
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  const hours = Math.floor(seconds / 3600), minutes = Math.round(seconds % 3600 / 60);
  return hours < 48 ? hours + " h" + (minutes ? " " + minutes + " min" : "") : Math.round(hours / 24) + " days";
}
const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);
const day = (time) => new Date(time * 1000).toISOString().slice(0, 10);

/** n1, n2, n3 as n[1-3]. */
function compact(names) {
  const groups = new Map();
  for (const name of names) {
    const [, head, digits, tail] = /^(.*?)(\d*)(\D*)$/s.exec(name);
    const key = JSON.stringify([head, tail, digits.length > 1 && digits[0] === "0" ? digits.length : 0]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(digits);
  }
  const found = [];
  for (const [key, digits] of groups) {
    const [head, tail] = JSON.parse(key);
    if (digits.length === 1) { found.push(head + digits[0] + tail); continue; }
    digits.sort((a, b) => a - b);
    const runs = [];
    for (const each of digits) {
      const last = runs[runs.length - 1];
      if (last && Number(last[1]) + 1 === Number(each)) last[1] = each; else runs.push([each, each]);
    }
    found.push(head + "[" + runs.map(([from, to]) => from === to ? from : from + "-" + to).join(",") + "]" + tail);
  }
  return found.join(", ");
}

const STAGES = {
  "running": "good", "waiting": "wait hollow", "waiting-for-pods": "quiet hollow", "waiting-on-permit": "wait hollow",
  "preempting": "nominated hollow", "timed-out": "bad hollow", "finished": "quiet",
};
const ORDER = ["preempting", "waiting-on-permit", "waiting", "timed-out", "waiting-for-pods", "running", "finished"];
const stage = (name) => el("span", { class: "stage " + (STAGES[name] || "") }, name);
const LONG = 28;
/** Tables cut long names off. */
const name = (text) => el("span", { class: "name", title: String(text).length > LONG ? shown(text) : null }, text);
const gangAddress = (gang) => "#/gang/" + gang.split("/").map(encodeURIComponent).join("/");
const gangLink = (gang) => gang ? el("a", { class: "name", href: gangAddress(gang), title: gang.length > LONG ? shown(gang) : null }, gang) : el("span", { class: "quiet" }, "another tenant's");

/** New content, with the focus where it was: on the link to the same gang. */
function replaceKeepingFocus(container, ...content) {
  const href = container.contains(document.activeElement) && document.activeElement.getAttribute("href");
  container.replaceChildren(...content);
  const again = href && [...container.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
  if (again) again.focus({ preventScroll: true });
}

function table(caption, columns, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {},
    el("caption", { class: "hidden-text" }, caption),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: column.number ? "number" : "" }, column.title)))),
    el("tbody", {}, rows.map((row) => el("tr", { class: "link", "data-gang": row.gang }, columns.map((column) =>
      el("td", { class: column.number ? "number" : column.sentence ? "sentence" : column.fixed ? "fixed" : "" }, column.cell(row))))))));
}
