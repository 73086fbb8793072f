"use strict";
// The button that turns light to dark and back; shared by the pages.
{
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  const nameTheme = () => {
    button.textContent = isDark() ? "Light theme" : "Dark theme";
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();
  button.hidden = false;
}
