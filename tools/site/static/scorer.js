// Sphinx's searchtools.js reads Scorer. TEXTS has each page's paragraphs, with the ids and
// titles of their sections.
const query = new URLSearchParams(location.search).get("q") || "";
const found = query.toLowerCase().match(/[\w.]+/g) || [];
const hits = text => found.reduce((sum, word) => sum + text.toLowerCase().split(word).length - 1, 0);
const FIRST = /^docs.SYMPTOMS|^(0|beyond|transformer).*README/;
const KINDS = [[/^notebooks/, "notebook"], [/^exercises/, "exercise"], [/^onecurve/, "inspector"],
  [/DETAILS/, "details"], [/^tools.site/, "try it"], [/^(0|beyond|transformer).*README/, "lesson"]];
var Scorer = {  // symptoms and lessons first, then pages that say the words often
  score: ([page, , , , score]) => {
    const said = hits((TEXTS[page] || []).map(([text]) => text).join());
    return score + Math.min(10, said) * 2 + (said && FIRST.test(page) ? 10 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
new MutationObserver(() => {  // show what the page says about the words, and where
  const summary = document.querySelector(".search-summary");
  const [count] = summary?.textContent.match(/\d+/) || [];
  if (summary?.textContent.startsWith("Search f")) summary.textContent = `${count || 0} pages for ${query}`;
  for (const link of document.querySelectorAll("#search-results li > a:only-child")) {
    const [name] = link.getAttribute("href").split(".html");
    const [text, id, title] = (TEXTS[name] || [["", "", ""]]).reduce((best, one) =>
      hits(one[0]) > hits(best[0]) ? one : best);
    const [, kind] = KINDS.find(([pattern]) => pattern.test(name)) || ["", "reference"];
    const at = text.toLowerCase().indexOf(found[0]);
    const start = at > 60 ? text.indexOf(" ", at - 60) : 0;
    const shown = make("p", (start ? "…" : "") + text.slice(start, start + 200) +
      (text[start + 200] ? "…" : ""));
    for (const word of found) _highlightText(shown, word, "found");
    const section = make("a", title);
    section.href = `${name}.html#${id}`;
    link.after(make("small", kind), shown, ...(at < 0 ? [] : [section]));
  }
}).observe(document.body, { childList: true, subtree: true });
