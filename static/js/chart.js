// A line over the days, drawn from the table that is on the page anyway: <figure data-chart="id of the table">.
// Its rows carry data-at (seconds since 1970) and data-value. Without JavaScript the table alone is there.
(() => {
  "use strict";

  // A canvas takes no var(): the browser is asked what the variable's colour is, here and now.
  const colour = (element, name, alpha) => {
    element.style.color = `var(${name})`;
    const [, parts] = getComputedStyle(element).color.match(/rgba?\(([^)]+)\)/) || ["", "120, 120, 120"];
    element.style.color = "";
    return alpha === undefined ? `rgb(${parts.split(",").slice(0, 3).join(",")})` : `rgba(${parts.split(",").slice(0, 3).join(",")}, ${alpha})`;
  };

  const draw = (figure) => {
    const table = document.getElementById(figure.dataset.chart);
    const rows = table ? [...table.querySelectorAll("[data-at]")] : [];
    if (rows.length < 2 || typeof uPlot === "undefined") { return; }
    const data = [rows.map((row) => Number(row.dataset.at)), rows.map((row) => Number(row.dataset.value))];
    const box = figure.querySelector("[data-canvas]");
    box.replaceChildren();
    figure.hidden = false;
    const text = colour(box, "--tblr-secondary");
    const grid = colour(box, "--tblr-secondary", 0.2);
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    new uPlot({
      width: Math.max(box.clientWidth - parseFloat(getComputedStyle(box).paddingLeft) * 2, 200),
      height: 180,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
      legend: { live: true },
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(5, 10)) },
        { ...axis, size: 56 },
      ],
      series: [
        { value: (_, at) => (at === null ? "–" : new Date(at * 1000).toISOString().slice(0, 10)), label: "Day" },
        {
          label: figure.dataset.unit,
          stroke: colour(box, "--aif-tenants"),
          fill: colour(box, "--aif-tenants", 0.15),
          width: 2,
          points: { show: rows.length < 40, size: 5 },
          value: (_, amount) => (amount === null ? "–" : amount.toFixed(3)),
        },
      ],
    }, data, box);
  };

  const all = () => document.querySelectorAll("[data-chart]").forEach(draw);
  document.addEventListener("DOMContentLoaded", all);
  let later = 0;
  window.addEventListener("resize", () => { clearTimeout(later); later = setTimeout(all, 150); });
  new MutationObserver(all).observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });
})();
