// The forms of a recipe: one at a time, the one that was chosen last, and a button that copies it.
const KEY = "atlas-recipe"
const root = document.documentElement

// The first of them stands where nothing was chosen, or what was chosen can't be kept.
function remembered() {
  try {
    return localStorage.getItem(KEY)
  } catch {
    return null
  }
}

function choose(form) {
  root.dataset.recipe = form
  for (const button of document.querySelectorAll(".forms [data-choose]"))
    button.setAttribute("aria-pressed", String(button.dataset.choose === form))
}

function button(text, name, value) {
  const made = document.createElement("button")
  made.type = "button"
  made.textContent = text
  made.dataset[name] = value
  return made
}

export function mount() {
  for (const recipe of document.querySelectorAll(".recipe:not(:has(> .forms))")) {
    const bar = document.createElement("p")
    bar.className = "forms"
    for (const form of recipe.querySelectorAll("[data-form]"))
      bar.append(button(form.querySelector("b").textContent, "choose", form.dataset.form))
    bar.append(button("copy", "copy", ""))
    recipe.prepend(bar)
  }
  const known = [...document.querySelectorAll(".recipe [data-choose]")].map(each => each.dataset.choose)
  const last = remembered()
  if (known.length) choose(known.includes(last) ? last : known[0])
}

// The figure's pane holds copies of cards, so the clicks are heard on the document.
document.addEventListener("click", event => {
  const pressed = event.target.closest?.(".forms button")
  if (!pressed) return
  if (pressed.dataset.choose) {
    choose(pressed.dataset.choose)
    try {
      localStorage.setItem(KEY, pressed.dataset.choose)
    } catch {
      // A browser that keeps nothing still switches.
    }
    return
  }
  const shown = pressed.closest(".recipe").querySelectorAll(`[data-form="${root.dataset.recipe}"] code`)
  navigator.clipboard.writeText([...shown].map(code => code.textContent).join("\n\n") + "\n").then(() => {
    pressed.textContent = "copied"
    setTimeout(() => { pressed.textContent = "copy" }, 1500)
  })
})
