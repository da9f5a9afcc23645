// Asks every two seconds whether the page has changed, and exchanges the parts that have. Without this
// script all pages work; they show the moment at which they were loaded.
"use strict";
(() => {
  const EVERY = 2000; // ms
  const button = document.getElementById("pause");
  let paused = false;
  let tag = "";
  let timer;

  const open = (part) => [...part.querySelectorAll("details[open][id]")].map((each) => each.id);

  const page = (of) => of.querySelector("[data-page]")?.dataset.page;

  const exchange = (text) => {
    const made = new DOMParser().parseFromString(text, "text/html");
    if (page(made) !== page(document)) {
      location.reload(); // there is something to show now
      return;
    }
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const found = made.getElementById(old.id);
      // What somebody uses with the keyboard or has selected stays until they leave it.
      const used = old.contains(document.activeElement) || selected(old);
      if (!found || used || found.innerHTML === old.dataset.as) continue;
      const shown = open(old);
      const ticked = [...old.querySelectorAll("input:checked")].map((each) => each.value);
      old.dataset.as = found.innerHTML;
      if (old.id === "standing") {
        const [from, to] = [found.querySelector(".tag"), old.querySelector(".tag")];
        if (from && to) to.replaceWith(document.adoptNode(from));
        continue;
      }
      old.hidden = found.hidden;
      old.className = found.className;
      old.replaceChildren(...[...found.childNodes].map((each) => document.adoptNode(each)));
      for (const id of shown) {
        const part = document.getElementById(id);
        if (part) part.open = true;
      }
      for (const box of old.querySelectorAll("input[type=checkbox]")) {
        if (ticked.includes(box.value)) box.checked = true;
      }
    }
    document.title = made.title;
  };

  const selected = (part) => {
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && selection.intersectsNode(part));
  };

  const look = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(location.href, {
          cache: "no-store",
          credentials: "same-origin",
          headers: tag ? { "If-None-Match": tag } : {},
        });
        if (answer.ok) {
          tag = answer.headers.get("ETag") || "";
          exchange(await answer.text());
        } else if (answer.status === 401 || answer.status === 404) {
          location.reload();
          return;
        }
      } catch {
        // The server was stopped, or is busy; the next look tells.
      }
    }
    timer = setTimeout(look, EVERY);
  };

  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Resume updates" : "Pause updates";
    });
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      clearTimeout(timer);
      look();
    }
  });
  timer = setTimeout(look, EVERY);
})();
