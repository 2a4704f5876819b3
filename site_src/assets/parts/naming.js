// The names of values on rows and in diagrams: standard, or where the Hugging Face implementation has them. Both are on
// the page; the choice is one of the whole site and is remembered.
const KEY = "atlas-names"
const page = document.documentElement.classList

export function mount(root) {
  show()
  root.addEventListener("change", event => {
    page.toggle("native-names", event.target.value === "native")
    try {
      localStorage.setItem(KEY, event.target.value)
    } catch {} // where nothing may be stored, the choice holds until the page is left
    show()
  })
}

function show() {
  const chosen = page.contains("native-names") ? "native" : "standard"
  for (const input of document.querySelectorAll(".naming input")) input.checked = input.value === chosen
}
