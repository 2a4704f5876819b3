// The names of values on rows and in diagrams: standard, where the Hugging Face implementation has them, or what another
// tool calls them. Rows hold all of them; a diagram's chips hold the other names as data, and are lettered here. The choice
// is one of the whole site and is remembered.
const KEY = "atlas-names"
const SVG = "http://www.w3.org/2000/svg"
const CHIP = 28
const page = document.documentElement

export function mount(root) {
  show()
  root.addEventListener("change", event => {
    page.dataset.names = event.target.value
    try {
      localStorage.setItem(KEY, event.target.value)
    } catch {} // where nothing may be stored, the choice holds until the page is left
    show()
  })
}

function show() {
  const known = document.querySelector(`.naming input[value="${CSS.escape(page.dataset.names ?? "")}"]`)
  if (!known) page.dataset.names = "standard"
  for (const input of document.querySelectorAll(".naming input")) input.checked = input.value === page.dataset.names
  letter(document)
}

// Writes the chosen names on the diagrams within `root`.
export function letter(root) {
  const chosen = page.dataset.names ?? "standard"
  for (const part of root.querySelectorAll("svg a.chip:not(.is-absent), svg a.box")) {
    if ((part.dataset.shown ?? "standard") === chosen) continue
    part.dataset.shown = chosen
    for (const text of part.querySelectorAll(".renamed")) text.remove()
    const name = part.dataset[chosen]
    const chip = part.matches(".chip")
    part.classList.toggle("is-renamed", chosen !== "standard" && (chip || Boolean(name)))
    part.classList.toggle("is-nameless", chosen !== "standard" && chip && !name)
    if (chosen === "standard" || !chip && !name) continue
    if (chip) lines(part, name ?? `${part.querySelector("text").textContent}|–`)
    else title(part, name)
  }
}

// One line in the middle of a chip, or two.
function lines(part, name) {
  const box = part.querySelector("rect")
  const [x, y] = ["x", "y"].map(key => Number(box.getAttribute(key)))
  const [first, second] = name.split("|")
  const middle = x + Number(box.getAttribute("width")) / 2
  part.append(text(first, middle, y + (second ? 12.5 : CHIP / 2 + 3.5), "renamed"))
  if (second) part.append(text(second, middle, y + 22.5, "renamed beside"))
}

function title(part, name) {
  const made = part.querySelector(".title").cloneNode()
  made.textContent = name
  made.classList.add("renamed")
  part.append(made)
}

function text(said, x, y, look) {
  const made = document.createElementNS(SVG, "text")
  made.setAttribute("class", look)
  made.setAttribute("x", x)
  made.setAttribute("y", y)
  made.setAttribute("text-anchor", "middle")
  made.textContent = said
  return made
}
