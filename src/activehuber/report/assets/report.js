"use strict";
// The table of the report: sort, search, filter, pages, open rows, download.
// Text of the user goes into the page by textContent only.
{
  const PAGE = 50;
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const lines = data.lines.map((cells, index) => {
    const line = Object.fromEntries(data.columns.map((name, k) => [name, cells[k]]));
    return { ...line, rank: index + 1 };
  });

  // --- numbers as text; format_number in markup.py is the same ----------------------------

  function formatNumber(value, decimals, signed = false) {
    if (value === null) return "–";
    const size = Math.abs(value);
    let shown;
    if (size >= 1e9 || (size > 0 && decimals > 7)) {
      const [mantissa, exponent] = size.toExponential(3).split("e");
      shown = `${Number(mantissa)}e${Number(exponent)}`.replace("-", "−");
    } else {
      shown = size.toFixed(decimals > 7 ? 0 : decimals);
    }
    const isZero = !/[1-9]/.test(shown);
    if (value < 0 && !isZero) return "−" + shown;
    return signed && !isZero ? "+" + shown : shown;
  }
  const formatLabel = (value, decimals) =>
    typeof value === "string" ? value : formatNumber(value, decimals);
  const { given: GIVEN, expected: EXPECTED, threshold: THRESHOLD } = data.digits;
  const texts = {
    given: (line) => formatLabel(line.given, GIVEN),
    expected: (line) => formatLabel(line.expected, EXPECTED),
    interval: (line) =>
      line.lower === null || line.upper === null
        ? "–"
        : `${formatNumber(line.lower, EXPECTED)} to ${formatNumber(line.upper, EXPECTED)}`,
    residual: (line) => formatNumber(line.residual, 2, true),
    leftAt: (line) => formatNumber(line.left_at, THRESHOLD),
    quality: (line) => formatNumber(line.quality, 3),
  };

  // --- what is shown -----------------------------------------------------------------------

  const state = { key: "rank", direction: 1, query: "", verdict: "", page: 0, open: new Set() };
  const collator = new Intl.Collator("en", { numeric: true });
  const plain = (text) => text.toLowerCase().replaceAll("−", "-");
  for (const line of lines) {
    const parts = [line.row, String(line.given ?? ""), texts.given(line), texts.expected(line)];
    line.haystack = plain([...parts, line.verdict, line.reason].join("\n"));
  }

  function compare(a, b) {
    const [left, right] = [a[state.key], b[state.key]];
    if (left === null || right === null) {
      // What is missing comes last in both directions.
      return (left === null) - (right === null) || a.rank - b.rank;
    }
    const order =
      typeof left === "string" || typeof right === "string"
        ? collator.compare(String(left), String(right))
        : left - right;
    return state.direction * order || a.rank - b.rank;
  }

  function shownLines() {
    const query = plain(state.query.trim());
    return lines
      .filter((line) => !state.verdict || line.verdict === state.verdict)
      .filter((line) => !query || line.haystack.includes(query))
      .sort(compare);
  }

  // --- rows --------------------------------------------------------------------------------

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function lineRow(line) {
    const row = element("tr", "line");
    row.dataset.rank = line.rank;
    const opener = element("button", "open", line.row);
    opener.type = "button";
    opener.setAttribute("aria-expanded", String(state.open.has(line.rank)));
    opener.setAttribute("aria-label", `${line.row}: reason and similar rows`);
    if (state.open.has(line.rank)) opener.setAttribute("aria-controls", `detail-${line.rank}`);
    const name = element("td", "row");
    name.append(opener);
    const verdict = element("td", `verdict ${line.verdict}`);
    verdict.append(element("span", "", line.verdict));
    row.append(
      element("td", "rank", String(line.rank)),
      name,
      element("td", "number label", texts.given(line)),
      element("td", "number label", texts.expected(line)),
      element("td", "number wide interval", texts.interval(line)),
      element("td", "number wide", texts.residual(line)),
      element("td", "number wide left-at", texts.leftAt(line)),
      element("td", "number wide", texts.quality(line)),
      verdict,
    );
    return row;
  }

  function detailRow(line) {
    const row = element("tr", "detail");
    row.id = `detail-${line.rank}`;
    const cell = element("td");
    cell.colSpan = 9;
    cell.append(element("p", "reason", line.reason));
    // Columns for which a phone has no room; CSS shows them there only.
    const more = element("dl");
    const pairs = [
      ["Interval", texts.interval(line), "interval"],
      ["Residual, σ̂", texts.residual(line), ""],
      ["Left at ξ", texts.leftAt(line), "left-at"],
      ["Quality", texts.quality(line), ""],
    ];
    for (const [name, text, className] of pairs) {
      more.append(element("dt", className, name), element("dd", className, text));
    }
    cell.append(more);
    if (line.neighbours.length) cell.append(neighbourTable(line.neighbours));
    row.append(cell);
    return row;
  }

  function neighbourTable(neighbours) {
    const table = element("table", "neighbours");
    table.append(element("caption", "", "Most similar rows with a label"));
    const head = element("tr");
    for (const [name, className] of [["Row", ""], ["Given", "number"], ["Similarity", "number"]]) {
      const cell = element("th", className, name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = element("tbody");
    for (const [name, given, similarity] of neighbours) {
      const row = element("tr");
      row.append(
        element("td", "", name),
        element("td", "number", formatLabel(given, GIVEN)),
        element("td", "number", formatNumber(similarity, 2)),
      );
      body.append(row);
    }
    const top = element("thead");
    top.append(head);
    table.append(top, body);
    return table;
  }

  function draw() {
    const shown = shownLines();
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const start = state.page * PAGE;
    const page = shown.slice(start, start + PAGE);
    const rows = page.flatMap((line) =>
      state.open.has(line.rank) ? [lineRow(line), detailRow(line)] : [lineRow(line)],
    );
    if (!rows.length) {
      const cell = element("td", "none", "No label matches.");
      cell.colSpan = 9;
      const row = element("tr");
      row.append(cell);
      rows.push(row);
    }
    find("lines").replaceChildren(...rows);
    find("status").textContent = page.length
      ? `${start + 1}–${start + page.length} of ${shown.length}`
      : "0 labels";
    find("previous").disabled = state.page === 0;
    find("next").disabled = state.page === pages - 1;
    find("download").disabled = !shown.length;
    for (const head of heads) {
      if (head.dataset.key !== state.key) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", state.direction > 0 ? "ascending" : "descending");
    }
  }

  function toggle(rank) {
    if (!state.open.delete(rank)) state.open.add(rank);
    draw();
    // The button was made anew: keep the focus where it was.
    document.querySelector(`tr[data-rank="${rank}"] .open`)?.focus({ preventScroll: true });
  }

  function show(index) {
    Object.assign(state, { key: "rank", direction: 1, query: "", verdict: "" });
    find("search").value = "";
    find("verdict").value = "";
    state.page = Math.floor(index / PAGE);
    state.open.add(index + 1);
    draw();
    const opener = document.querySelector(`tr[data-rank="${index + 1}"] .open`);
    opener.scrollIntoView({ block: "center" });
    opener.focus({ preventScroll: true });
  }

  // --- download ----------------------------------------------------------------------------

  function csvCell(value) {
    if (value === null) return "";
    if (typeof value === "number") return String(value);
    // A spreadsheet would run a text that starts like this as a formula.
    const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function download() {
    const columns = data.columns.filter((name) => name !== "neighbours");
    const rows = shownLines().map((line) => columns.map((name) => csvCell(line[name])));
    const text = [columns, ...rows].map((cells) => cells.join(",") + "\r\n").join("");
    // The mark in front tells spreadsheets that this is UTF-8.
    const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    const link = element("a");
    link.href = url;
    link.download = "labels-shown.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  // --- what the reader does ----------------------------------------------------------------

  const heads = [...document.querySelectorAll("th[data-key]")];
  for (const head of heads) {
    const button = element("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const again = state.key === head.dataset.key;
      state.direction = again ? -state.direction : 1;
      state.key = head.dataset.key;
      state.page = 0;
      draw();
    });
  }
  find("search").addEventListener("input", (event) => {
    Object.assign(state, { query: event.target.value, page: 0 });
    draw();
  });
  find("verdict").addEventListener("change", (event) => {
    Object.assign(state, { verdict: event.target.value, page: 0 });
    draw();
  });
  find("lines").addEventListener("click", (event) => {
    const row = event.target.closest("tr.line");
    // Marking text with the mouse is not a click on the row.
    if (row && !String(getSelection())) toggle(Number(row.dataset.rank));
  });
  const turn = (by) => () => {
    state.page += by;
    draw();
    find("table-region").scrollIntoView({ block: "nearest" });
  };
  find("previous").addEventListener("click", turn(-1));
  find("next").addEventListener("click", turn(1));
  find("download").addEventListener("click", download);
  for (const mark of document.querySelectorAll("use[data-line]")) {
    mark.addEventListener("click", () => show(Number(mark.dataset.line)));
  }

  document.documentElement.classList.add("scripted-on");
  find("unscripted").hidden = true;
  for (const node of document.querySelectorAll(".scripted")) node.hidden = false;
  draw();
}
