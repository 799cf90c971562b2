"use strict";
// Losses as elements of a page: a chart and a table, of the diffs and the playground.
// A curve is a list of [loss, correct, total], one for each epoch.

const FLOOR = 1e-9, TOP = 10;  // of the distances that are drawn
const LEFT = 34, RIGHT = 10, ABOVE = 20, HEIGHT = 100;  // of a chart, in pixels
const LOSSES = [0, .5, 1, 1.5, 2, 2.5], DISTANCES = [1, 1e-2, 1e-4, 1e-6, 1e-8];

function element(tag, className = "", html = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.innerHTML = html;
  return made;
}

// The relative error that rounding may cause in an epoch (from 1), as `make compare`
// has it in tools/run/compare.py.
function allowed(epoch) {
  return Math.min(1e-5 * 20 ** (epoch - 1), 5e-3);
}

// What the rows of a curve are: epochs, or 30 steps each of the second curve, in float64.
const EPOCHS = { name: "epoch", label: n => n, allowed };
const STEPS = { name: "steps", label: n => `${30 * n - 29}–${30 * n}`,
  allowed: () => FLOOR };

// How far a loss is from the right one, relative to it.
function distance(loss, right) {
  return Math.abs(loss - right) / (Math.abs(right) || 1);
}

// A line of the chart: [the middle of each epoch, its loss, its distance].
function epochLine(kind, curve, right) {
  const points = curve.slice(0, right.length).map(([loss], n) =>
    [n + .5, loss, distance(loss, right[n][0])]);
  return { kind, points };
}

// One drawing: `down` says how far down a value stands, from 0 to 1, and
// `place` which value of a point is drawn.
function drawing({ title, lines, ends, width, place, down, ticks, bands, rows }) {
  const [from, to] = ends;
  const x = at => LEFT + (width - LEFT - RIGHT) * (at - from) / (to - from || 1);
  const y = value => ABOVE + HEIGHT * Math.min(Math.max(down(value), 0), 1);
  const epochs = Array.from({ length: Math.ceil(to) }, (_, n) => n + .5);
  const text = (kind, left, top, words) =>
    `<text class="${kind}" x="${left}" y="${top}">${words}</text>`;
  const edge = [from, ...epochs, to].map(at => [x(at), y(rows.allowed(at + .5))]);
  const band = (kind, end) =>
    `<polygon class="${kind}" points="${edge.join(" ")} ${
      x(to)},${end} ${x(from)},${end}"/>`;
  const parts = [text("title", LEFT, ABOVE - 8, title)];
  if (bands) {
    const bottom = ABOVE + HEIGHT;
    parts.push(band("bug", ABOVE), band("rounding", bottom));
    parts.push(text("", LEFT + 6, ABOVE + 14, "a bug"));
    parts.push(text("", LEFT + 6, bottom - 24, "rounding"));
  }
  for (const n of epochs) {
    const label = rows.label(n + .5);
    parts.push(text("tick", x(n), ABOVE + HEIGHT + 14,
      n < 1 ? `${rows.name} ${label}` : label));
  }
  for (const tick of ticks) {
    const words = tick && tick < .1 ? tick.toExponential() : tick;
    parts.push(text("scale", LEFT - 5, y(tick) + 4, words));
  }
  for (const { kind, points } of lines) {
    const known = points.filter(point => Number.isFinite(point[place]));
    const places = known.map(point => [x(point[0]), y(point[place])]);
    const dots = (kind.endsWith("steps") ? [] : places).map(([left, top]) =>
      `<circle cx="${left}" cy="${top}" r="2.5"/>`);
    parts.push(`<g class="${kind}"><polyline points="${places.join(" ")}"/>${
      dots.join("")}</g>`);
  }
  return `<svg viewBox="0 0 ${width} ${ABOVE + HEIGHT + 18}" role="img" aria-label="A
    chart of ${title}: the table has the numbers">${parts.join("")}</svg>`;
}

// The losses of some lines, and their distances on a log scale. A line is
// { kind, points: [[epochs passed, loss, distance; or none], …] }; `ends` are the
// first and the last number of epochs that is drawn, `width` each chart's in pixels.
function chart(lines, ends, width = 300, rows = EPOCHS) {
  const losses = lines.flatMap(line => line.points.map(point => point[1]));
  const highest = Math.max(...losses.filter(Number.isFinite), .1);
  const most = 1.08 * Math.min(highest, LOSSES.at(-1));  // what is higher is cut off
  const shared = { lines, ends, width, rows };
  const above = drawing({ ...shared, title: "the loss", place: 1,
    down: loss => 1 - loss / most, ticks: LOSSES.filter(loss => loss < most) });
  const range = Math.log(TOP / FLOOR);
  const below = drawing({ ...shared, title: "its distance", place: 2,
    down: off => Math.log(TOP / Math.max(off, FLOOR)) / range, ticks: DISTANCES,
    bands: true });
  return element("div", "chart", above + below);
}

// A loss, from the first wrong digit on marked where rounding does not explain it.
function digits(loss, right, epoch, rows = EPOCHS) {
  const found = loss.toFixed(6);
  const expected = right.toFixed(6);
  const isNear = distance(loss, right) <= rows.allowed(epoch);
  if (found === expected || isNear) return found;
  let same = 0;
  while (same < found.length && found[same] === expected[same]) same++;
  return `${found.slice(0, same)}<mark>${found.slice(same)}</mark>`;
}

function count([, correct, total], [, rightCorrect, rightTotal]) {
  const text = `${correct}/${total}`;
  const isRight = correct === rightCorrect && total === rightTotal;
  return `<small>${isRight ? text : `<mark>${text}</mark>`}</small>`;
}

// A row for each row of the curves, a column for the right curve and for each of {name: curve}.
function lossTable(name, right, curves, rows = EPOCHS) {
  const all = [right, ...Object.values(curves)];
  const heads = [rows.name, name, ...Object.keys(curves)].map(
    one => `<th scope="col">${one}</th>`);
  const lines = right.map((expected, n) => {
    const cells = all.map(curve => {
      if (!curve[n]) return "<td>–</td>";
      const loss = digits(curve[n][0], expected[0], n + 1, rows);
      return `<td>${loss} ${count(curve[n], expected)}</td>`;
    });
    return `<tr><th scope="row">${rows.label(n + 1)}</th>${cells.join("")}</tr>`;
  });
  return element("table", "losses", `<thead><tr>${heads.join("")}</tr></thead>
    <tbody>${lines.join("")}</tbody>`);
}
