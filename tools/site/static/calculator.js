"use strict";
// SCALING's calculator: Python has computed all choices, and this shows the current one.
const calculator = document.querySelector(".calculator");
const { memory, plans } = JSON.parse(calculator.querySelector("script").textContent);

function fitsOf(state, [all, some]) {
  return state + all < memory ? "yes" : state + some < memory ? "checkpointed" : "no";
}

// Bars longer than `most` seconds or than one and a half times a GPU's memory are cut.
function planRow([cut, [state, best, worst]], { computing, kept }, most) {
  const [all, some] = kept, fits = fitsOf(state, kept);
  const bar = (kind, words, total, parts, whole) => `<div class="measure"><div class="bar ${kind} ${
    total > whole ? "cut" : ""}">${parts.map(([name, size]) => `<i class="${name}" style="width: ${100 * size / whole}%"></i>`).join("")
  }</div><span>${words}</span></div>`;
  const steps = bar("", `${best.toPrecision(3)} to ${worst.toPrecision(3)}`, worst,
    [["state", computing], ["may", worst - best], ["waits", best - computing]], most);
  const sizes = [some, all].map(one => `<span class="${state + one < memory ? "" : "fits-no"}">${
    Math.round((state + one) / 1e9)}</span>`).join(" / ");
  const filled = bar("whole", sizes, state + all,
    [["held", state], ["some", some], ["all", all - some]], 1.5 * memory);
  return `<tr class="fits-${fits}"><th scope="row">${cut}</th>
    <td>${fits === "no" ? "doesn't fit" : steps}</td><td>${filled}</td></tr>`;
}

function headline([cut, [, best, worst]], computing) {
  const [least, most] = [worst, best].map(one => Math.round(100 * computing / one));
  return `Fastest that fits: ${cut}. Its GPUs compute ${least}% to ${most}% of the time.`;
}

// The cuts that fit come first, the fastest at the top.
function showPlan() {
  const plan = plans[[...new FormData(calculator).values()].join(" | ")];
  const doesFit = ([, [state]]) => fitsOf(state, plan.kept) !== "no";
  const all = Object.entries(plan.cuts);
  const fitting = all.filter(doesFit).sort(([, a], [, b]) => a[2] - b[2]);
  const [fastest = 0, ...others] = fitting.map(([, [, , worst]]) => worst);
  const most = Math.min(2 * fastest, Math.max(fastest, ...others));
  const sorted = [...fitting, ...all.filter(one => !doesFit(one))];
  calculator.querySelector("tbody").innerHTML = sorted.map(one =>
    planRow(one, plan, most)).join("");
  calculator.querySelector("output").textContent = fitting.length
    ? headline(fitting[0], plan.computing) : "Nothing fits. Choose more machines or a smaller model.";
}
calculator.oninput = showPlan;
showPlan();
