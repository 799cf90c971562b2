"use strict";
// The front page's curve: the loss of each step, how far each epoch is off, and the
// digits. What changes goes from where it was to where it is.

const MOTION = 500;  // milliseconds
const LAST = 3, MOST = 2.5;  // the last epoch, and the highest loss that is drawn
const isWide = matchMedia("(min-width: 1100px)");
const isStill = matchMedia("(prefers-reduced-motion: reduce)");

// The runs of a switch on each number of ranks, or of the script as it is.
function runsOf(one) {
  if (one) return one.outcome;
  const right = Object.entries(DIFFS.right["04_ddp"]);
  return Object.fromEntries(right.map(([ranks, curve]) =>
    [ranks, { kind: "nothing", curve, steps: DIFFS.steps["04_ddp"][ranks] }]));
}

// The points of a run, [epochs passed, loss], one for each step.
function pointsOf({ kind, curve, steps }) {
  const isWhole = kind === "moves" || kind === "nothing";
  const all = isWhole ? steps : DIFFS.steps["01_cpu"]["1"];
  const length = all.length / LAST;  // of an epoch
  return steps.map((loss, n) => [(n + 1) / length, loss]);
}

// How far each epoch of a run is off. One that never came is where it should be.
function offsOf({ curve }) {
  const right = DIFFS.right["01_cpu"]["1"];
  const normal = DIFFS.right["04_ddp"]["2"];
  return right.map(([loss], n) => distance((curve[n] || normal[n])[0], loss));
}

function valueAt(points, at) {
  const found = points.find(point => point[0] >= at) || points.at(-1);
  return found ? found[1] : DIFFS.steps["01_cpu"]["1"][0];
}

function mixed(from, to, share) {
  return from + (to - from) * share;
}

// ---- drawing. A box is { width, height, left, isSmall }, in pixels.

function lossChart(box, run, points) {
  const x = at => box.left + (box.width - box.left) * at / LAST;
  const y = loss => 6 + (box.height - 12) * (1 - Math.min(loss, MOST) / MOST);
  const path = all => all.map(([at, loss]) => `${x(at).toFixed(1)},${
    y(loss).toFixed(1)}`).join(" ");
  const ghost = pointsOf(runsOf()["2"]);
  const kind = run.kind === "nothing" ? "same" : "wrong";
  const parts = [];
  const ticks = box.isSmall ? [0] : [0, .5, 1, 1.5, 2];
  for (const tick of ticks) {
    parts.push(`<path class="grid" d="M${box.left} ${y(tick)}H${box.width}"/>`);
    if (box.left) parts.push(text("scale", box.left - 8, y(tick) + 4, tick));
  }
  if (box.left) parts.push(text("title", 0, y(2) + 4, "loss"));
  parts.push(`<g class="ghost"><polyline points="${path(ghost)}"/></g>`,
    `<g class="${kind}"><polyline points="${path(points)}"/></g>`);
  if (run.kind === "crashes" || run.kind === "hangs") {
    const [at, loss] = points.at(-1) || [0, ghost[0][1]];
    parts.push(`<g class="end" transform="translate(${x(at)} ${y(loss)}) scale(${
      box.isSmall ? .6 : 1})"><circle r="10"/><path d="${run.kind === "crashes" ? "M-4-4L4 4M4-4L-4 4"
      : "M-3-5V5M3-5V5"}"/></g>`);
  }
  if (!box.isSmall) parts.push(...legend(box, run), ...lens(box, ghost, points, kind));
  const says = box.isSmall ? text("soft", box.width, 12, "loss of each step") : "";
  return drawn(box, "the loss of each step", parts.join("") + says);
}

function legend(box, run) {
  const left = box.width - 330;
  const name = run.kind === "nothing" ? "this script" : "with the mistake";
  const line = (kind, top) => `<g class="${kind}"><polyline points="${left},${top} ${
    left + 30},${top}"/></g>`;
  return [line("ghost", 14), text("", left + 38, 18, "as it should be: each step’s loss"),
    line(run.kind === "nothing" ? "same" : "wrong", 32),
    text("", left + 38, 36, `${name}, on 2 ranks`)];
}

// The first third of the last epoch, larger.
function lens(box, ghost, points, kind) {
  const from = LAST - 1, to = from + 1 / 3;
  const [width, height, top] = [200, 62, 46];
  const left = box.width - width;
  const near = all => all.filter(([at]) => at > from && at <= to);
  const losses = near([...ghost, ...points]).map(([, loss]) => loss);
  const low = Math.min(...losses), high = Math.max(...losses);
  const part = all => near(all).map(([at, loss]) =>
    `${left + 6 + (width - 12) * (at - from) / (to - from)},${
      top + 5 + (height - 10) * (high - loss) / (high - low)}`).join(" ");
  return [`<rect class="lens" x="${left}" y="${top}" width="${width}"
    height="${height}" rx="5"/>`,
    text("soft scale", left - 8, top + 26, "epoch 3,"),
    text("soft scale", left - 8, top + 42, "its first third"),
    `<g class="ghost"><polyline points="${part(ghost)}"/></g>
    <g class="${kind}"><polyline points="${part(points)}"/></g>`];
}

function distanceChart(box, run, offs) {
  const x = at => box.left + (box.width - box.left) * at / LAST;
  const range = Math.log(TOP / FLOOR);
  const y = off => box.height * Math.log(TOP / Math.max(off, FLOOR)) / range;
  const edge = [0, 1, 2].map(n => `H${x(n)}V${y(allowed(n + 1))}H${x(n + 1)}`).join("");
  const start = `M${x(0)} ${y(allowed(1))}`;
  const parts = [
    `<path class="bug" d="${start}${edge}V0H${x(0)}Z"/>`,
    `<path class="rounding" d="${start}${edge}V${box.height}H${x(0)}Z"/>`,
    text("bad", box.isSmall ? x(.5) + 5 : x(0) + 8, 15, box.isSmall ? "bug" : "a bug"),
    text("good", x(0) + 8, box.height - 6, box.isSmall ? "" : "rounding")];
  if (box.left) {
    parts.push(text("title", 0, 12, "distance"), text("soft", 0, 27, "from the"),
      text("soft", 0, 41, "right loss"));
    for (const tick of DISTANCES) parts.push(text("scale", box.left - 8, y(tick) + 4,
      tick < .1 ? tick.toExponential() : tick));
  }
  const normal = offsOf(runsOf()["2"]);
  for (const [n, off] of offs.entries()) {
    const isIn = n < run.curve.length, isFar = isIn && off > allowed(n + 1);
    const at = x(n + .5);
    if (isFar) parts.push(`<path class="way" d="M${at} ${y(normal[n])}V${y(off)}"/>`);
    if (isFar || !isIn) parts.push(dot("hollow", at, y(normal[n])));
    if (!isIn) continue;
    parts.push(dot(isFar ? "far" : "near", at, y(off)));
    const times = Math.round(distance(run.curve[n][0],
      DIFFS.right["01_cpu"]["1"][n][0]) / allowed(n + 1));
    if (isFar && !box.isSmall) parts.push(text("bad", at + 9, y(off) + 4,
      `${times.toLocaleString("en")} ×${n < LAST - 1 ? " too far" : ""}`));
  }
  return drawn(box, "how far each epoch is from the right loss", parts.join("") );
}

function text(kind, left, top, words) {
  return `<text class="${kind}" x="${left}" y="${top}">${words}</text>`;
}

function dot(kind, left, top) {
  return `<circle class="${kind}" cx="${left}" cy="${top}" r="4.5"/>`;
}

function drawn({ width, height }, says, parts) {
  return `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"
    role="img" aria-label="A chart of ${says}: the table has the numbers">${parts}</svg>`;
}

function digitTable(runs) {
  const right = DIFFS.right["01_cpu"]["1"];
  const rows = [["one GPU", right], ...Object.entries(runs).map(
    ([ranks, { curve }]) => [`${ranks} ranks`, curve])];
  const heads = right.map((_, n) => `<th scope="col">epoch ${n + 1}</th>`).join("");
  const body = rows.map(([name, curve]) => {
    const cells = right.map(([loss], n) =>
      `<td>${curve[n] ? digits(curve[n][0], loss, n + 1) : "–"}</td>`);
    return `<tr><th scope="row">${name}</th>${cells.join("")}</tr>`;
  });
  return element("table", "digits", `<thead><tr><td></td>${heads}</tr></thead>
    <tbody>${body.join("")}</tbody>`);
}

// ---- what shows, and how it comes there

const shown = { points: [], offs: [], frame: 0, one: null };

function fillHero(hero, one) {
  const runs = runsOf(one), run = runs["2"];
  const title = one ? verdictOf(one, run.kind) : "One curve";
  const isEarly = run.kind === "crashes" || run.kind === "hangs";
  const where = run.steps.length ? `in epoch ${run.curve.length + 1}` : "before epoch 1";
  const head = hero.querySelector(".title");
  head.textContent = isEarly ? `${title} ${where}` : title;
  head.className = `title ${run.kind}`;
  const figure = hero.querySelector(".figure");
  const [from, to] = [shown.points, pointsOf(run)];
  const starts = to.map(([at]) => valueAt(from, at));
  const [first, offs] = [shown.offs, offsOf(run)];
  const isSame = shown.one === one || !from.length;
  const begun = isStill.matches || isSame ? -MOTION : performance.now();
  figure.replaceChildren(element("div", "charts"), digitTable(runs));
  cancelAnimationFrame(shown.frame);
  const step = now => {
    const share = 1 - (1 - Math.min(Math.max((now - begun) / MOTION, 0), 1)) ** 3;
    shown.points = to.map(([at, loss], n) => [at, mixed(starts[n], loss, share)]);
    shown.offs = offs.map((off, n) => Math.exp(
      mixed(Math.log(Math.max(first[n] ?? off, FLOOR)), Math.log(Math.max(off, FLOOR)),
        share)));
    drawHero(figure.firstChild, run);
    if (share < 1) shown.frame = requestAnimationFrame(step);
  };
  shown.one = one;
  step(performance.now());
}

function drawHero(place, run) {
  const all = place.clientWidth;
  const boxes = isWide.matches
    ? [{ width: all, height: 174, left: 100 }, { width: all, height: 90, left: 100 }]
    : [.62, .34].map(share => ({ width: Math.round(all * share), height: 74, left: 0,
      isSmall: true }));
  place.innerHTML = lossChart(boxes[0], run, shown.points) +
    distanceChart(boxes[1], run, shown.offs);
}
