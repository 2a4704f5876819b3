// The block's figure: the slider picks a block, pointing at a part shows its card, a click pins it.
// A card is a copy of what the page already holds: the row of a value, or the hidden notes on a norm, box or add.
const figures = new Set()
const HASH = /^#(vision-)?block-(\d+)(?:\.([\w-]+))?$/

export function mount(root) {
  const figure = new BlockFigure(root)
  figures.add(figure)
  follow(location.hash)
}

function target(link) {
  return (link.getAttribute("href") ?? link.getAttribute("xlink:href")).slice(1)
}

// Every part that has a card, by the card's id.
function grouped(links) {
  const found = new Map()
  for (const link of links) found.set(target(link), [...(found.get(target(link)) ?? []), link])
  return found
}

function live() {
  for (const figure of figures) if (!figure.root.isConnected) figures.delete(figure)
  return figures
}

function follow(hash) {
  const [, vision, index, card] = HASH.exec(hash) ?? []
  if (index === undefined) return
  for (const figure of live()) {
    if ((figure.root.dataset.name === "vision") !== Boolean(vision)) continue
    figure.go(Number(index))
    if (card) figure.pin(card)
    figure.root.querySelector(".bench").scrollIntoView({ block: "start" })
  }
}

// Before the theme's own navigation, which sets the address without a hashchange.
document.addEventListener("click", event => {
  const link = event.target.closest?.("a.show")
  if (!link || event.metaKey || event.ctrlKey) return
  event.preventDefault()
  event.stopPropagation()
  follow(link.hash)
}, true)
addEventListener("hashchange", event => follow(new URL(event.newURL).hash))
addEventListener("keydown", event => {
  if (event.key === "Escape") for (const figure of live()) figure.release()
})

class BlockFigure {
  constructor(root) {
    this.root = root
    this.pane = root.querySelector("[data-pane]")
    this.card = root.querySelector("[data-card]")
    this.hint = root.querySelector(".pane-empty")
    this.slider = root.querySelector("input[type=range]")
    this.ticks = [...root.querySelectorAll(".ticks i")]
    this.shapes = [...root.querySelectorAll(".shape")]
    this.links = grouped(root.querySelectorAll("a.part"))
    this.marked = []
    this.index = 0
    this.pinned = null
    this.shown = null
    this.listen()
    this.go(Number(this.slider.value))
  }

  listen() {
    const part = event => event.target.closest?.("a.part")
    this.root.addEventListener("pointerover", event => {
      if (event.pointerType !== "touch" && part(event) && !this.pinned) this.show(target(part(event)))
    })
    // A finger focuses before it clicks; a card that opened in between would catch the click.
    let touching = false
    this.root.addEventListener("pointerdown", event => { touching = event.pointerType === "touch" })
    this.root.addEventListener("focusin", event => {
      if (!part(event) || touching) return
      if (!this.pinned) this.show(target(part(event)))
      this.uncover(part(event))
    })
    this.root.addEventListener("pointerleave", event => {
      if (event.pointerType !== "touch" && !this.pinned) this.clear()
    })
    this.root.addEventListener("click", event => {
      if (event.target.closest("[data-close]")) return this.release()
      const link = part(event)
      touching = false
      if (!link || event.metaKey || event.ctrlKey) return
      event.preventDefault()
      event.stopPropagation()
      if (this.pinned === target(link)) this.release()
      else {
        this.pin(target(link))
        this.uncover(link)
      }
    })
    this.root.addEventListener("keydown", event => {
      if (part(event)) this.walk(event, part(event))
    })
    this.slider.addEventListener("input", () => {
      this.go(Number(this.slider.value))
      this.remember()
    })
    for (const link of this.root.querySelectorAll("a.part")) {
      link.setAttribute("role", "button")
      link.setAttribute("aria-pressed", "false")
    }
  }

  get shape() {
    return this.shapes.find(shape => shape.dataset.shape === this.ticks[this.index].dataset.shape)
  }

  go(index) {
    this.index = Math.min(Math.max(index, 0), this.ticks.length - 1)
    const tick = this.ticks[this.index]
    this.slider.value = this.index
    this.slider.setAttribute("aria-valuetext", tick.title)
    this.root.querySelector("[data-index]").textContent = this.index
    this.root.querySelector("[data-which]").textContent = this.shape.dataset.label
    this.root.querySelector(".ticks .is-current")?.classList.remove("is-current")
    tick.classList.add("is-current")
    for (const shape of this.shapes) {
      shape.classList.toggle("is-current", shape === this.shape)
      shape.inert = shape !== this.shape
    }
    this.blockCard()
    if (this.shown) this.show(this.shown)
  }

  // What the pane shows while nothing is pointed at: the block itself.
  blockCard() {
    const caption = this.shape.querySelector("figcaption")
    const list = element("dl", "", "card-facts")
    for (const size of caption.querySelectorAll(".size")) {
      const row = element("div", "", size.className)
      const value = size.querySelector("b").textContent
      row.append(element("dt", size.firstChild.textContent.trim()), element("dd", value))
      list.append(row)
    }
    this.root.querySelector("[data-block-card]").replaceChildren(
      element("p", `block ${this.index}`, "host"), element("h3", this.shape.dataset.label), list)
  }

  show(id) {
    const source = document.getElementById(id)
    if (!source) return
    this.shown = id
    this.card.replaceChildren(...(source.matches("tr") ? this.valueCard(source) : this.partCard(source)))
    const role = [...(this.drawn(id) ?? source).classList].find(name => name.startsWith("r-"))
    this.card.className = `pane-card ${role ?? ""}`
    if (this.pinned === id) {
      const close = element("button", "unpin")
      close.type = "button"
      close.dataset.close = ""
      this.card.prepend(close)
    }
    this.card.hidden = false
    this.hint.hidden = true
    this.pane.classList.add("has-card")
    this.mark()
  }

  valueCard(row) {
    const name = row.querySelector("th code").textContent
    const host = row.closest("table").previousElementSibling.querySelector("code").textContent
    const title = element("h3", name)
    const layout = row.querySelector(".layout").cloneNode(true).childNodes
    const facts = row.querySelector(".card-facts").cloneNode(true)
    const sizes = JSON.parse(this.shape.dataset.sizes)
    for (const dims of facts.querySelectorAll("[data-dims]")) {
      if (!host.includes("layers[i]")) continue
      dims.textContent = `[${dims.dataset.dims.split(" ").map(dim => sizes[dim] ?? dim).join(", ")}]`
      dims.closest("div").querySelector("dt").textContent = `block ${this.index}`
    }
    const out = [element("p", host.replace("[i]", `[${this.index}]`), "host"), title, element("p", "", "layout"),
      element("p", row.querySelector(".description").textContent, "description")]
    out[2].append(...layout)
    const drawn = this.drawn(row.id)
    const missing = host.includes("layers[i]") && (!drawn || drawn.classList.contains("is-absent"))
    if (missing) out[0].append(element("span", `not on block ${this.index}`, "missing"))
    out.push(facts, this.foot(row.id))
    return out
  }

  drawn(id) {
    return (this.links.get(id) ?? []).find(link => this.shape.contains(link))
  }

  partCard(source) {
    return [element("p", source.querySelector(".what").textContent, "host"), source.querySelector("h3").cloneNode(true),
      source.querySelector(".card-facts").cloneNode(true), this.foot(null)]
  }

  foot(row) {
    const foot = element("p", "", "pane-foot")
    if (row) {
      const link = element("a", "row in the table")
      link.href = `#${row}`
      foot.append(link)
    }
    return foot
  }

  // On a small screen the card lies over the bottom of the page: what it is about moves up from behind it.
  uncover(link) {
    if (getComputedStyle(this.pane).position !== "fixed") return
    const hidden = link.getBoundingClientRect().bottom + 12 - this.pane.getBoundingClientRect().top
    if (hidden > 0) scrollBy(0, hidden)
  }

  mark() {
    for (const link of this.marked) {
      link.classList.remove("is-shown")
      link.setAttribute("aria-pressed", "false")
    }
    this.marked = this.links.get(this.shown) ?? []
    for (const link of this.marked) {
      link.classList.add("is-shown")
      link.setAttribute("aria-pressed", String(this.pinned === this.shown))
    }
    this.pane.classList.toggle("is-pinned", Boolean(this.pinned))
  }

  pin(id) {
    this.pinned = id
    this.show(id)
    this.remember()
  }

  release() {
    if (!this.pinned && !this.shown) return
    this.pinned = null
    this.clear()
    this.remember()
  }

  clear() {
    this.shown = null
    this.card.hidden = true
    this.hint.hidden = false
    this.pane.classList.remove("has-card")
    this.mark()
  }

  // Keeps the address shareable: the block, and the pinned part. An address that a link has set meanwhile stands.
  remember() {
    clearTimeout(this.timer)
    const before = location.href
    this.timer = setTimeout(() => {
      if (!this.root.isConnected || location.href !== before) return
      const name = this.root.dataset.name === "vision" ? "vision-block" : "block"
      const hash = this.pinned ? `#${name}-${this.index}.${this.pinned}` : `#${name}-${this.index}`
      history.replaceState(history.state, "", hash)
    }, 120)
  }

  // Arrows go to the nearest part in their direction; Home and End to the first and the last.
  walk(event, from) {
    if (event.key === " ") {
      event.preventDefault()
      return from.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))
    }
    const direction = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key]
    const within = [...(from.closest("svg, .strip")?.querySelectorAll("a.part") ?? [])]
    let next = null
    if (event.key === "Home") next = within[0]
    if (event.key === "End") next = within.at(-1)
    if (direction) next = nearest(from, within, direction)
    if (!next) return
    event.preventDefault()
    next.focus({ preventScroll: false })
  }
}

function nearest(from, among, [dx, dy]) {
  const centre = link => {
    const box = (link.querySelector("rect, circle") ?? link).getBoundingClientRect()
    return link.matches(".box") ? [box.left + 40, box.top + 18] : [box.left + box.width / 2, box.top + box.height / 2]
  }
  const [x, y] = centre(from)
  const found = among.filter(link => link !== from).map(link => {
    const [a, b] = centre(link)
    const ahead = (a - x) * dx + (b - y) * dy
    const aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx)
    return { link, ahead, aside, far: ahead + 2.5 * aside }
  }).filter(each => each.ahead >= 3).sort((one, other) => one.far - other.far)
  return (found.find(each => each.aside <= 2 * each.ahead) ?? found[0])?.link // what lies rather ahead than aside
}

function element(tag, text, name) {
  const made = document.createElement(tag)
  made.textContent = text
  if (name) made.className = name
  return made
}
