// A table sorted by the column whose head is clicked: numbers by size, everything else by name; again: the other way.
export function mount(table) {
  const body = table.tBodies[0]
  const original = [...body.rows]
  if (original.length < 2) return
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button")
    button.type = "button"
    button.className = "sort"
    button.append(...head.childNodes)
    head.append(button)
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending"
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort")
      head.setAttribute("aria-sort", down ? "descending" : "ascending")
      const key = row => read(row.cells[column])
      const rows = [...original].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1))
      body.append(...rows)
    })
  }
}

function read(cell) {
  const text = (cell.querySelector("a") ?? cell).textContent.trim()
  const number = Number.parseFloat(text.replaceAll(",", ""))
  return Number.isNaN(number) ? text.toLowerCase() : number
}

// Numbers before words, and an empty cell last.
function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : (a === "") - (b === "") || a.localeCompare(b)
  return typeof a === "number" ? -1 : 1
}
