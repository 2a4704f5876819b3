// The search's worker: the theme's own, asked in other words. The theme takes each word of a query for the start of one
// and joins them by "or". Here a whole word counts more than one that it begins, words beside each other are also taken
// for one name ("router logits"), and words without a space between them ("mlp.c_proj", "qk-norm") find only what has
// them all. Where nothing has, or where the query has the theme's own operators, it goes on as it was typed. The theme's
// worker is named in this one's address, as ?theme=.
const [SETUP, QUERY] = [0, 2] // the theme's kinds of messages
const WHOLE = 20 // how much more a whole word counts
const OPERATORS = /["+~^*:]|(^|\s)-/

let answer // what the theme's worker answered last
let handle // takes a message to the theme's worker
let separator

const [listen, post] = [addEventListener.bind(self), postMessage.bind(self)]
self.addEventListener = (type, listener) => {
  if (type === "message") handle = listener
  else listen(type, listener)
}
self.postMessage = message => { answer = message }
importScripts(new URL(location).searchParams.get("theme"))

// The queries to try, one after the other until one finds something, and the name that the first one guesses.
function wordings(query) {
  if (OPERATORS.test(query)) return { tried: [query] }
  const words = [], asked = []
  for (const part of query.trim().split(/\s+/)) {
    const found = part.split(separator).filter(Boolean)
    words.push(...found)
    // A number is a block's, or a part of a checkpoint's name; a stop word is in no index.
    const needed = word => found.length > 1 && /\D/.test(word) && lunr.stopWordFilter(word)
    asked.push(...found.map(word => needed(word) ? `+${word}*` : word))
  }
  const guess = words.length > 1 && !query.includes(".") ? words.join("_") : undefined
  const whole = words.map(word => `${word}^${WHOLE}`)
  if (guess) whole.push(`${guess}^${WHOLE * words.length}`)
  // The last wording is for an index of the theme's that fails on the start of a word.
  return { tried: [[...whole, ...asked].join(" "), query, whole.join(" ")], guess }
}

listen("message", async event => {
  const { type, data } = event.data
  if (type === SETUP) separator = new RegExp(data.config.separator)
  const { tried, guess } = type === QUERY ? wordings(data) : { tried: [data] }
  for (const wording of tried) {
    await handle({ data: { type, data: wording } })
    if (answer.data?.items?.length !== 0) break
  }
  // A guess that a page does not have is no word that the page lacks.
  if (guess) for (const item of answer.data.items.flat()) delete item.terms[guess.toLowerCase()]
  post(answer)
})
