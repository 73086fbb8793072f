"use strict";
// A pointer on a mark of the curve leads to the card of its frame.
for (const mark of document.querySelectorAll("use[data-line]")) {
  mark.addEventListener("click", () => {
    const card = document.getElementById(`frame-${mark.dataset.line}`);
    card.scrollIntoView({ block: "start" });
    card.focus({ preventScroll: true });
  });
}
