// Sphinx's searchtools.js reads Scorer. TEXTS has each page's paragraphs.
const query = new URLSearchParams(location.search).get("q") || "";
const found = query.toLowerCase().match(/[\w.]+/g) || [];
const hits = text => found.reduce((sum, word) => sum + text.toLowerCase().split(word).length - 1, 0);
var Scorer = {  // lessons first, then pages that say the words often
  score: ([page, , , , score]) => score + Math.min(10, hits(TEXTS[page]?.join() || "")) * 2 +
    (/^(0|beyond|transformer).*README/.test(page) && hits(TEXTS[page]?.join() || "") ? 10 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
new MutationObserver(() => {  // show what the page says about the words
  const summary = document.querySelector(".search-summary");
  const [count] = summary?.textContent.match(/\d+/) || [];
  if (summary?.textContent.startsWith("Search f")) summary.textContent = `${count || 0} pages for ${query}`;
  for (const link of document.querySelectorAll("#search-results li > a:only-child")) {
    const name = link.getAttribute("href").replace(/\.html.*/, "");
    const text = (TEXTS[name] || [""]).reduce((best, one) => hits(one) > hits(best) ? one : best);
    const at = text.toLowerCase().indexOf(found[0]);
    const start = at > 60 ? text.indexOf(" ", at - 60) : 0;
    const shown = document.createElement("p");
    shown.textContent = (start ? "…" : "") + text.slice(start, start + 200) + (text[start + 200] ? "…" : "");
    for (const word of found) _highlightText(shown, word, "found");
    link.after(shown);
  }
}).observe(document.body, { childList: true, subtree: true });
