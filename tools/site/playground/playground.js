"use strict";
// The page around training.js: it starts runs in a worker, draws them and judges them.
const by = (id) => document.getElementById(id);
const data = JSON.parse(by("data").textContent);
const controls = by("settings").elements;
const switches = [...document.querySelectorAll(".play [role=switch]")];
const FLAGS = { ranks: 2, batch_size: 64, lr: 0.1, hidden: 128, epochs: 3 };
const TESTED = 1000;
const references = {};  // flags -> the run of stage 1 with them

let dataset;  // { train, test }, each { images: rows in [0, 1], labels }
let settings;
let reference;  // stage 1's run, and stage 4's: { steps, rows }, what main() has posted
let run;
let figure;  // one step, slowed down

// The address has what differs from stage 4: #ranks=4&off=set_epoch,all_reduce
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const off = (given.get("off") || "").split(",");
  for (const one of switches) one.checked = off.includes(one.id);
  for (const name of Object.keys(FLAGS)) {
    controls[name].value = given.get(name) || FLAGS[name];
    if (!controls[name].value) controls[name].value = FLAGS[name];  // no such choice
  }
}

function readControls() {
  const off = switches.filter((one) => one.checked).map((one) => one.id);
  settings = { off };
  const parts = off.length ? [`off=${off}`] : [];
  for (const name of Object.keys(FLAGS)) {
    settings[name] = Number(controls[name].value);
    if (settings[name] !== FLAGS[name]) parts.push(`${name}=${settings[name]}`);
  }
  history.replaceState(null, "", `#${parts.join("&")}`);
  by("init_sync").disabled = off.includes("ddp");
}

// Stage 1 trains first, unless it has before with these flags; then stage 4.
async function start() {
  figure.stop();
  readControls();
  const key = JSON.stringify({ ...settings, ranks: 1, off: [] });
  reference = references[key] || { steps: [], rows: [] };
  run = { steps: [], rows: [] };
  by("curve").dataset.done = false;
  drawSoon();
  if (!references[key]) await train(JSON.parse(key), reference);
  references[key] = reference;
  await train(settings, run);
  figure.load(run.steps, tellingStep(settings.off, run.steps));
}

function train(flags, into) {  // a promise, never kept if another run begins before
  return new Promise((resolve) => {
    trainInWorker(flags, dataset, (posted) => {
      (posted.row ? into.rows : into.steps).push(posted.row || posted);
      if (into.rows.length === flags.epochs) resolve();
      drawSoon();
    });
  });
}

// The mean of all ranks, as the script prints it; rank 0's without the all-reduce.
function lossOf(step) {
  if (settings.off.includes("all_reduce")) return step.losses[0];
  return step.losses.reduce((sum, loss) => sum + loss) / step.losses.length;
}

// As `make compare` judges, in its words.
function judge(rows, others) {
  const number = (value, places) =>
    value.toExponential(places).replace(/-(\d)$/, "-0$1").replace(/\+(\d)$/, "+0$1");
  const errors = rows.map(([loss], n) => distance(loss, others[n][0]));
  const images = rows.map(([, correct], n) => Math.abs(correct - others[n][1]));
  const error = Math.max(...errors);
  const many = Math.max(...images);
  if (!rows.every(([loss]) => Number.isFinite(loss)))
    return "DIFFERENT: a loss is not a number";
  if (error === 0 && many === 0) return "equal";
  for (const n of rows.keys()) {
    if (errors[n] > allowed(n + 1))
      return `DIFFERENT: a loss is off by ${number(error, 1)}` +
        (error < data.small ? `; ${data.causes}` : "");
    if (images[n] > data.counts * TESTED)
      return `DIFFERENT: ${many} more or fewer test images are right`;
  }
  return `equal to rounding (${number(error, 0)})`;
}

let asked;
function drawSoon() {
  asked ||= setTimeout(draw, 100);  // and what comes meanwhile is drawn with it
}

function draw() {
  asked = 0;
  const verdict = run.rows.length ? judge(run.rows, reference.rows) : "";
  const done = run.rows.length === settings.epochs;
  by("curve").dataset.done = done;
  const [name, rows] = run.steps.length
    ? [`stage 4 on ${settings.ranks} ranks`, run.rows] : ["stage 1", reference.rows];
  by("progress").textContent = done ? "" : `${name}, epoch ${rows.length + 1}`;
  by("verdict").textContent = verdict || "…";
  by("verdict").className = verdict.startsWith("DIFFERENT") ? "different" : "";
  drawLosses();
  if (run.steps.length && figure.steps !== run.steps) figure.load(run.steps, 1);
}

function drawLosses() {
  const kind = by("verdict").className ? "wrong" : "same";
  const right = reference.rows;
  const steps = ({ steps }, loss) => steps.map((step) => [step.at, loss(step)]);
  const means = right.map(([loss], n) => [n + 0.5, loss]);
  const lines = [
    { kind: "right steps", points: steps(reference, (step) => step.losses[0]) },
    { kind: "right", points: means },
    { kind: `${kind} steps`, points: steps(run, lossOf) },
    epochLine(kind, run.rows, right),
  ];
  const isNarrow = matchMedia("(max-width: 60rem)").matches;
  const width = isNarrow ? by("settings").clientWidth : by("charts").clientWidth / 2;
  by("charts").replaceChildren(chart(lines, [0, settings.epochs], width));
  const ours = { [`stage 4, ${settings.ranks} ranks`]: run.rows };
  by("table").replaceChildren(lossTable("stage 1", right, ours));
}

async function begin() {
  dataset = await unpackDigits(DIGITS);  // before anything can start a run
  figure = new StepFigure(by("figure"), dataset.train);
  by("settings").onchange = start;
  by("lines").onchange = start;
  addEventListener("hashchange", () => {
    readAddress();
    start();
    document.querySelector(".columns").scrollIntoView({ block: "nearest" });
  });
  readAddress();
  start();
  new ResizeObserver(drawSoon).observe(by("settings"));
}
begin();
