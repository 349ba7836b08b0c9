// Draws every chart of the page from its data attribute, in the colours of the page's theme.
"use strict";

(() => {
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function themed(layout) {
    const result = structuredClone(layout);
    result.font = {
      ...result.font,
      color: colour("--text"),
      family: "system-ui, sans-serif",
      size: 12,
    };
    result.hoverlabel = {
      bgcolor: colour("--surface"),
      bordercolor: colour("--line"),
      font: { color: colour("--text") },
    };
    for (const [name, axis] of Object.entries(result)) {
      if (/^[xy]axis\d*$/.test(name)) {
        axis.gridcolor = colour("--grid");
        axis.zerolinecolor = colour("--muted");
        axis.linecolor = colour("--line");
      }
    }
    return result;
  }

  function draw(node) {
    const figure = JSON.parse(node.dataset.figure);
    return Plotly.react(node, figure.data, themed(figure.layout), config);
  }

  async function drawAll() {
    await Promise.all([...document.querySelectorAll(".chart")].map(draw));
    document.documentElement.dataset.charts = "drawn";
  }

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
