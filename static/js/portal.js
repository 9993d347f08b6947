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

  // Signing in again in another tab changes the token against forged requests: a form that waited takes the new one.
  const token = () => { const found = document.cookie.match(/(?:^|; )aif_csrf=([^;]+)/); return found ? found[1] : ""; };
  document.addEventListener("submit", (event) => {
    const field = event.target.querySelector("input[name=csrfmiddlewaretoken]");
    if (field && token()) { field.value = token(); }
  }, true);
  document.addEventListener("htmx:configRequest", (event) => {
    if (!token()) { return; }
    event.detail.headers["X-CSRFToken"] = token();
    if (event.detail.parameters.csrfmiddlewaretoken) { event.detail.parameters.csrfmiddlewaretoken = token(); }
  });

  // A form is sent once. (The server sees to it too: this only saves the wait.)
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-once]") || (event.submitter && event.submitter.hasAttribute("data-free"))) { return; }
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    form.setAttribute("aria-busy", "true");
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) { document.querySelectorAll("[data-sent]").forEach((form) => { delete form.dataset.sent; }); }
  });

  // A file is read into the text that it stands for, so that it can be looked at first.
  document.addEventListener("change", async (event) => {
    const file = event.target.files && event.target.files[0];
    const into = event.target.dataset.into && document.querySelector(event.target.dataset.into);
    if (!file || !into || file.size > 262144) { return; }
    into.value = await file.text();
    event.target.value = "";
    into.dispatchEvent(new Event("input", { bubbles: true }));
  });

  // From an error to its place in the text.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-goto]");
    const area = link && document.querySelector(link.dataset.goto);
    if (!area) { return; }
    event.preventDefault();
    const lines = area.value.split("\n");
    const start = lines.slice(0, link.dataset.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
    const at = start + Number(link.dataset.column || 1) - 1;
    area.focus();
    area.setSelectionRange(at, start + (lines[link.dataset.line - 1] || "").length);
  });

  document.addEventListener("focusin", (event) => {
    if (event.target.matches("[data-select]")) { event.target.select(); }
  });

  // A table that is wider than its place is scrolled with the keyboard too.
  const reach = () => document.querySelectorAll(".table-responsive").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) { box.tabIndex = 0; } else { box.removeAttribute("tabindex"); }
  });
  ["DOMContentLoaded", "htmx:afterSettle"].forEach((when) => document.addEventListener(when, reach));
  window.addEventListener("resize", reach);

  // A page that comes back with errors starts at the first of them.
  document.addEventListener("DOMContentLoaded", () => {
    const bad = document.querySelector("main [aria-invalid=true]");
    if (bad) { bad.focus(); }
  });

  // A validation error (422) is an answer to show, not to drop; so is the news that the session is over (401, which only
  // comes for a change), and that what was watched is gone.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const status = event.detail.xhr.status;
    const watched = event.detail.requestConfig.elt.hasAttribute("data-poll");
    if (status === 401 || status === 422 || (status === 404 && watched)) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });

  // A request that nobody made says so: it does not keep a session alive.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.hasAttribute("data-poll")) { event.detail.headers["X-Poll"] = "1"; }
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
