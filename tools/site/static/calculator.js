"use strict";
// SCALING's calculator: Python has computed all choices, and this shows the current one.
const calculator = document.querySelector(".calculator");
const { memory, plans } = JSON.parse(calculator.querySelector("script").textContent);

function fitsOf(state, [all, some]) {
  return state + all < memory ? "yes" : state + some < memory ? "checkpointed" : "no";
}

// Bars of seconds share one scale, `longest`. Half a bar of memory is a full GPU.
function planRow([cut, [state, best, worst]], { computing, kept }, longest) {
  const [all, some] = kept, fits = fitsOf(state, kept);
  const bar = (kind, words, parts, whole) => `<div class="measure"><div class="bar ${kind}">${
    parts.map(([name, size]) => `<i class="${name}" style="width: ${100 * size / whole}%"></i>`).join("")
  }</div><span>${words}</span></div>`;
  const steps = bar("seconds", `${best.toPrecision(3)} to ${worst.toPrecision(3)}`,
    [["state", computing], ["may", worst - best], ["waits", best - computing]], longest);
  const sizes = [some, all].map(one => Math.round((state + one) / 1e9)).join(" or ");
  const isFull = { yes: "", checkpointed: "<small>fits checkpointed</small>", no: "<small>doesn't fit</small>" };
  const filled = bar("whole", `${sizes} ${isFull[fits]}`,
    [["held", state], ["some", some], ["all", all - some]], 2 * memory);
  return `<tr class="fits-${fits}"><th scope="row">${cut}</th>
    <td>${fits === "no" ? "–" : steps}</td>
    <td>${filled}</td></tr>`;
}

function headline([cut, [, best, worst]], computing) {
  const [least, most] = [worst, best].map(one => Math.round(100 * computing / one));
  return `Fastest that fits: ${cut}. Its GPUs compute ${least} to ${most} % of the time.`;
}

// The cuts that fit come first, the fastest at the top.
function showPlan() {
  const plan = plans[[...new FormData(calculator).values()].join(" | ")];
  const doesFit = ([, [state]]) => fitsOf(state, plan.kept) !== "no";
  const all = Object.entries(plan.cuts);
  const fitting = all.filter(doesFit).sort(([, a], [, b]) => a[2] - b[2]);
  const longest = Math.max(...fitting.map(([, [, , worst]]) => worst));
  const sorted = [...fitting, ...all.filter(one => !doesFit(one))];
  calculator.querySelector("tbody").innerHTML = sorted.map(one =>
    planRow(one, plan, longest)).join("");
  calculator.querySelector("output").textContent = fitting.length
    ? headline(fitting[0], plan.computing) : "Nothing fits. Choose more machines or a smaller model.";
}
calculator.oninput = showPlan;
showPlan();
