// Sphinx's searchtools.js reads Scorer. TEXTS has each page's paragraphs, with the ids and
// titles of their sections.
const query = new URLSearchParams(location.search).get("q") || "";
const found = query.toLowerCase().match(/[\w.]+/g) || [];
const hits = text => found.reduce((sum, word) => sum + text.toLowerCase().split(word).length - 1, 0);
const wordsIn = text => found.filter(word => text.toLowerCase().includes(word));
const FIRST = /^docs.SYMPTOMS|^(0|beyond|transformer).*README/;
const KINDS = [[/^notebooks/, "notebook"], [/^exercises/, "exercise"], [/^onecurve/, "inspector"],
  [/DETAILS/, "details"], [/^tools.site/, "try it"], [/^(0|beyond|transformer).*README/, "lesson"]];
var Scorer = {  // a symptom with all words, pages with all, then lessons and frequent words
  score: ([page, , , , score]) => {
    const texts = (TEXTS[page] || []).map(([text]) => text), whole = texts.join();
    const hasAll = text => wordsIn(text).length === found.length;
    const isSymptom = page === "docs/SYMPTOMS" && texts.some(hasAll);
    return score + Math.min(10, hits(whole)) * 2 + (hits(whole) && FIRST.test(page) ? 10 : 0) +
      (hasAll(whole) ? 100 : 0) + (isSymptom ? 1000 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
new MutationObserver(() => {  // show what the page says about the words, and where
  const summary = document.querySelector(".search-summary");
  const count = document.querySelectorAll("#search-results li").length;
  if (summary?.textContent.startsWith("Search f"))
    summary.textContent = `${count} page${count > 1 ? "s" : ""} for ${query}`;
  for (const link of document.querySelectorAll("#search-results li > a:only-child")) {
    const [name] = link.getAttribute("href").split(".html");
    const worth = ([text]) => wordsIn(text).length * 1000 + hits(text);
    const [text, id, title] = (TEXTS[name] || [["", "", ""]]).reduce((best, one) =>
      worth(one) > worth(best) ? one : best);
    const [, kind] = KINDS.find(([pattern]) => pattern.test(name)) || ["", "reference"];
    const at = text.toLowerCase().indexOf(wordsIn(text)[0]);
    const start = at > 60 ? text.indexOf(" ", at - 60) : 0;
    const end = text[start + 200] ? text.lastIndexOf(" ", start + 200) : text.length;
    const shown = make("p", (start ? "…" : "") + text.slice(start, end) + (text[end] ? " …" : ""));
    for (const word of found) _highlightText(shown, word, "found");
    const section = make("a", title);
    section.href = `${name}.html#${id}`;
    link.after(make("small", kind), shown, ...(at < 0 ? [] : [section]));
  }
}).observe(document.body, { childList: true, subtree: true });
