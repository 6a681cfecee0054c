"use strict";
// What a page does: tables sort and search, folded sections open where a link leads into them, dark or light.
{
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  // Numbers before words, words in order, nothing last whichever way it is sorted.
  function compare(a, b, down) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = Number(a), y = Number(b);
    let order;
    if (Number.isNaN(x) || Number.isNaN(y))
      order = Number.isNaN(x) - Number.isNaN(y) || collator.compare(a, b);
    else
      order = x - y;
    return down ? -order : order;
  }

  function sort(table, header) {
    const index = [...header.parentNode.children].indexOf(header);
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const key = (row) => row.cells[index].dataset.key;
    const numbers = rows.some((row) => key(row) !== "" && !Number.isNaN(Number(key(row))));
    // The largest number and the first word are what one looks for.
    const before = header.getAttribute("aria-sort");
    const down = before === "none" ? numbers : before === "ascending";
    for (const other of header.parentNode.children) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.sort((a, b) => compare(key(a), key(b), down)); // stable: the former order holds among equals
    body.append(...rows);
  }

  for (const box of document.querySelectorAll(".table")) {
    const table = box.querySelector("table");
    if (!table) continue;
    for (const header of table.tHead.rows[0].cells)
      header.querySelector("button").addEventListener("click", () => sort(table, header));
    const input = box.querySelector("input");
    if (!input) continue;
    const rows = [...table.tBodies[0].rows];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const count = box.querySelector(".count"), nothing = box.querySelector(".nothing");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !words.every((word) => texts.get(row).includes(word));
        shown += !row.hidden;
      }
      count.textContent = words.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
      nothing.hidden = shown > 0;
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      input.value = "";
      input.dispatchEvent(new Event("input"));
    });
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    const input = [...document.querySelectorAll(".search input")].find((i) => i.offsetParent);
    if (!input) return;
    event.preventDefault();
    input.focus();
  });

  function unfold() {
    let target = null;
    try {
      target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch { return; } // not a name of ours
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    if (target) target.scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();

  // On paper everything is open.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const d of folded) d.open = true;
  });
  addEventListener("afterprint", () => {
    for (const d of folded) d.open = false;
  });

  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
                                    : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  const save = document.getElementById("save");
  if (save) {
    save.hidden = false;
    save.addEventListener("click", () => {
      const text = JSON.stringify(JSON.parse(document.getElementById("data").textContent), null, 1);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = `${document.title.replace(/[^\w.-]+/g, "_")}.json`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
}
