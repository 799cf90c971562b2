"use strict";
// Charts and tables of losses, for the diffs and the playground. A curve is a list of
// [loss, correct, total], one for each epoch.

const FLOOR = 1e-9, TOP = 10;  // range of the distances drawn
const DISTANCES = [1e-2, 1e-4, 1e-6, 1e-8];
const ZONES = ["rounding", "bug"];

function element(tag, className = "", html = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.innerHTML = html;
  return made;
}

// The relative error that rounding may cause in an epoch (from 1), the limit of
// `make compare` in tools/run/compare.py.
function allowed(epoch) {
  return Math.min(1e-5 * 20 ** (epoch - 1), 5e-3);
}

// The rows of a curve: epochs, or 30 steps each of the second curve, in float64. `most`
// is the highest loss drawn.
const EPOCHS = { name: "epoch", label: n => n, allowed, most: 2.5 };
const STEPS = { name: "steps", label: n => `${30 * n - 29}–${30 * n}`,
  allowed: () => FLOOR, most: 3 };

// The relative distance of a loss from the right one.
function distance(loss, right) {
  return Math.abs(loss - right) / (Math.abs(right) || 1);
}

// ---- charts. A box is { width, height, left, isSmall }, in pixels; `left` is the width
// of the labels. The horizontal axis has `last` rows of a curve.

function across(box, last) {
  return at => box.left + (box.width - box.left) * at / last;
}

function text(kind, left, top, words) {
  return `<text class="${kind}" x="${left}" y="${top}">${words}</text>`;
}

function dot(kind, left, top) {
  return `<circle class="${kind}" cx="${left}" cy="${top}" r="4.5"/>`;
}

function path(kind, points) {
  const places = points.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`);
  return `<g class="${kind}"><polyline pathLength="1" points="${places.join(" ")}"/></g>`;
}

function drawn({ width, height }, says, parts) {
  return `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img"
    aria-label="A chart of ${says}; the table contains the numbers">${parts.join("")}</svg>`;
}

function lossAt(box, rows) {
  return loss => 6 + (box.height - 12) * (1 - Math.min(loss, rows.most) / rows.most);
}

const pen = document.createElement("canvas").getContext("2d");

function legend(box, names) {  // above the plot, from the right
  let right = box.width;
  return names.reverse().map(([kind, name]) => {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const left = right - pen.measureText(name).width - (kind === "near" || ZONES.includes(kind) ? 18 : 30);
    const parts = (kind === "near" ? dot(kind, left + 7, -9)
      : ZONES.includes(kind) ? `<rect class="${kind}" x="${left}" y="-15" width="12" height="12"/>`
      : path(kind, [[left, -9], [left + 22, -9]])) + text("end", right, -5, name);
    right = left - 14;
    return parts;
  });
}

// `lines` are { kind, points: [[rows passed, loss], …] }; `more` is drawn over them.
function lossChart(box, rows, last, lines, more = []) {
  const x = across(box, last), y = lossAt(box, rows);
  const parts = [];
  for (let tick = 0; tick < rows.most; tick += box.isSmall ? 1 : .5) {
    parts.push(`<path class="grid" d="M${box.left} ${y(tick)}H${box.width}"/>`);
    if (box.left) parts.push(text("scale", box.left - 8, y(tick) + 4, tick));
  }
  parts.push(text("title", 0, -5, "loss"));
  for (const { kind, points } of lines) {
    const known = points.filter(([, loss]) => Number.isFinite(loss));
    const places = known.map(([at, loss]) => [x(at), y(loss)]);
    parts.push(kind === "near" ? places.map(at => dot(kind, ...at)).join("") : path(kind, places));
  }
  return drawn(box, "the loss", [...parts, ...more]);
}

// Marks for the rows of a curve, next to a right one.
function marksOf(curve, right) {
  return curve.map(([loss], n) => ({ row: n + 1, off: distance(loss, right[n][0]), normal: FLOOR }));
}

// `marks` are { row, off, normal }: the row of a curve, from 1, how far its loss is off,
// or null if the row is missing, and how far a right run's loss is off.
function distanceChart(box, rows, last, marks) {
  const x = across(box, last), range = Math.log(TOP / FLOOR);
  const y = off => (box.height - 6) * Math.log(TOP / Math.max(off, FLOOR)) / range;  // room for a dot
  const edge = Array.from({ length: last }, (_, n) =>
    `V${y(rows.allowed(n + 1))}H${x(n + 1)}`).join("");
  const parts = [
    `<path class="bug" d="M${x(0)} 0${edge}V0Z"/>`,
    `<path class="rounding" d="M${x(0)} ${box.height}${edge}V${box.height}Z"/>`,
    text("title", 0, -5, box.width > 300 ? "distance from one process" : "distance"),
    ...legend(box, ZONES.slice(rows.allowed(1) > FLOOR ? 0 : 1).map(zone => [zone, zone]))];
  if (rows === EPOCHS) parts.push(text("limit", x(0) + 4, y(rows.allowed(1)) + 12, "limit"));
  const ticks = DISTANCES.filter((_, n) => box.height > 70 || n % 2);
  if (box.left) for (const tick of ticks) parts.push(text("scale", box.left - 8,
    y(tick) + 4, tick < .1 ? tick.toExponential() : tick));
  for (const { row, off, normal, isSecond } of marks) {
    const isIn = off !== null, isFar = isIn && off > rows.allowed(row);
    const at = x(row - .5);
    if (isFar) parts.push(`<path class="way" d="M${at} ${y(normal)}V${y(off)}"/>`);
    if (isFar || !isIn) parts.push(dot("hollow", at, y(normal)));
    if (isIn) parts.push(dot(isFar ? "far" : "near", at, y(off)));
    if (!isFar || isSecond || rows !== EPOCHS) continue;
    const of = row === 1 && box.width > 400 ? "× the limit" : "×";
    const times = Math.round(off / rows.allowed(row)).toLocaleString("en") + of;
    const isLeft = at + 9 + 8 * times.length > box.width;  // or it would stick out
    parts.push(text(isLeft ? "bad end" : "bad", at + (isLeft ? -9 : 9), y(off) + 4, times));
  }
  return drawn(box, "how far each loss is from the right one", parts);
}

// A loss. From its first wrong digit on, it is dimmed if rounding explains it, or marked.
function digits(loss, right, isNear) {
  const found = loss.toFixed(6), expected = right.toFixed(6);
  let same = 0;
  while (same < found.length && found[same] === expected[same]) same++;
  const end = element(isNear ? "span" : "mark", isNear ? "dim" : "", found.slice(same));
  return found.slice(0, same) + (end.textContent && end.outerHTML);
}

function count([, correct, total], [, rightCorrect, rightTotal]) {
  const shown = `${correct}/${total}`;
  const isRight = correct === rightCorrect && total === rightTotal;
  return `<small>test ${isRight ? shown : `<mark>${shown}</mark>`}</small>`;
}

// A line for each [name, curve], and a column for each row of the curves.
function lossTable(curves, right, rows = EPOCHS, hasCounts = true) {
  const isNear = (curve, n) => distance(curve[n][0], right[n][0]) <= rows.allowed(n + 1);
  const heads = right.map((_, n) => `<th scope="col">${rows.name} ${rows.label(n + 1)}</th>`);
  const lines = curves.map(([name, curve]) => {
    const cells = right.map((expected, n) => `<td data-epoch="${rows.name} ${n + 1}">${curve[n]
      ? digits(curve[n][0], expected[0], isNear(curve, n)) + (hasCounts ? ` ${count(curve[n], expected)}` : "")
      : "–"}</td>`);
    return `<tr><th scope="row">${name}</th>${cells.join("")}</tr>`;
  });
  return element("table", "losses", `<thead><tr><td></td>${heads.join("")}</tr></thead><tbody>${lines.join("")}</tbody>`);
}
