"use strict";
// The outcomes of real runs with a mistake, as elements of a page.

const GUESSES = { moves: "the curve moves", crashes: "it crashes", hangs: "it hangs",
  nothing: "nothing" };
const VERDICTS = { moves: "No error, but the curve moves", crashes: "It crashes",
  hangs: "It hangs", nothing: "Nothing changes" };

function escaped(text) {
  return text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);
}

// A lane for each rank: the epochs that it finished, then the line where it waits.
function lanes(all) {
  const made = element("ol", "lanes");
  for (const { rank, epochs, line, code } of all) {
    const done = Array.from({ length: epochs },
      (_, n) => `<span>epoch ${n + 1}</span>`);
    const waits = code ? `line ${line}: <code>${escaped(code)}</code>` : "finished";
    made.append(element("li", "", `<b>rank ${rank}</b>${done.join("")}<span class="${
      code ? "waits" : "ended"}">${waits}</span>`));
  }
  return made;
}

function onRanks(all) {
  return all[0] === "1" ? "one process" : `${all.join(" and ")} ranks`;
}

function verdictOf(one, kind) {
  const noGpu = kind === "nothing" && one.gpus;
  return noGpu ? "No effect on CPUs; not run on GPUs" : VERDICTS[kind];
}

// The charts of a switch's runs whose curves move, and the table of their losses.
function numbers(one, moving) {
  const rights = DIFFS.right[one.stage];
  const right = rights[Object.keys(one.outcome)[0]] || Object.values(rights)[0];
  const last = right.length;
  const rows = one.second ? STEPS : EPOCHS;
  const runs = moving.map(([, run]) => run);
  const hasSteps = runs.every(({ steps }) => steps);
  const middles = curve => curve.map(([loss], n) => [n + .5, loss]);
  const ghost = hasSteps ? pointsOf(runsOf()["2"]) : middles(right);
  const lines = runs.map((run, n) => ({ kind: n ? "wrong second" : "wrong",
    points: hasSteps ? pointsOf(run) : middles(run.curve) }));
  const marks = runs.flatMap(({ curve }, k) =>
    marksOf(curve.slice(0, last), right).map(mark => ({ ...mark, isSecond: k > 0 })));
  const curves = moving.map(([ranks, { curve }]) => [onRanks([ranks]), curve]);
  return figure(rows, [{ kind: "ghost", points: ghost }, ...lines], marks,
    [["right", right], ...curves]);
}

// Two charts and the table of their curves, whose first one is right.
function figure(rows, lines, marks, curves, width = Math.min(460, innerWidth - 64)) {
  const [[, right]] = curves, last = right.length;
  const box = { width, height: 130, left: 72 };
  const made = element("div", "numbers", `<div class="charts">${
    lossChart(box, rows, last, lines, legend(box,
      lines.map(({ kind }, n) => [kind, curves[n][0]])))}${
    distanceChart({ ...box, height: 90 }, rows, last, marks)}</div>`);
  made.append(lossTable(curves, right, rows));
  return made;
}

// A right run of a stage, on top of its notebook: each step of one process, and its epochs.
function showRight(place) {
  const stage = place.dataset.curve;
  const right = DIFFS.right["01_cpu"]["1"], [curve] = Object.values(DIFFS.right[stage]);
  const points = pointsOf({ kind: "nothing", steps: DIFFS.steps["01_cpu"]["1"] });
  const lines = [{ kind: "ghost", points },
    { kind: "near", points: curve.map(([loss], n) => [n + .5, loss]) }];
  place.append(figure(EPOCHS, lines, marksOf(curve, right), [["one process", right], [stage, curve]], place.clientWidth));
}
addEventListener("DOMContentLoaded", () =>
  document.querySelectorAll("[data-curve]").forEach(showRight));

// A switch's outcomes in words. Outcomes on several numbers of ranks that differ only in
// numbers are shown once.
function outcomeInWords(one, answer) {
  const made = element("div", "outcome");
  const groups = new Map();
  for (const [ranks, { kind, error }] of Object.entries(one.outcome)) {
    const key = kind + (error || "").replace(/\d+/g, "#");
    groups.set(key, [...(groups.get(key) || []), ranks]);
  }
  const kinds = Object.values(one.outcome).map(found => found.kind);
  if (answer) {
    made.append(element("p", "guessed", kinds.includes(answer) ? "You guessed right."
      : `Not quite. You guessed: ${GUESSES[answer]}.`));
  }
  for (const ranks of groups.values()) {
    const { kind, curve, error, exit, lanes: all } = one.outcome[ranks[0]];
    const verdict = verdictOf(one, kind);
    const where = `<span>on ${onRanks(ranks)}</span>`;
    made.append(element("p", `verdict ${kind}`, `${verdict} ${where}`));
    if (kind === "crashes") {
      made.append(element("pre", "", escaped(error)), element("p", "soft",
        `Epochs finished: ${curve?.length || 0}. Exit status: ${exit}.`));
    }
    if (kind === "hangs") made.append(lanes(all));
  }
  made.append(element("div", "says", one.says));
  return made;
}

function outcome(one, answer) {
  const made = outcomeInWords(one, answer);
  const moving = Object.entries(one.outcome).filter(([, { kind }]) => kind === "moves");
  if (moving.length) made.querySelector(".says").before(numbers(one, moving));
  return made;
}
