// The quirk chips: one open at a time, closed by Escape or a click elsewhere.
export function mount(root) {
  const open = () => root.querySelector(".quirk[open]")
  const close = () => {
    const quirk = open()
    if (quirk) quirk.open = false
    return quirk
  }
  root.addEventListener("keydown", event => {
    if (event.key === "Escape") close()?.querySelector("summary").focus()
  })
  const outside = event => {
    if (!root.isConnected) document.removeEventListener("pointerdown", outside)
    else if (open() && !open().contains(event.target)) close()
  }
  document.addEventListener("pointerdown", outside)
}
