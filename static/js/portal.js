// Everything here is a convenience: each page works without it.
(() => {
  "use strict";

  // Theme: the choice of this browser, else that of the system.
  const stored = () => { try { return localStorage.getItem("aif-theme"); } catch { return null; } };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const theme = stored() || (dark.matches ? "dark" : "light");
    document.documentElement.setAttribute("data-bs-theme", theme);
  };
  apply();
  dark.addEventListener("change", apply);

  document.addEventListener("click", (event) => {
    const toggle = event.target.closest("[data-theme-toggle]");
    if (toggle) {
      const now = document.documentElement.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
      try { localStorage.setItem("aif-theme", now); } catch { /* a private window keeps nothing */ }
      apply();
    }
    const menu = event.target.closest("[data-menu-toggle]");
    if (menu) {
      const target = document.getElementById(menu.getAttribute("aria-controls"));
      const open = target.classList.toggle("show");
      menu.setAttribute("aria-expanded", String(open));
    }
  });

  // A validation error (422) is an answer to show, not to drop.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status === 422) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });

  // No polling while nobody looks.
  document.addEventListener("htmx:confirm", (event) => {
    if (document.hidden && event.target.hasAttribute("data-poll")) { event.preventDefault(); }
  });

  // After a swap that brought an error, the first faulty field has the focus.
  document.addEventListener("htmx:afterSwap", (event) => {
    const bad = event.detail.target.querySelector("[aria-invalid=true]");
    if (bad) { bad.focus(); }
  });
})();
