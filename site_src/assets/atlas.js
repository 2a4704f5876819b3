// Attaches the parts of a page to their markup: an element with data-part="block" gets parts/block.js.
// Runs again after every instant navigation, which replaces the page's content without a reload.
const parts = {
  block: () => import("./parts/block.js"),
  chips: () => import("./parts/chips.js"),
  compare: () => import("./parts/compare.js"),
  finder: () => import("./parts/finder.js"),
  naming: () => import("./parts/naming.js"),
  printout: () => import("./parts/printout.js"),
  recipes: () => import("./parts/recipes.js"),
  sortable: () => import("./parts/sortable.js"),
}
const attached = new WeakSet()

function attach() {
  document.documentElement.dataset.path = location.pathname
  for (const element of document.querySelectorAll("[data-part]")) {
    const load = parts[element.dataset.part]
    if (!load || attached.has(element)) continue
    attached.add(element)
    load().then(part => part.mount(element))
  }
}

// The theme leaves links with a target to the browser, which is to follow those to a place on the same page. On the way
// to another page there is no page that steps back and forth could stay on.
addEventListener("click", event => {
  const link = event.target.closest?.("a[href]")
  if (!link || link.host !== location.host || event.metaKey || event.ctrlKey) return
  if (link.pathname !== location.pathname) document.documentElement.dataset.path = ""
  else if (link.hash) link.target = "_self"
}, true)

// The theme gives its search dialog no name.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search")

if (window.document$) window.document$.subscribe(attach)
else attach()

// On paper every quirk is open. Those of one name close each other, so the name goes first.
let folded = []
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll(".quirk:not([open]), .experiments details:not([open])")]
  for (const details of document.querySelectorAll(".quirk")) details.removeAttribute("name")
  for (const details of folded) details.open = true
})
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false
  for (const details of document.querySelectorAll(".quirk")) details.setAttribute("name", "quirk")
})
