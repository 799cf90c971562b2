"use strict";
// SCALING's calculator: Python has computed all choices, and this shows the current one.
const calculator = document.querySelector(".calculator");
const { memory, plans } = JSON.parse(calculator.querySelector("script").textContent);

function fitsOf(state, [all, some]) {
  return state + all < memory ? "yes" : state + some < memory ? "with checkpointing" : "no";
}

function planRow(cut, [state, best, worst], { computing, kept }, isFastest) {
  const [all, some] = kept, fits = fitsOf(state, kept);
  const part = (kind, share) => `<i class="${kind}" style="width: ${100 * share}%"></i>`;
  const filled = (kind, bytes) => part(kind, bytes / memory / 2);  // half a bar is a full GPU
  const percent = seconds => Math.round(100 * computing / seconds);
  const times = fits === "no" ? ["–", "–"] : [`${best.toPrecision(3)} to ${
    worst.toPrecision(3)}`, `<div class="bar">${part("state", computing / worst)}${
    part("may", (worst - best) / worst)}${part("waits", (best - computing) / worst)}</div>
    ${percent(worst)} to ${percent(best)} %`];
  return `<tr class="fits-${fits}${isFastest ? " best" : ""}"><th scope="row">${cut}</th>
    <td data-label="step, s">${times[0]}</td><td data-label="busy">${times[1]}</td>
    <td data-label="memory, GB"><div class="bar whole" data-full="${memory / 1e9}">${filled("state", state)}${filled("some", some)}${
      filled("all", all - some)}</div>${[some, all].map(one =>
      Math.round((state + one) / 1e9)).join(" or ")}</td>
    <td data-label="fits?">${fits}</td></tr>`;
}

// Of the cuts that fit, the one whose GPUs compute most of the time, if any fits.
const fastest = ({ cuts, kept }) => Object.keys(cuts)
  .filter(cut => fitsOf(cuts[cut][0], kept) !== "no").sort((a, b) => cuts[a][2] - cuts[b][2])[0];

function headline({ cuts, computing }, cut) {
  if (!cut) return "Nothing fits. Choose more machines or a smaller model.";
  const [, best, worst] = cuts[cut];
  const [least, most] = [worst, best].map(one => Math.round(100 * computing / one));
  return `Fastest that fits: ${cut}. Its GPUs compute ${least} to ${most} % of the time.`;
}

function showPlan() {
  const plan = plans[[...new FormData(calculator).values()].join(" | ")];
  const first = fastest(plan);
  const rows = Object.entries(plan.cuts).map(([cut, numbers]) =>
    planRow(cut, numbers, plan, cut === first));
  calculator.querySelector("tbody").innerHTML = rows.join("");
  calculator.querySelector("output").textContent = headline(plan, first);
}
calculator.oninput = showPlan;
showPlan();
