// Search results of lessons come first. Sphinx's searchtools.js reads this.
var Scorer = {
  score: ([, , , , score, file]) => score + (/^(0|beyond|transformer).*README/.test(file) ? 20 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
