"use strict";
// The page around training.js: it starts runs in a worker, draws them and judges them.
// Until stage 1 has been trained, its recorded losses are drawn.
const by = (id) => document.getElementById(id);
const data = JSON.parse(by("data").textContent);
const switches = [...document.querySelectorAll(".play [role=switch]")];
const FLAGS = { batch_size: 64, lr: 0.1, hidden: 128, epochs: 3 };  // the script's own
let dataset;  // { train, test }, each { images: rows in [0, 1], labels }
let settings;
let reference = { steps: [], rows: [] };  // stage 1's run, which the worker posts
let run;  // stage 4's
let figure;  // one step, slowed down

// The address lists differences from stage 4: #ranks=4&off=set_epoch,all_reduce
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const off = (given.get("off") || "").split(",");
  for (const one of switches) one.checked = off.includes(one.id);
  by("ranks").value = given.get("ranks") || 2;
  if (!by("ranks").value) by("ranks").value = 2;  // no such choice
}

function readControls() {
  const off = switches.filter((one) => one.checked).map((one) => one.id);
  settings = { ...FLAGS, off, ranks: Number(by("ranks").value) };
  const parts = off.length ? [`off=${off}`] : [];
  if (settings.ranks !== 2) parts.push(`ranks=${settings.ranks}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
  by("init_sync").disabled = off.includes("ddp");
}

// Train stage 4, and stage 1 unless it has been trained.
async function start() {
  figure.stop();
  readControls();
  run = { steps: [], rows: [] };
  by("curve").dataset.done = false;
  drawSoon();
  await train(settings, run);
  figure.load(run.steps, ...tellingMoment(settings.off, run.steps));
  if (reference.rows.length === FLAGS.epochs) return;
  reference = { steps: [], rows: [] };
  await train({ ...FLAGS, ranks: 1, off: [] }, reference);
}

function train(flags, into) {  // a promise, never resolved if another run begins first
  return new Promise((resolve) => {
    trainInWorker(flags, dataset, (posted) => {
      (posted.row ? into.rows : into.steps).push(posted.row || posted);
      if (into.rows.length === flags.epochs) resolve();
      drawSoon();
    });
  });
}

// The mean over all ranks, as the script prints it, or rank 0's without the all-reduce.
function lossOf(step) {
  if (settings.off.includes("all_reduce")) return step.losses[0];
  return step.losses.reduce((sum, loss) => sum + loss) / step.losses.length;
}

// The verdict of `make compare`, without causes that no browser has.
function judge(rows, others) {
  const number = (value, places) => value.toExponential(places).replace(/(?<=[+-])(?=\d$)/, "0");  // 1e-08
  const errors = rows.map(([loss], n) => distance(loss, others[n][0]));
  const error = Math.max(...errors);
  if (!Number.isFinite(error)) return "DIFFERENT: a loss is not a number";
  if (error === 0) return "equal";
  if (errors.some((off, n) => off > allowed(n + 1)))
    return `DIFFERENT: a loss is off by ${number(error, 1)}`;
  return `equal (${number(error, 0)})`;
}

let asked;
function drawSoon() {
  asked ||= setTimeout(draw, 100);  // later messages are drawn with it
}

function draw() {
  asked = 0;
  const known = run.rows.slice(0, reference.rows.length);
  const verdict = known.length ? judge(known, reference.rows) : "";
  const isDone = known.length === FLAGS.epochs, isDifferent = verdict.startsWith("DIFFERENT");
  const [now, { rows }] = run.rows.length < FLAGS.epochs ? ["", run] : ["one process, ", reference];
  by("curve").dataset.done = isDone;
  by("verdict").innerHTML = isDone || isDifferent ? verdict.replace(/\S+e-\S+/, "<span>$&</span>")
    : `Training ${now}epoch ${rows.length + 1} of ${FLAGS.epochs} …`;
  by("verdict").className = isDifferent ? "different" : isDone ? "equal" : "";
  by("verdict").previousElementSibling.hidden = !by("verdict").className;
  drawLosses();
  if (run.steps.length && figure.steps !== run.steps) figure.load(run.steps, 1);
}

function drawLosses() {
  const right = data.rows.map((row, n) => reference.rows[n] || row);
  const marks = marksOf(run.rows, right), name = `${settings.ranks} rank${settings.ranks > 1 ? "s" : ""}`;
  const kind = marks.some(({ row, off }) => !(off <= allowed(row))) ? "wrong" : "same";
  const points = ({ steps }, loss) => steps.map((step) => [step.at, loss(step)]);
  const ghost = reference.rows.length === FLAGS.epochs ? points(reference, (step) => step.losses[0])
    : data.steps.map((loss, n) => [(n + 1) * FLAGS.epochs / data.steps.length, loss]);
  const lines = [{ kind: "ghost", points: ghost }, { kind, points: points(run, lossOf) }];
  const isSmall = matchMedia("(max-width: 48rem)").matches;
  const high = innerHeight < 850 ? 140 : 190;  // the distances are on the same screen
  const [height, low, left] = isSmall ? [75, 60, 72] : [high, 96, 72];
  const box = { width: by("charts").clientWidth, height, left, isSmall };
  by("charts").innerHTML = lossChart(box, EPOCHS, FLAGS.epochs, lines,
    legend(box, [["ghost", "one process"], [kind, name]])) +
    distanceChart({ ...box, height: low }, EPOCHS, FLAGS.epochs, marks);
  by("table").replaceChildren(lossTable([["one process", right], [name, run.rows]], data.rows));
}

async function begin() {
  dataset = await unpackDigits(DIGITS);  // before anything can start a run
  figure = new StepFigure(by("figure"), dataset.train);
  by("lines").onchange = start;
  addEventListener("hashchange", () => {
    readAddress();
    start();
    by("curve").scrollIntoView({ block: "nearest" });
  });
  readAddress();
  start();
  new ResizeObserver(drawSoon).observe(by("lines"));
}
begin();
