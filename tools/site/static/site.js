"use strict";
// Sphinx would mark the words of the last search on any page, also inside code.
localStorage.removeItem("sphinx_highlight_terms");

// What scrolls sideways can be scrolled with the keyboard, too.
const wide = document.querySelectorAll("article :is(pre, table, .table-wrapper, .cell_output, p:has(> img))");
for (const one of wide) if (one.scrollWidth > one.clientWidth + 12) {
  one.tabIndex = 0;
  one.classList.add("scrolls");
}

const here = document.querySelector(".sidebar-tree .current-page");  // visible from the start
const rows = [...document.querySelectorAll(".sidebar-tree :is(.caption, .reference)")]
  .filter(one => one.offsetHeight);
const topOf = one => one.getBoundingClientRect().top;
const first = here && rows.findLast(one => topOf(one) <= topOf(here) - 260);  // not cut
const scroll = document.querySelector(".sidebar-scroll");
if (first) scroll.scrollTo({ top: topOf(first) - topOf(scroll) - 16, behavior: "instant" });
addEventListener("keydown", event => {  // Escape closes the drawers
  const boxes = document.querySelectorAll("#__navigation:checked, #__toc:checked");
  if (event.key === "Escape") for (const box of boxes) box.click();
});
