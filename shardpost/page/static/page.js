// What the server cannot know: Airflow's theme and the reader's zone. And charts, when all else is there.
"use strict";

function dark() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // no storage in this frame: the system's theme counts
  }
  return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function apply() {
  document.documentElement.dataset.theme = dark() ? "dark" : "light";
}

apply();
addEventListener("storage", (event) => {
  if (event.key === "theme") {
    apply();
    drawCharts();
  }
});

// Of maps, which no chart of ours has, Plotly makes a style sheet when it is loaded, unless one of
// this id is there; our policy forbids that.
const maps = document.createElement("meta");
maps.id = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
document.head.append(maps);

const UNITS = { d: 86_400, h: 3_600, min: 60, s: 1 };
const SIZES = { "%": 1, bytes: 1, kB: 1e3, MB: 1e6, GB: 1e9 };
const LONG_AGO = 30 * UNITS.d;

// As the server writes it: `3 min ago`, `in 2 h`, and a date where it is longer than a month.
function relative(at) {
  const seconds = (Date.now() - at.getTime()) / 1000;
  const gap = Math.floor(Math.abs(seconds));
  if (gap > LONG_AGO) return at.toISOString().slice(0, 10);
  const unit = Object.keys(UNITS).find((one) => gap >= UNITS[one]) ?? "s";
  const text = `${Math.floor(gap / UNITS[unit])} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

// A text that is put again is read out again in a status.
function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function localTimes() {
  const format = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "2-digit",
    hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  });
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    if (!time.classList.contains("ago")) {
      say(time, format.format(at));
    } else {
      say(time, relative(at));
      time.title = `${format.format(at)}\n${at.toISOString()}`;
    }
  }
}

// What a column is sorted by: a time, a number (also with units), or else a text; nothing is last.
function sortKey(cell) {
  const time = cell.querySelector("time[datetime]");
  if (time) return Date.parse(time.dateTime);
  const text = (cell.querySelector("[title$=bytes]")?.title ?? cell.textContent).trim();
  if (text === "–" || text === "") return null;
  const parts = [...text.matchAll(/(-?[\d,]*\.?\d+) ?([a-zA-Z%]*)/g)];
  const isNumber = parts.map((part) => part[0]).join(" ") === text;
  const known = { "": 1, ...UNITS, ...SIZES };
  if (!isNumber || !parts.every((part) => part[2] in known)) return text;
  return parts.reduce((sum, part) => sum + Number(part[1].replaceAll(",", "")) * known[part[2]], 0);
}

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

function sortBy(table, heading, column) {
  const down = heading.ariaSort === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [sortKey(row.cells[column]), row]);
  rows.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return compared(one, other) * (down ? -1 : 1);
  });
  body.append(...rows.map(([, row]) => row));
}

// Columns of nothing but numbers, sizes and durations stand on the right.
function alignNumbers() {
  for (const table of document.querySelectorAll("table.sorts")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[column]);
      const keys = cells.map(sortKey).filter((key) => key !== null);
      const hasTimes = cells.some((cell) => cell.querySelector("time"));
      if (!keys.length || hasTimes || !keys.every((key) => typeof key === "number")) return;
      for (const cell of [heading, ...cells]) cell.classList.add("number");
    });
  }
}

// The headings of tables that sort become buttons.
function makeSortable() {
  for (const table of document.querySelectorAll("table.sorts")) {
    if (table.tBodies[0].rows.length < 2) continue;
    table.classList.add("sortable");
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      if (!heading.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort the rows shown";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sortBy(table, heading, column));
      heading.append(button);
    });
  }
}

// The box in the heading of a table ticks all of its rows.
addEventListener("change", ({ target }) => {
  if (!target.dataset.all) return;
  for (const box of target.closest("table").querySelectorAll("td.tick input")) box.checked = target.checked;
});

// A line of help closes where one goes on elsewhere.
function closeHelp(event) {
  for (const help of document.querySelectorAll("details.help[open]")) {
    if (event.key === "Escape") help.querySelector("summary").focus();
    if (event.key === "Escape" || (!event.key && !help.contains(event.target))) help.open = false;
  }
}
addEventListener("click", closeHelp);
addEventListener("keydown", closeHelp);

// On a phone the sections are wider than their bar.
function showSection() {
  const bar = document.querySelector("header nav");
  const current = bar?.querySelector("[aria-current]");
  if (current) bar.scrollLeft = current.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
}

// The long names of settings may be broken, but between their words.
function breakNames() {
  for (const place of document.querySelectorAll("td bdi")) {
    if (!/\w{20}/.test(place.textContent)) continue;
    const words = place.textContent.split(/(?<=_)/);
    place.replaceChildren(...words.flatMap((word) => [word, document.createElement("wbr")]).slice(0, -1));
  }
}

const MINUTE = 60_000;
const COLORS = 8;
const series = Array.from({ length: COLORS }, (_, number) => `--series-${number + 1}`);

// Around a single instant Plotly would count fractions of milliseconds: it gets an hour.
function roomy(traces) {
  const all = traces.flatMap((trace) => trace.x ?? []);
  const times = all.map((at) => (/^\d{4}-\d\d-\d\dT/.test(at) ? Date.parse(at) : NaN));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  if (!times.length || !(last - first < MINUTE)) return {};
  return { range: [first - 30 * MINUTE, last + 30 * MINUTE].map((at) => new Date(at).toISOString()) };
}

// What has no color of its own is told apart by its form.
function formed(trace, number) {
  if (number < COLORS) return trace;
  return { line: { dash: "dash" }, marker: { symbol: "diamond", pattern: { shape: "/" } }, ...trace };
}

// Of so few points each is marked: a line through a single one is not seen.
const FEW_POINTS = 30;

// What a chart shows are columns of a table on its page: lines over time, or bars over its first column.
function figureOf({ dataset }) {
  const regions = [...document.querySelectorAll("[role=region]")];
  const table = regions.find((one) => one.getAttribute("aria-label") === dataset.table).querySelector("table");
  const headings = [...table.tHead.rows[0].cells].map((one) => one.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row.cells[0]), row]);
  rows.sort(([one], [other]) => compared(one, other));
  const x = rows.map(([, { cells }]) => cells[0].querySelector("time")?.dateTime ?? cells[0].textContent.trim());
  const isBars = "bars" in dataset;
  const form = isBars
    ? { type: "bar" }
    : { type: "scatter", mode: rows.length > FEW_POINTS ? "lines" : "lines+markers", connectgaps: true };
  const data = dataset.columns.split("|").map((name) => {
    const y = rows.map(([, row]) => sortKey(row.cells[headings.indexOf(name)]));
    return { ...form, name, x, y };
  });
  const layout = isBars
    ? { barmode: "stack", xaxis: { type: "category" } }
    : { xaxis: { type: "date" }, yaxis: { rangemode: "tozero" }, legend: { orientation: "h", y: 1.15 } };
  return { data, layout };
}

function drawCharts() {
  if (!window.Plotly) return;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  for (const place of document.querySelectorAll(".chart")) {
    const figure = figureOf(place);
    const axis = { gridcolor: color("--line"), linecolor: color("--line"), zerolinecolor: color("--line") };
    const layout = {
      margin: { l: 50, r: 10, t: 10, b: 40 }, height: 260,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: color("--text"), family: "inherit", size: 12 },
      colorway: series.map(color),
      legend: { orientation: "h", yanchor: "top", y: -0.25 },  // below the date under the times
      ...figure.layout,
      xaxis: { ...axis, ...roomy(figure.data), ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
    };
    window.Plotly.react(place, figure.data.map(formed), layout, { displayModeBar: false, responsive: true });
  }
}

// The browser's tab says which page of ours it is, as long as it is shown.
if (parent !== window) {
  const own = parent.document.title;
  parent.document.title = document.title;
  addEventListener("pagehide", () => {
    parent.document.title = own;
  });
}

// Airflow shows us in a frame that may neither lead it elsewhere nor open windows. So links to its own
// pages are followed by Airflow itself, around the frame, as if its back button had led there.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isOurs = !link || link.origin !== location.origin || link.pathname.startsWith(document.body.dataset.root);
  if (isOurs || parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  parent.history.pushState(null, "", link.href);
  parent.dispatchEvent(new PopStateEvent("popstate"));
});

function enableSubmits(place, isEnabled) {
  for (const button of place.querySelectorAll("button[type=submit]")) button.disabled = !isEnabled;
}

function isChanged(field) {
  if (field.options) {
    const chosen = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(0, chosen);
  }
  return field.checked !== field.defaultChecked || field.value !== field.defaultValue;
}

// Not while somebody fills in a form, which would be empty again.
function reloadAfter(milliseconds) {
  setTimeout(() => {
    const fields = [...document.querySelectorAll("form :is(input, select, textarea)")];
    const isFilledIn = fields.some((field) => field === document.activeElement || isChanged(field));
    if (isFilledIn) reloadAfter(milliseconds);
    else location.reload();
  }, milliseconds);
}

document.addEventListener("DOMContentLoaded", () => {
  showSection();
  matchMedia("(max-width: 600px)").addEventListener("change", showSection);
  breakNames();
  localTimes();
  setInterval(localTimes, 15_000);
  alignNumbers();
  makeSortable();
  drawCharts();
  for (const place of document.querySelectorAll("[data-refresh]")) {
    reloadAfter(Number(place.dataset.refresh) * 1000);
  }
  for (const form of document.querySelectorAll("form")) {
    form.addEventListener("submit", () => {
      // After the browser has collected the form: the button pressed may be one of its fields.
      setTimeout(() => enableSubmits(form, false), 0);
    });
  }
});

// The browser's back button shows the page as it was left.
addEventListener("pageshow", () => enableSubmits(document, true));
