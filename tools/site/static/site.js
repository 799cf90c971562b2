"use strict";
// Buttons that copy, a filter for the symptoms, whole words that a search marks.

for (const block of document.querySelectorAll(".highlight pre")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.onclick = async () => {
    const text = block.textContent;  // of a terminal, what one types
    const typed = text.match(/^\$ .*$/gm)?.map(line => line.slice(2)).join("\n");
    await navigator.clipboard.writeText(typed || text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  block.parentElement.append(button);
}

// What scrolls sideways does so by keys, too.
const wide = document.querySelectorAll("article :is(table, .table-wrapper)");
for (const one of wide) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;

if (location.pathname.endsWith("/SYMPTOMS.html")) {
  const rows = [...document.querySelectorAll("article tbody tr")];
  const label = document.createElement("label");
  const input = document.createElement("input");
  label.className = "filter";
  input.type = "search";
  label.append("Only rows with ", input);
  document.querySelector("article section section").before(label);
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  };
}

// Sphinx marks "hang" in "change". Marked is what begins with it, to its end.
function markWholeWords() {
  for (const mark of document.querySelectorAll("span.highlighted:not([data-whole])")) {
    mark.dataset.whole = "";
    const [before, after] = [mark.previousSibling, mark.nextSibling];
    if (/\w$/.test(before?.textContent || "")) {
      mark.replaceWith(mark.textContent);
      continue;
    }
    const rest = /^\w+/.exec(after?.nodeType === Node.TEXT_NODE ? after.data : "");
    if (rest) {
      mark.append(rest[0]);
      after.data = after.data.slice(rest[0].length);
    }
  }
}
const everything = { childList: true, subtree: true };
new MutationObserver(markWholeWords).observe(document.body, everything);

document.querySelector(".menu")?.addEventListener("click", () => {
  document.getElementById("__navigation").click();
  document.querySelector(".sidebar-drawer a").focus();
});
