"use strict";
// What happened in a real run with a mistake, as elements of a page. A curve is a
// list of [loss, correct, total], one for each epoch.

const GUESSES = { moves: "the curve moves", crashes: "it crashes", hangs: "it hangs",
  nothing: "nothing" };
const VERDICTS = { moves: "No error, but the curve moves", crashes: "It crashes",
  hangs: "It hangs", nothing: "Nothing changes" };
const FLOOR = 1e-10, TOP = 10;  // of the distances that are drawn
const LEFT = 30, WIDTH = 270, HIGH = 100, LOW = 110, GAP = 42;  // of the drawing

// The relative error that rounding may cause in an epoch (from 1), as `make compare`
// has it in tools/run/compare.py.
function allowed(epoch) {
  return Math.min(1e-5 * 20 ** (epoch - 1), 5e-3);
}

// A loss, from the first digit on marked that is not the right one.
function digits(loss, right) {
  const [found, expected] = [loss.toFixed(6), right.toFixed(6)];
  let same = 0;
  while (same < found.length && found[same] === expected[same]) same++;
  const rest = found.slice(same);
  return found.slice(0, same) + (rest && `<mark>${rest}</mark>`);
}

// A row for each of `curves`, {name: curve}; with the counts where one is wrong.
function lossTable(name, right, curves) {
  const all = Object.entries(curves);
  const hasCounts = all.some(([, curve]) => curve.some(([, correct, total], n) =>
    right[n] && (correct !== right[n][1] || total !== right[n][2])));
  const row = (title, cells) => `<tr><th scope="row">${title}</th>${cells.map(
    one => `<td>${one}</td>`).join("")}</tr>`;
  const count = ([, correct, total], [, ...expected]) => {
    const isRight = correct === expected[0] && total === expected[1];
    const text = `${correct}/${total}`;
    return hasCounts ? `<br>${isRight ? text : `<mark>${text}</mark>`}` : "";
  };
  const cell = (now, expected) => !now ? "–"
    : digits(now[0], expected[0]) + count(now, expected);
  return element("table", "losses",
    `<tr><td></td>${right.map((_, n) => `<td>epoch ${n + 1}</td>`).join("")}</tr>` +
    row(name, right.map(one => one[0].toFixed(6) + count(one, one))) +
    all.map(([title, curve]) =>
      row(title, right.map((one, n) => cell(curve[n], one)))).join(""));
}

// The losses, and below them how far they are from the right ones on a log scale.
function chart(right, curves, kind = "wrong") {
  const bottom = HIGH + GAP + LOW, top = HIGH + GAP;
  const all = [right, ...Object.values(curves)].flat().map(([loss]) => loss);
  const most = 1.08 * Math.max(...all.filter(Number.isFinite));
  const x = n => LEFT + WIDTH * n / Math.max(right.length - 1, 1);
  const y = loss => HIGH - (HIGH - 8) * loss / most;
  const z = distance => bottom - LOW *
    Math.log(Math.min(Math.max(distance, FLOOR), TOP) / FLOOR) / Math.log(TOP / FLOOR);
  const text = (kind, at, words) => `<text class="${kind}" x="${at[0]}" y="${at[1]}">${
    words}</text>`;
  const dot = (kind, [a, b]) => `<circle class="${kind}" cx="${a}" cy="${b}" r="2.5"/>`;
  const line = (kind, points) => `<polyline class="${kind}" points="${
    points.join(" ")}"/>${points.map(point => dot(kind, point)).join("")}`;
  const band = (kind, edge) => `<polygon class="${kind}" points="${right.map((_, n) =>
    [x(n), z(allowed(n + 1))]).join(" ")} ${LEFT + WIDTH},${edge} ${LEFT},${edge}"/>`;
  const parts = [band("bug", top), band("rounding", bottom),
    text("", [LEFT + 6, top + 14], "a bug"),
    text("", [LEFT + 6, bottom - 7], "rounding"),
    text("title", [LEFT, top - 7], "distance from the right curve"),
    text("title", [LEFT + WIDTH - 24, 14], "loss"),
    line("right", right.map(([loss], n) => [x(n), y(loss)]))];
  for (const curve of Object.values(curves)) {
    const drawn = curve.slice(0, right.length);
    const off = drawn.map(([loss], n) => Math.abs(loss / right[n][0] - 1));
    parts.push(line(kind, drawn.map(([loss], n) => [x(n), y(loss)])));
    parts.push(line(kind, off.map((distance, n) => [x(n), z(distance)])));
  }
  parts.push(...right.map((_, n) =>
    text("tick", [x(n), HIGH + 13], n ? n + 1 : "epoch 1")));
  parts.push(...[1, 1e-3, 1e-6, 1e-9].map(one =>
    text("scale", [LEFT - 4, z(one) + 4], one === 1 ? 1 : one.toExponential())));
  parts.push(...[.5, 1, 1.5, 2].filter(one => one < most).map(one =>
    text("scale", [LEFT - 4, y(one) + 4], one)));
  return element("div", "chart", `<svg viewBox="0 0 ${LEFT + WIDTH + 14} ${bottom + 4}"
    role="img" aria-label="The losses, and their distance from the right ones on a log
    scale: the table has the numbers">${parts.join("")}</svg>`);
}

// A lane for each rank: the epochs that it finished, then the line at which it waits.
function lanes(all) {
  const made = element("ol", "lanes");
  for (const { rank, epochs, line, code } of all) {
    const done = Array.from({ length: epochs },
      (_, n) => `<span>epoch ${n + 1}</span>`);
    const waits = code ? `line ${line}: <code>${escaped(code)}</code>` : "has ended";
    made.append(element("li", "", `<b>rank ${rank}</b>${done.join("")}<span class="${
      code ? "waits" : "ended"}">${waits}</span>`));
  }
  return made;
}

function rightCurve(one) {
  const curves = DIFFS.right[one.stage];
  return curves[Object.keys(one.outcome)[0]] || Object.values(curves)[0];
}

function curvesOf(one) {
  const found = Object.entries(one.outcome).filter(([, { kind }]) => kind === "moves");
  return Object.fromEntries(
    found.map(([ranks, { curve }]) => [onRanks([ranks]), curve]));
}

function onRanks(all) {
  return all[0] === "1" ? "one process" : `${all.join(" and ")} ranks`;
}

// The outcomes of a switch. Those that are alike on other numbers of ranks, but for
// numbers, are told once.
function outcome(one, answer) {
  const made = element("div", "outcome");
  const groups = new Map();
  for (const [ranks, { kind, error }] of Object.entries(one.outcome)) {
    const key = kind + (error || "").replace(/\d+/g, "#");
    groups.set(key, [...(groups.get(key) || []), ranks]);
  }
  const kinds = Object.values(one.outcome).map(found => found.kind);
  if (answer) {
    made.append(element("p", "soft", kinds.includes(answer) ? "You guessed right."
      : `Your guess was: ${GUESSES[answer]}.`));
  }
  for (const ranks of groups.values()) {
    const { kind, curve, error, exit, lanes: all } = one.outcome[ranks[0]];
    const noGpu = kind === "nothing" && one.gpus;
    const verdict = noGpu ? "No effect on CPUs; not run on GPUs" : VERDICTS[kind];
    const where = `<span>on ${onRanks(ranks)}</span>`;
    made.append(element("p", `verdict ${kind}`, `${verdict} ${where}`));
    if (kind === "crashes") {
      made.append(element("pre", "", escaped(error)), element("p", "soft",
        `Epochs that it finished: ${curve?.length || 0}. Exit status: ${exit}.`));
    }
    if (kind === "hangs") made.append(lanes(all));
  }
  const curves = curvesOf(one), right = rightCurve(one);
  if (Object.keys(curves).length) {
    const numbers = element("div", "numbers");
    numbers.append(chart(right, curves), lossTable("right", right, curves));
    made.append(numbers);
  }
  made.append(element("div", "says", one.says));
  const { torch, backend, data } = DIFFS.recorded;
  const more = [`Recorded with PyTorch ${torch}, ${backend}, ${data}`];
  if (one.symptom) more.push(`<a data-file="SYMPTOMS.md#${one.symptom}">Symptoms</a>`);
  if (one.exercise) {
    more.push(`<a data-file="${one.page}">Find it yourself</a>: <code>make exercise
      E=${one.exercise}</code>`);
  }
  made.append(element("p", "soft", more.join(" · ")));
  return made;
}

// The curve beside the front page's diff: the right one, or that of a switch.
function fillAside(aside, one) {
  const [, b] = DIFFS.front.pair.split("-");
  const right = DIFFS.right["01_cpu"]?.["1"] || Object.values(DIFFS.right[b])[0];
  const own = Object.entries(DIFFS.right[b]).map(
    ([ranks, curve]) => [onRanks([ranks]), curve]);
  const moved = one ? curvesOf(one) : {};
  const isWrong = Object.keys(moved).length > 0;
  const curves = isWrong ? moved : Object.fromEntries(own);
  aside.replaceChildren(element("h3", "", isWrong ? one.title : "One curve"),
    chart(right, curves, isWrong ? "wrong" : "same"),
    lossTable("stage 1", right, curves), element("p", "soft",
      "Real runs. Switch a mistake on, and see what happened."));
}
