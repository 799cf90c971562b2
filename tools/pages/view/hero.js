"use strict";
// The front page's curve: the loss of each step, how far each epoch is off, and the
// digits.

const LAST = 3;  // epochs
const isWide = matchMedia("(min-width: 1280px)");
let isPrinted = false;

// The runs of a switch on each number of ranks, or of the unchanged script.
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

// How far each epoch of a run is off. A missing epoch counts as a right one.
function offsOf({ curve }) {
  const right = DIFFS.right["01_cpu"]["1"];
  const normal = DIFFS.right["04_ddp"]["2"];
  return right.map(([loss], n) => distance((curve[n] || normal[n])[0], loss));
}

function heroLoss(box, run) {
  const x = across(box, LAST), y = lossAt(box, EPOCHS);
  const ghost = pointsOf(runsOf()["2"]), points = pointsOf(run);
  const kind = run.kind === "nothing" ? "same" : "wrong";
  const more = [];
  if (run.kind === "crashes" || run.kind === "hangs") {
    const [at, loss] = points.at(-1) || [0, ghost[0][1]];
    const sign = run.kind === "crashes" ? "M-4-4L4 4M4-4L-4 4" : "M-3-5V5M3-5V5";
    more.push(`<g class="end" transform="translate(${x(at)} ${y(loss)}) scale(${
      box.isSmall ? .6 : 1})"><circle r="10"/><path d="${sign}"/></g>`);
  }
  const second = [kind, kind === "same" ? "2 ranks" : "with the mistake"];
  more.push(...legend(box, [["ghost", "one process"], ...(points.length ? [second] : [])]));
  return lossChart(box, EPOCHS, LAST,
    [{ kind: "ghost", points: ghost }, { kind, points }], more);
}

// ---- what is shown

function fillHero(hero, one) {
  const runs = runsOf(one), run = runs["2"];
  const title = one ? (isPrinted ? `${one.title}: ` : "") + verdictOf(one, run.kind) : "One curve";
  const isEarly = run.kind === "crashes" || run.kind === "hangs";
  const where = run.steps.length ? `in epoch ${run.curve.length + 1}` : "before epoch 1";
  const head = hero.querySelector(".title");
  head.innerHTML = isEarly ? `${title} ${where}` : title;
  head.className = `title ${run.kind}`;
  if (!place.off.size && isWide.matches) hero.querySelector(".panel .told").innerHTML = `<p>2 and 4
    ranks print the same losses as one process. Green: rounding. Red: a bug.<br>What a switch does is explained here.</p>`;
  const charts = element("div", "charts");
  const right = DIFFS.right["01_cpu"]["1"];
  const curves = Object.entries(runs).map(([ranks, { curve }]) => [`${ranks} ranks`, curve]);
  hero.querySelector(".figure").replaceChildren(charts,
    lossTable([["one process", right], ...curves], right, EPOCHS, false));
  drawHero(charts, run);
}

function drawHero(place, run) {
  const isSmall = innerWidth <= 700 && !isPrinted;
  const isStacked = isWide.matches || isPrinted || isSmall;
  const all = isPrinted ? 688 : place.parentElement.clientWidth;
  const width = isStacked ? all : (all - 32) / 2;  // or next to each other
  const [left, ...heights] = isSmall ? [36, 74, 52] : isStacked ? [72, 174, 84] : [72, 144, 84];
  const boxes = heights.map(height => ({ width, height, left, isSmall }));
  const normal = offsOf(runsOf()["2"]);
  const marks = offsOf(run).map((off, n) => ({ row: n + 1, normal: normal[n],
    off: n < run.curve.length ? off : null }));
  place.innerHTML = heroLoss(boxes[0], run) + distanceChart(boxes[1], EPOCHS, LAST, marks);
}

// In print the charts are large, no matter how narrow the window is, and show a mistake.
function showOnPaper(isStarting) {
  const first = DIFFS.switches[hero?.querySelector(".first input").value];
  isPrinted = isStarting;
  place = parseAddress();
  if (first && isPrinted && !place.off.size) place = { pair: first.stage, off: new Set([first.name]) };
  update();
}
addEventListener("beforeprint", () => showOnPaper(true));
addEventListener("afterprint", () => showOnPaper(false));
