"use strict";
// Sphinx would mark the words of the last search on any page, also inside code.
localStorage.removeItem("sphinx_highlight_terms");

// What scrolls sideways can be scrolled with the keyboard, too.
const wide = document.querySelectorAll("article :is(table, .table-wrapper, .cell_output, p:has(> img))");
for (const one of wide) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;

const here = document.querySelector(".sidebar-tree .current-page");  // visible from the start
if (here) document.querySelector(".sidebar-scroll").scrollTop += here.getBoundingClientRect().top - 300;
addEventListener("keydown", event => {  // Escape closes the drawers
  const boxes = document.querySelectorAll("#__navigation:checked, #__toc:checked");
  if (event.key === "Escape") for (const box of boxes) box.click();
});
