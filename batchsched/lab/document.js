"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const root = document.documentElement;
const toggle = document.getElementById("toggle");
const darkWanted = window.matchMedia("(prefers-color-scheme: dark)");
const touch = window.matchMedia("(pointer: coarse)").matches;

// Only these buttons: plotly.js has others that send the figure to a server.
const buttons = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];
const config = {
  responsive: true,
  displaylogo: false,
  plotlyServerURL: "",
  showSendToCloud: false,
  showLink: false,
  modeBarButtons: buttons,
};
const settings = (key) => key.startsWith("bars-") ? {...config, displayModeBar: false} : config;

const hiddenPolicies = new Set();
const wholeFigures = new Set();
const figureOf = (key) => document.getElementById(key).closest("figure");

// Colors are named in the figures; here each name becomes the color of the theme.
function paint(value, colors) {
  if (typeof value === "string") return colors[value] ?? value;
  if (Array.isArray(value)) return value.map((item) => paint(item, colors));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, paint(item, colors)]));
}

function merge(base, changes) {
  const result = {...base};
  for (const [key, value] of Object.entries(changes)) {
    const both = value !== null && typeof value === "object" && !Array.isArray(value) && key in base;
    result[key] = both ? merge(base[key], value) : value;
  }
  return result;
}

async function drawFigure(key) {
  const element = document.getElementById(key);
  if (element.closest("[hidden]")) return;
  const figure = report.figures[key];
  const colors = report.themes[root.dataset.theme];
  const {data, layout} = paint({data: figure.data, layout: merge(report.frame, figure.layout)}, colors);
  for (const trace of data) trace.visible = !hiddenPolicies.has(trace.meta?.policy);
  // The reader's zoom remains. A drag on a touch screen scrolls the page.
  layout.uirevision = wholeFigures.has(key) ? "whole" : "part";
  layout.dragmode = touch ? false : "zoom";
  if (wholeFigures.has(key)) layout.xaxis.range = figure.whole;
  await Plotly.react(element, data, layout, settings(key));
  // The caption describes the figure; a screen reader would otherwise read every tick.
  for (const svg of element.querySelectorAll(".main-svg")) svg.setAttribute("aria-hidden", "true");
}

let drawing = Promise.resolve();
function draw(keys = Object.keys(report.figures)) {
  const theme = root.dataset.theme;
  delete root.dataset.drawn;
  drawing = drawing.then(async () => {
    for (const key of keys) {
      if (root.dataset.theme !== theme) return;
      await drawFigure(key);
      // One plot at a time, so that the page answers while it draws.
      await new Promise((done) => setTimeout(done, 0));
    }
    root.dataset.drawn = theme;
  });
}

function setTheme(theme) {
  root.dataset.theme = theme;
  toggle.textContent = theme === "dark" ? "Light" : "Dark";
  toggle.setAttribute("aria-label", `${toggle.textContent} colors`);
  draw();
}

// The legend: a button for each policy hides its lines, bars and boxes in all figures.
for (const button of document.querySelectorAll("[data-policy]")) {
  button.addEventListener("click", () => {
    const shown = hiddenPolicies.delete(button.dataset.policy);
    if (!shown) hiddenPolicies.add(button.dataset.policy);
    button.setAttribute("aria-pressed", String(shown));
    draw(Object.keys(report.figures).filter((key) => report.figures[key].data.some((trace) => trace.meta?.policy)));
  });
}

// Sections with one figure for each policy show one at a time, in the same place.
for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    for (const other of button.parentElement.querySelectorAll("[data-show]")) {
      other.setAttribute("aria-pressed", String(other === button));
      figureOf(other.dataset.show).hidden = other !== button;
    }
    draw([button.dataset.show]);
  });
}

for (const button of document.querySelectorAll(".whole")) {
  button.addEventListener("click", () => {
    const key = button.dataset.figure;
    const whole = !wholeFigures.delete(key);
    if (whole) wholeFigures.add(key);
    button.setAttribute("aria-pressed", String(whole));
    button.textContent = whole ? "Show the first part" : "Show the whole run";
    draw([key]);
  });
}

// A table that is wider than its place says so.
function markTables() {
  for (const scroll of document.querySelectorAll(".scroll")) {
    const cut = scroll.scrollWidth > scroll.clientWidth + 1;
    scroll.classList.toggle("cut", cut);
    let hint = scroll.nextElementSibling;
    if (cut && !hint?.classList.contains("hint")) {
      hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = "Scroll the table to the right for more columns →";
      scroll.after(hint);
    } else if (!cut && hint?.classList.contains("hint")) {
      hint.remove();
    }
  }
  const legends = document.getElementById("legends");
  root.style.setProperty("--bar", `${(legends?.offsetHeight ?? 0) + 8}px`);
}
window.addEventListener("resize", markTables);

const themeWanted = () => darkWanted.matches ? "dark" : "light";
darkWanted.addEventListener("change", () => setTheme(themeWanted()));
toggle.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
setTheme(themeWanted());
markTables();
