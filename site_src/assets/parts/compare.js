// Checkpoints side by side. What is compared is in the address (`?a=llama&b=gemma3_text/tiny`); each checkpoint's column
// is a file beside its page. Columns are joined as probe/render/compare/table.py joins them for the pages made beforehand.
import { letter } from "./naming.js"

const KEYS = ["a", "b", "c", "d"]
const ROLES = { in: "enters", mix: "sequence mixing", feed: "feed-forward", branch: "branch", out: "leaves" }
const VALUE = /<a class="(part [^"]*)"([^>]*href="[^"]*#v-[^"]*" aria-label="([^",]*))/g
const columns = new Map()

export function mount(root) {
  new Comparison(root)
}

class Comparison {
  constructor(root) {
    this.root = root
    this.up = root.dataset.up
    this.selects = KEYS.map(key => root.querySelector(`select[name=${key}]`))
    this.result = root.querySelector(".compare-result")
    this.status = root.querySelector(".compare-status")
    this.only = root.querySelector("input[name=only]")
    for (const select of this.selects.slice(1)) {
      select.append(...[...this.selects[0].querySelectorAll("optgroup")].map(group => group.cloneNode(true)))
    }
    root.querySelector("form").addEventListener("submit", event => event.preventDefault())
    root.querySelector("form").addEventListener("change", () => this.update({}))
    this.only.addEventListener("change", () => this.remember())
    this.result.addEventListener("change", event => {
      if (!event.target.matches("[data-shape]")) return
      this.shapes[event.target.dataset.shape] = Number(event.target.value)
      this.draw()
      this.result.querySelector(`[data-shape="${event.target.dataset.shape}"]`).focus()
    })
    this.restore()
  }

  restore() {
    const wanted = new URLSearchParams(location.search)
    const unknown = []
    for (const [at, key] of KEYS.entries()) {
      const page = wanted.get(key)?.replace(/\/$/, "") ?? ""
      this.selects[at].value = page
      if (this.selects[at].value !== page) {
        unknown.push(page)
        this.selects[at].value = ""
      }
    }
    this.only.checked = wanted.has("only")
    this.unknown = unknown
    this.update(Object.fromEntries(KEYS.filter(key => wanted.has(`${key}s`)).map(key => [key, Number(wanted.get(`${key}s`))])))
  }

  // Reads the columns that are chosen and draws them. `shapes`: the shape to draw of each, where it is not the commonest.
  async update(shapes) {
    const chosen = this.selects.map((select, at) => [KEYS[at], select.value]).filter(([, page]) => page)
    const turn = this.turn = (this.turn ?? 0) + 1
    const found = await Promise.all(chosen.map(([, page]) => this.read(page)))
    if (turn !== this.turn) return
    this.columns = found.filter(Boolean)
    this.keys = chosen.filter((_, at) => found[at]).map(([key]) => key)
    this.shapes = this.columns.map((column, at) => column.shapes[shapes[this.keys[at]]] ? shapes[this.keys[at]] : column.shape)
    const failed = [...(this.unknown ?? []), ...chosen.filter((_, at) => !found[at]).map(([, page]) => page)]
    this.unknown = []
    this.status.textContent = failed.length ? `There is no checkpoint ${failed.join(", ")} here; choose another.`
      : this.columns.length === 1 ? "Choose a second one to compare with." : ""
    this.draw()
  }

  async read(page) {
    if (!columns.has(page)) {
      const answer = await fetch(`${this.up}${page}/column.json`).catch(() => null)
      columns.set(page, answer?.ok ? await answer.json() : null)
    }
    return columns.get(page)
  }

  draw() {
    const enough = this.columns.length > 1
    this.root.querySelector(".compare-bar").hidden = !enough
    this.root.querySelector(".compare-pairs").classList.toggle("is-shown", !enough)
    this.result.innerHTML = enough ? table(this.columns, this.shapes).replaceAll('href="@/', `href="${this.up}`) : ""
    letter(this.result)
    for (const [at, name] of [...this.result.querySelectorAll(".shape-name")].entries()) this.choice(at, name)
    document.title = enough ? `${named(this.columns).join(" and ")} · compared` : document.title
    this.remember()
  }

  // Where a checkpoint has blocks of several shapes, the head of its column says which is drawn and takes another.
  choice(at, name) {
    const shapes = this.columns[at].shapes
    if (shapes.length < 2) return
    const select = document.createElement("select")
    select.dataset.shape = at
    select.setAttribute("aria-label", `Block of ${this.columns[at].title} that is drawn`)
    select.append(...shapes.map((shape, index) => new Option(`${shape.label} (${shape.blocks})`, index)))
    select.value = this.shapes[at]
    name.replaceChildren(select)
  }

  remember() {
    const held = this.selects.map((select, at) => [KEYS[at], select.value]).filter(([, page]) => page)
    for (const [at, key] of this.keys.entries()) {
      if (this.shapes[at] !== this.columns[at].shape) held.push([`${key}s`, this.shapes[at]])
    }
    const text = held.map(([key, value]) => `${key}=${value}`)
    if (this.only.checked) text.push("only")
    history.replaceState(history.state, "", location.pathname + (text.length ? `?${text.join("&")}` : "") + location.hash)
  }
}

function named(columns) {
  const titles = columns.map(column => column.title)
  return columns.map(({ title, checkpoint }) =>
    titles.filter(other => other === title).length === 1 ? title : `${title} · ${checkpoint}`)
}

// What a cell is labelled with where columns do not stand side by side.
function shortened(columns) {
  const titles = columns.map(column => column.title)
  return columns.map(({ title, checkpoint }) => titles.filter(other => other === title).length === 1 ? title : checkpoint)
}

function table(columns, shapes) {
  const titles = named(columns)
  const heads = columns.map((column, at) => {
    const shape = column.shapes[shapes[at]]
    return `<th scope="col" role="columnheader"><a href="@/${column.page}/">${escaped(titles[at])}</a><code>${escaped(column.checkpoint)}</code>`
      + `<span class="shape-name">${escaped(shape.label)} <small>${escaped(shape.blocks)}</small></span></th>`
  })
  return `<div class="compare-scroll" tabindex="0" role="region" aria-label="Comparison">
<table class="compare-table of-${columns.length}" role="table" style="--columns: ${columns.length}">
<thead role="rowgroup"><tr role="row"><td></td>${heads.join("")}</tr></thead>
<tbody class="compare-diagram shape is-current" role="rowgroup">
${diagram(columns.map((column, at) => column.shapes[shapes[at]].pieces), shortened(columns))}</tbody>
${facts(columns)}</table>
</div>
`
}

// Rows by role. A piece of several roles stands in all of their rows, and in those that others have in between.
function diagram(drawn, labels) {
  const rows = []
  for (const [index, pieces] of drawn.entries()) {
    let at = 0
    for (const piece of pieces) {
      for (const role of piece.rows) {
        let found = rows.findIndex((row, k) => k >= at && row.role === role)
        if (found < 0) {
          found = at
          rows.splice(at, 0, { role, pieces: [] })
        }
        rows[found].pieces[index] = piece
        at = found + 1
      }
    }
  }
  const values = drawn.map(pieces => new Set(pieces.flatMap(piece => [...piece.svg.matchAll(VALUE)].map(match => match[3]))))
  const marked = svg => svg.replace(VALUE, (whole, kind, rest, name) =>
    values.every(names => names.has(name)) ? whole : `<a class="${kind} is-lacked"${rest}`)
  const covered = drawn.map(() => 0)
  return rows.map((row, at) => {
    const cells = drawn.map((_, index) => {
      if (covered[index] > at) return ""
      const piece = row.pieces[index]
      covered[index] = 1 + (piece ? rows.findLastIndex(other => other.pieces[index] === piece) : at)
      return `<td role="cell" rowspan="${covered[index] - at}" data-of="${escaped(labels[index])}">${piece ? marked(piece.svg) : ""}</td>`
    })
    return `<tr class="row-${row.role}" role="row"><th scope="row" role="rowheader">${ROLES[row.role]}</th>${cells.join("")}</tr>\n`
  }).join("")
}

function facts(columns) {
  const labels = shortened(columns).map(escaped)
  const groups = new Map()
  for (const [index, column] of columns.entries()) {
    for (const group of column.groups) {
      if (!groups.has(group.name)) groups.set(group.name, new Map())
      const rows = groups.get(group.name)
      for (const row of group.rows) rows.set(row.key, Object.assign(rows.get(row.key) ?? {}, { [index]: row }))
    }
  }
  return [...groups].filter(([, rows]) => rows.size).map(([name, rows]) => {
    const made = []
    for (const [key, found] of rows) {
      const cells = columns.map((_, index) => found[index] ?? { html: "—", has: false })
      if ((name === "Quirks" || name === "Values") && !cells.some(cell => cell.has)) continue
      const lacks = new Set(cells.map(cell => cell.has)).size > 1
      const differs = new Set(cells.map(cell => cell.html.replace(/ href="[^"]*"/g, ""))).size > 1
      const texts = cells.map((cell, at) => `<td role="cell" data-of="${labels[at]}"${cell.has ? "" : ' class="not"'}>${cell.html}</td>`)
      made.push([differs, `<tr class="${lacks ? "lacks" : differs ? "differs" : "same"}" role="row"><th scope="row" role="rowheader">${escaped(key).replace(/([._])(?=.)/g, "$1<wbr>")}</th>${texts.join("")}</tr>\n`])
    }
    return `<tbody class="compare-facts" role="rowgroup"><tr class="group" role="row"><th colspan="${columns.length + 1}" scope="rowgroup" role="rowheader"><span class="name">${name} `
      + `<small>${made.filter(([differs]) => differs).length} of ${made.length} differ</small></span>`
      + `${labels.map(label => `<span class="of" aria-hidden="true">${label}</span>`).join("")}</th></tr>\n`
      + `${made.map(([, row]) => row).join("")}</tbody>\n`
  }).join("")
}

function escaped(text) {
  return text.replace(/[&<>"']/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" })[sign])
}
