"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const MARKS = {
  "proven": ["✓", "a row, proven on its own GPU"],
  "emulated": ["◐", "a row, whose arithmetic passed in plain torch"],
  "no record": ["•", "a row without a record"],
  "fail": ["✗", "a row that failed"],
  "other activation": ["~", "another activation's row"],
  "tier fallback": ["^", "the smaller tier's row"],
  "gap": ["–", "no row: the backend chooses by itself"],
  "crash": ["‼", "no row, and a crash or wrong results to be expected"],
  "left out": ["○", "left out, with a reason"],
  "discarded": ["x", "a row that is found and thrown away"],
  "not asked for": ["", "no call asks for it"],
};
const VERDICTS = ["faster", "same", "slower", "unresolved"];
const WORST_FIRST = ["fail", "no record", "emulated", "proven"];
const LABELS = { baseline: "the baseline", replaced: "the row it replaces" };

/* Elements: text is only ever set as text, and what is no visible character in it as an escape. */
const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
function make(kind, attributes = {}, ...children) {
  return fill(document.createElement(kind), attributes, children);
}
function draw(kind, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", kind), attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  const some = children.filter((child) => child !== null && child !== "");
  element.append(...some.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

/* Facts about rows. */
const name = (number) => data.names[number];
const proofs = (row) => row.p || [];
const statusOf = (row) => WORST_FIRST.find((status) => proofs(row).some((proof) => proof.s === status)) || "no record";
const timed = (row) => proofs(row).find((proof) => proof.c) || null;
const verdicts = (row) => proofs(row).map((proof) => proof.v).filter(Boolean);
const against = (row, other) => (timed(row) ? timed(row).c.find((each) => each[0] === other) || null : null);
const placeOf = (row) => `${name(row.f)}:${row.l}`;
const signed = (value) => (value < 0 ? "−" : value > 0 ? "+" : "") + Math.abs(value).toFixed(1) + " %";
const changeText = ([centre, low, high]) => `${signed(centre)} (${signed(low)} to ${signed(high)})`;
const short = (bucket) => (bucket >= 1024 ? `${bucket / 1024}k` : String(bucket));
function hrefOf(shape, index) {
  const row = data.shapes[shape].rows[index];
  if (!data.link) return `#row-${shape}-${index}`;
  const file = name(row.f).split("/").map(encodeURIComponent).join("/");
  return data.link.replaceAll("{file}", () => file).replaceAll("{line}", () => String(row.l));
}
function said(row) {
  const change = against(row, "replaced") || against(row, "baseline");
  const speed = change ? `, ${changeText(change[3])} against ${LABELS[change[0]]}: ${change[1]}` : "";
  return `${statusOf(row)}${speed}, ${placeOf(row)}`;
}


/* One tab stop a group of marks; arrow keys move among them. */
const stopOf = (td) => td.querySelector("a") || td;
function moveTo(from, to) {
  if (!to) return;
  if (from) from.setAttribute("tabindex", -1);
  to.setAttribute("tabindex", 0);
  to.focus();
}
function coverageKeys(event) {
  const td = event.target.closest("td");
  if (!td) return;
  const lines = [...td.parentNode.parentNode.children].filter((line) => !line.hidden);
  const [x, y] = [td.cellIndex, lines.indexOf(td.parentNode)];
  const last = td.parentNode.cells.length - 1;
  const target = { ArrowLeft: [Math.max(1, x - 1), y], ArrowRight: [Math.min(last, x + 1), y], ArrowUp: [x, y - 1], ArrowDown: [x, y + 1], Home: [1, y], End: [last, y] }[event.key];
  if (!target || !lines[target[1]]) return;
  event.preventDefault();
  moveTo(stopOf(td), stopOf(lines[target[1]].cells[target[0]]));
}
function chartKeys(event) {
  const marks = [...event.currentTarget.querySelectorAll("a")];
  const at = marks.indexOf(event.target.closest("a"));
  const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: marks.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  moveTo(marks[at], marks[Math.min(Math.max(to, 0), marks.length - 1)]);
}
