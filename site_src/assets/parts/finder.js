// The index: finds families, values, modules and quirks while one types, filters and sorts the cards, and keeps all of
// it in the address. The facts come from index.json, which is fetched on the first sign of a search.
const SHOWN = 8
const MORE = 20
const SIDES = { in: "input of", out: "output of", op: "inside" }

export function mount(root) {
  new Finder(root)
}

class Finder {
  constructor(root) {
    this.root = root
    this.query = root.querySelector("input[type=search]")
    this.order = root.querySelector("select")
    this.hits = root.querySelector(".hits")
    this.list = root.querySelector(".family-cards")
    this.cards = [...this.list.querySelectorAll("[data-family]")].map(element => ({ element, ...facts(element) }))
    this.facets = [...root.querySelectorAll("[data-facet]")]
    this.count = root.querySelector("[data-count]")
    this.index = null
    this.most = SHOWN
    this.listen()
    this.restore()
    root.dataset.mounted = ""
  }

  listen() {
    this.query.addEventListener("focus", () => this.load(), { once: true })
    this.query.addEventListener("input", () => {
      this.most = SHOWN
      this.update()
    })
    this.order.addEventListener("change", () => this.update())
    this.root.addEventListener("change", event => { if (event.target.matches("[type=checkbox]")) this.update() })
    this.root.addEventListener("click", event => {
      const drop = event.target.closest("[data-drop]")
      if (drop) this.drop(drop.dataset.drop)
      if (event.target.closest("[data-clear]")) this.clear()
      const fold = event.target.closest(".facets-fold")
      if (fold) fold.setAttribute("aria-expanded", String(fold.ariaExpanded !== "true"))
    })
    this.root.addEventListener("keydown", event => this.walk(event))
  }

  // The address holds the query, the order, and what is chosen in each filter. `q` is the theme's own search.
  restore() {
    const wanted = new URLSearchParams(location.search)
    this.query.value = wanted.get("find") ?? ""
    this.order.value = wanted.get("sort") ?? this.order.options[0].value
    if (!this.order.value) this.order.selectedIndex = 0
    for (const box of this.root.querySelectorAll("[data-facet] input")) {
      const group = box.closest("[data-facet]")
      box.checked = (wanted.get(group.dataset.facet) ?? "").split(",").includes(box.value)
      if (box.checked) group.closest("details").open = true
    }
    this.update()
    if (this.query.value) this.load()
    else uncover()
  }

  remember() {
    clearTimeout(this.timer)
    const page = location.pathname
    this.timer = setTimeout(() => {
      if (!this.root.isConnected || location.pathname !== page) return // on the way to another page
      const held = []
      if (this.query.value.trim()) held.push(`find=${encodeURIComponent(this.query.value.trim())}`)
      if (this.order.selectedIndex) held.push(`sort=${this.order.value}`)
      for (const [name, keys] of this.chosen) held.push(`${name}=${keys.map(encodeURIComponent).join(",")}`)
      const address = location.pathname + (held.length ? `?${held.join("&")}` : "") + location.hash
      if (address !== location.pathname + location.search + location.hash) history.replaceState(history.state, "", address)
    }, 150)
  }

  async load() {
    if (this.loading) return
    this.loading = true
    try {
      const answer = await fetch(this.root.dataset.index)
      this.index = prepare(await answer.json())
      this.root.dataset.ready = ""
      this.update()
    } finally {
      uncover()
    }
  }

  get chosen() {
    return this.facets
      .map(group => [group.dataset.facet, [...group.querySelectorAll(":checked")].map(box => box.value)])
      .filter(([, keys]) => keys.length)
  }

  update() {
    const terms = this.query.value.toLowerCase().split(/\s+/).filter(Boolean).map(forms)
    const chosen = this.chosen
    const every = new Set(this.facets.filter(group => "every" in group.dataset).map(group => group.dataset.facet))
    const found = terms.length && this.index ? search(this.index, terms, this.most) : null // all, until the index is there
    let shown = 0
    for (const card of this.cards) {
      const fits = (!found || found.families.has(card.family) || matches(card.text, terms))
        && chosen.every(([name, keys]) => keys[every.has(name) ? "every" : "some"](key => card[name]?.has(key)))
      if (card.element.hidden === fits) card.element.hidden = !fits
      shown += fits
    }
    this.sort()
    this.tell(shown, chosen)
    this.show(found?.hits ?? [], found?.total ?? 0)
    this.remember()
  }

  sort() {
    const by = this.order.value
    if (this.sorted === by) return
    const value = card => card.element.dataset[`by${by[0].toUpperCase()}${by.slice(1)}`]
    const first = this.sorted === undefined && by === "title"
    this.sorted = by
    if (first) return
    this.cards.sort((a, b) => (by === "title" ? 0 : value(b) - value(a)) || a.title.localeCompare(b.title))
    this.list.append(...this.cards.map(card => card.element))
  }

  tell(shown, chosen) {
    const all = this.cards.length
    this.count.textContent = shown === all ? `${all} families` : `${shown} of ${all} families`
    const active = chosen.reduce((sum, [, keys]) => sum + keys.length, 0)
    this.root.querySelector("[data-active]").textContent = active ? `(${active})` : ""
    this.root.querySelector(".finder-none").hidden = shown > 0 || all === 0
    this.root.querySelector("[data-chosen]").replaceChildren(...chosen.flatMap(([name, keys]) => keys.map(key => {
      const button = element("button", "chosen", this.label(name, key))
      button.type = "button"
      button.dataset.drop = `${name} ${key}`
      button.setAttribute("aria-label", `Remove the filter ${button.textContent}`)
      return button
    })))
  }

  box(name, key) {
    return this.root.querySelector(`[data-facet="${name}"] input[value="${CSS.escape(key)}"]`)
  }

  label(name, key) {
    return this.box(name, key).nextElementSibling.textContent
  }

  drop(chosen) {
    this.box(...chosen.split(" ")).checked = false
    this.update()
  }

  clear() {
    this.query.value = ""
    this.most = SHOWN
    for (const box of this.root.querySelectorAll("[data-facet] :checked")) box.checked = false
    this.update()
    this.query.focus()
  }

  show(hits, total) {
    this.hits.hidden = !hits.length
    const items = hits.map(hit => {
      const item = element("li")
      const link = element("a", "hit")
      link.href = hit.url
      link.append(element("span", "hit-kind", hit.kind), element(hit.plain ? "b" : "code", "hit-name", hit.name),
        element("span", "hit-detail", hit.detail))
      item.append(link)
      return item
    })
    if (total > hits.length) items.push(this.further(total - hits.length))
    this.hits.replaceChildren(...items)
  }

  further(left) {
    const item = element("li")
    const button = element("button", "more", left > MORE ? `Show ${MORE} more of ${left}` : `Show ${left} more`)
    button.type = "button"
    button.addEventListener("click", () => {
      const before = this.hits.querySelectorAll("a").length
      this.most += MORE
      this.update()
      this.hits.querySelectorAll("a")[before]?.focus()
    })
    item.append(button)
    return item
  }

  // Enter opens what was found first; arrows walk from the field through what was found.
  walk(event) {
    const links = [...this.hits.querySelectorAll("a")]
    const at = links.indexOf(document.activeElement)
    const inside = event.target === this.query || at >= 0
    if (event.key === "Escape" && inside) {
      if (at >= 0) this.query.focus()
      else this.clear()
    } else if (event.key === "Enter" && event.target === this.query) {
      (links[0] ?? this.list.querySelector("[data-family]:not([hidden]) a"))?.click()
    } else if (inside && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const next = at + (event.key === "ArrowDown" ? 1 : -1)
      if (next >= links.length) return
      const target = next < 0 ? this.query : links[next]
      target.focus()
    } else return
    event.preventDefault()
  }
}

// A page whose address holds a search is covered until what was searched for is there, so that nothing moves.
function uncover() {
  document.documentElement.classList.remove("finding")
}

function facts(card) {
  const sets = {}
  for (const [name, keys] of Object.entries(card.dataset)) if (!name.startsWith("by")) sets[name] = new Set(keys.split(" "))
  const title = card.querySelector("h3").textContent
  return { ...sets, family: card.dataset.family, title, text: `${card.dataset.family} ${title}`.toLowerCase() }
}

// A term as typed, and with the numbers of blocks as the index writes them: [i] in a host, {i} in a module's path.
function forms(term) {
  const general = term.replace(/\.\d+(?=\.|$)/g, ".{i}").replace(/\[\d+\]/g, "[i]")
  return [...new Set([term, general, general.replace(/\[i\]/g, ".{i}")])]
}

function matches(text, terms) {
  return terms.every(term => term.some(form => text.includes(form)))
}

// A path with a list inside a block, {j}, as a path is looked for and printed: all numbers are {i}. Else nothing.
function lists(path) {
  return path.includes("{j}") ? path.replaceAll("{j}", "{i}") : ""
}

// Paths, and what is left of each without its first parts: who finds the whole path finds these.
function endings(paths) {
  const found = new Set()
  for (const path of paths) {
    found.add(path)
    for (let at = path.indexOf("."); at >= 0; at = path.indexOf(".", at + 1)) found.add(path.slice(at + 1))
  }
  return found
}

// Everything that can be found. Families share most of their rows' texts, and each text is looked at once.
function prepare(index) {
  const entries = new Map()
  const numbers = new Map(index.families.map((family, number) => [family.family, number]))
  const add = (family, kind, name, detail, url, more, rank) => {
    const text = `${name} ${more}`.toLowerCase()
    const id = `${rank} ${text}`
    if (!entries.has(id)) entries.set(id, { text, key: name.toLowerCase(), rank, families: [], rows: [] })
    const entry = entries.get(id)
    if (family) entry.families.push(numbers.get(family))
    entry.rows.push({ kind, name, detail, url, plain: kind === "family" || kind === "quirk" })
  }
  const count = topic => `on ${topic.families} ${topic.families === 1 ? "family" : "families"}`
  for (const topic of index.values) add(null, "value", topic.name, count(topic), topic.url, [topic.label, ...topic.also].join(" "), 1)
  for (const topic of index.quirks) add(null, "quirk", topic.label, count(topic), topic.url, topic.name, 1)
  const also = new Map(index.values.map(topic => [topic.name, topic.also.join(" ")]))
  for (const family of index.families) {
    const ids = [...family.checkpoints.map(checkpoint => checkpoint.id), ...family.without_record]
    const named = [family.family, ...ids, ...family.classes, ...family.organisations].join(" ")
    add(family.family, "family", family.title, family.family, family.url, named, 0)
    for (const checkpoint of family.checkpoints) {
      if (checkpoint.kind !== "tiny") add(family.family, "checkpoint", checkpoint.id, family.title, checkpoint.url, "", 3)
    }
    for (const value of family.values) {
      const place = value.path === null ? "" : ` · ${SIDES[value.side]} ${value.path || "the model"}`
      add(family.family, "value", value.name, `${family.title} · ${value.host}${place}`, value.url,
        `${value.host}.${value.name} ${value.path ?? ""} ${also.get(value.name)}`, 2)
    }
    const native = [...family.called, ...family.images]
    for (const { path, url } of native) add(family.family, "module", path, family.title, url, lists(path), 4)
    const told = endings(native.map(({ path }) => lists(path) || path))
    for (const path of family.modules) {
      if (!told.has(path)) add(family.family, "module", path, family.title, `${family.url}#printout`, "", 4)
    }
  }
  return { entries: [...entries.values()], names: index.families.map(family => family.family) }
}

// `most`: how many rows are shown at most.
function search(index, terms, most) {
  const has = new Uint8Array(index.names.length)
  const best = []
  let total = 0
  for (const entry of index.entries) {
    if (!matches(entry.text, terms)) continue
    for (const number of entry.families) has[number] = 1
    total += entry.rows.length
    const value = score(entry, terms[0])
    if (best.length === most && value >= best[most - 1][0]) continue
    let at = best.length
    while (at > 0 && best[at - 1][0] > value) at--
    best.splice(at, 0, [value, entry])
    if (best.length > most) best.pop()
  }
  const families = new Set(index.names.filter((_, number) => has[number]))
  return { families, total, hits: inTurns(best.map(([, entry]) => entry.rows), most) }
}

// Some rows of each entry, then some more of each, so that what is shown first stays first when more is asked for.
function inTurns(rows, most) {
  const each = Math.max(3, Math.ceil(SHOWN / rows.length))
  const hits = []
  for (let from = 0; hits.length < most && rows.some(mine => mine.length > from); from += each) {
    hits.push(...rows.flatMap(mine => mine.slice(from, from + each)))
  }
  return hits.slice(0, most)
}

// Smaller is better: the name itself, its beginning, a part of it after a dot or a space, anything else.
function score(entry, term) {
  const near = form => {
    if (entry.key === form) return 0
    if (entry.key.startsWith(form)) return 10
    const at = entry.text.indexOf(form)
    if (at < 0) return 40
    const before = at === 0 || ". _-/".includes(entry.text[at - 1])
    const after = at + form.length
    const whole = after === entry.text.length || ". ".includes(entry.text[after])
    return before ? (whole ? 12 : 20) : 30
  }
  return Math.min(...term.map(near)) + entry.rank
}

function element(tag, name, text) {
  const made = document.createElement(tag)
  if (name) made.className = name
  if (text !== undefined) made.textContent = text
  return made
}
