// The printout's two buttons: unfold all, fold all.
export function mount(root) {
  root.querySelector(".fold").hidden = false
  root.addEventListener("click", event => {
    const button = event.target.closest("[data-fold]")
    if (!button) return
    const open = button.dataset.fold === "open"
    const all = root.querySelectorAll(".listing details")
    for (const details of all) details.open = open || details === all[0]
  })
}
