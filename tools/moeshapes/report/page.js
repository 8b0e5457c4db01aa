/* Coverage. */
function cellFacts(cell) {
  const [status, note, hasErrors, shape, index] = cell;
  const row = shape === undefined ? null : data.shapes[shape].rows[index];
  const kind = status === "exact" ? (row ? statusOf(row) : "no record") : hasErrors && !row ? "crash" : status;
  const why = name(note);
  const words = [status === "exact" ? "row" : status, why, hasErrors ? "a fault is to be expected" : "", row ? said(row) : ""];
  return { status, kind, row, shape, index, hasErrors, words: words.filter(Boolean).join(", ") };
}
function coverageCell(deployment, bucket, cell) {
  const facts = cellFacts(cell);
  const words = `${deployment.name}, ${bucket} tokens: ${facts.words}`;
  const mark = MARKS[facts.kind][0] + (facts.row && facts.hasErrors ? "!" : "");
  const link = facts.row ? make("a", { href: hrefOf(facts.shape, facts.index), tabindex: -1, "aria-label": words }, mark) : null;
  const td = make("td", { class: facts.kind.replace(/ /g, "-"), "aria-label": link ? null : words, tabindex: link ? null : -1 }, link || mark);
  td.words = words;
  td.facts = facts;
  return td;
}
function drawCoverage() {
  const head = make("tr", {}, make("th", { scope: "col" }, "deployment"));
  head.append(...data.buckets.map((bucket) => make("th", { scope: "col", "aria-label": `${bucket} tokens` }, short(bucket))));
  const body = make("tbody");
  for (const deployment of data.deployments) {
    const about = `${deployment.dims} ${deployment.kind} on ${deployment.gpu}`;
    const title = make("th", { scope: "row" }, deployment.name, make("small", {}, about));
    deployment.line = make("tr", {}, title, ...deployment.cells.map((cell, i) => coverageCell(deployment, data.buckets[i], cell)));
    body.append(deployment.line);
  }
  byId("coverage").append(make("thead", {}, head), body);
  for (const [kind, [mark, words]] of Object.entries(MARKS)) {
    byId("legend").append(make("li", {}, make("span", { class: kind.replace(/ /g, "-"), "aria-hidden": "true" }, mark || " "), words));
  }
  byId("legend").append(make("li", {}, make("span", { "aria-hidden": "true" }, "!"), "beside a mark: a fault is to be expected all the same"));
}

/* Shapes. */
const COLUMNS = ["tokens", "recorded µs", "baseline → tuned µs", "change", "status", "NaN", "deterministic", "kernels", "row"];
function tableRow(shape, number, row, index) {
  const found = [against(row, "baseline"), against(row, "replaced")].filter(Boolean);
  const some = proofs(row).filter((proof) => proof.d !== undefined);
  const worst = (pick) => (some.length ? Math.max(...some.map(pick)) : "–");
  const place = data.link ? make("a", { href: hrefOf(number, index) }, placeOf(row)) : placeOf(row);
  const cells = [
    make("th", { scope: "row" }, String(row.t)),
    make("td", {}, row.u === null ? "unreadable" : String(row.u)),
    make("td", {}, found.length ? `${found[0][2][0]} → ${found[0][2][1]}` : "–"),
    make("td", { class: "said" }, found.map((each) => `${changeText(each[3])} against ${LABELS[each[0]]}: ${each[1]}`).join("; ") || "–"),
    make("td", { class: "said" }, statusText(row, some)),
    make("td", {}, String(worst((proof) => proof.nan))),
    make("td", {}, some.length ? (some.every((proof) => proof.det) ? "yes" : "no") : "–"),
    make("td", { class: "name" }, ...row.k.flatMap((kernel, i) => [i ? make("br") : "", make("code", {}, name(kernel))])),
    make("td", { class: "name" }, place, row.tag ? ` (${row.tag})` : ""),
  ];
  row.line = make("tr", { id: `row-${number}-${index}`, tabindex: -1 }, ...cells);
  row.line.hidden = !rowMatches(row);
  return row.line;
}
function statusText(row, some) {
  if (!some.length) return "no record";
  return proofs(row).map((proof) => `${found(proof)}${proofs(row).length > 1 ? ` under ${name(proof.use)}` : ""}`).join("; ");
}
function found(proof) {
  const device = proof.d === undefined ? "" : name(proof.d);
  if (!device.startsWith("emulated on ")) return device ? `${proof.s} on ${device}` : proof.s;
  return proof.s === "emulated" ? device : `${proof.s}, ${device}`;
}
function buildShape(shape, number) {
  if (shape.built) return;
  shape.built = true;
  const inside = make("div", { class: "inside" });
  shape.panel.append(inside);
  shape.charts = make("div", { class: "charts" });
  const caption = make("caption", { class: "unseen" }, `Rows of ${shape.dims} ${shape.kind} on ${shape.gpu}`);
  const head = make("thead", {}, make("tr", {}, ...COLUMNS.map((column) => make("th", { scope: "col" }, column))));
  const body = make("tbody", {}, ...shape.rows.map((row, index) => tableRow(shape, number, row, index)));
  const table = make("div", { class: "wide", role: "region", tabindex: 0, "aria-label": caption.textContent }, make("table", { class: "rows" }, caption, head, body));
  inside.append(shape.charts, table);
  drawCharts(shape, number);
}
function drawCharts(shape, number) {
  const space = shape.charts.clientWidth || 600;
  const both = shape.rows.some(timed) && space > 976;
  const width = Math.max(280, Math.floor(both ? (space - 16) / 2 : space));
  if (shape.width === width) return;
  shape.width = width;
  const charts = [timesChart(shape, number, width), changesChart(shape, number, width)];
  shape.charts.replaceChildren(...charts.filter(Boolean));
}
function drawShapes() {
  data.shapes.forEach((shape, number) => {
    const count = shape.rows.length;
    const uses = data.deployments.filter((deployment) => deployment.shape === number);
    shape.models = uses.map(({ model, tp }) => ({ model, tp: tpOf({ tp }) }));
    const served = [...new Set(uses.map((deployment) => deployment.name))].join(", ") || "no deployment declares it";
    const title = `${shape.dims} ${shape.kind} on ${shape.gpu}: ${count} ${count === 1 ? "row" : "rows"}`;
    shape.panel = make("details", {}, make("summary", {}, title, make("br"), make("small", {}, served)));
    shape.panel.addEventListener("toggle", () => { if (shape.panel.open) buildShape(shape, number); });
    shape.first = data.deployments.indexOf(uses[0]);
  });
  /* What is declared comes first, in the order of the map. */
  const order = (shape) => (shape.first < 0 ? data.deployments.length : shape.first);
  const inOrder = [...data.shapes].sort((a, b) => order(a) - order(b));
  byId("shapes").append(...inOrder.map((shape) => shape.panel));
  const first = inOrder.filter((shape) => shape.rows.some(timed)).slice(0, 3);
  for (const shape of first.length ? first : inOrder.slice(0, 1)) shape.panel.open = true;
}

/* Filters. */
const UNDECLARED = "undeclared";
const tpOf = (deployment) => String(deployment.tp);
const wanted = () => Object.fromEntries(["model", "tp", "gpu", "status"].map((key) => [key, byId("filters").elements[key].value]));
let now = { model: "", tp: "", gpu: "", status: "" };
const ofRow = (status) => WORST_FIRST.includes(status) || VERDICTS.includes(status);
function rowMatches(row) {
  const status = now.status;
  if (!ofRow(status)) return true;
  return VERDICTS.includes(status) ? verdicts(row).includes(status) : statusOf(row) === status;
}
function cellMatches(td) {
  if (!now.status) return true;
  return ofRow(now.status) ? Boolean(td.facts.row) && rowMatches(td.facts.row) : td.facts.status === now.status;
}
function deploymentMatches(deployment) {
  const own = (!now.model || deployment.model === now.model) && (!now.tp || tpOf(deployment) === now.tp) && (!now.gpu || deployment.gpu === now.gpu);
  let any = !now.status;
  for (const td of [...deployment.line.cells].slice(1)) {
    const matches = cellMatches(td);
    td.classList.toggle("dim", own && !matches);
    any = any || matches;
  }
  return own && any;
}
function shapeMatches(shape) {
  const served = shape.models.length ? shape.models : [{ model: UNDECLARED, tp: "" }];
  const own = served.some(({ model, tp }) => (!now.model || model === now.model) && (!now.tp || tp === now.tp)) && (!now.gpu || shape.gpu === now.gpu);
  if (!own) return false;
  const shown = shape.rows.filter(rowMatches).length;
  return ofRow(now.status) ? shown > 0 : !now.status || shape.covered.has(now.status);
}
function filter() {
  now = wanted();
  const lines = data.deployments.filter((deployment) => { const matches = deploymentMatches(deployment); deployment.line.hidden = !matches; return matches; }).length;
  let [shapes, rows] = [0, 0];
  for (const shape of data.shapes) {
    const matches = shapeMatches(shape);
    shape.panel.hidden = !matches;
    for (const row of shape.rows) {
      const shown = rowMatches(row);
      if (row.line) row.line.hidden = !shown;
      rows += matches && shown ? 1 : 0;
    }
    shapes += matches ? 1 : 0;
  }
  byId("shown").value = `Showing ${lines} of ${data.deployments.length} deployments, ${shapes} of ${data.shapes.length} shapes, ${rows} rows.`;
  const stop = byId("coverage").querySelector("tbody tr:not([hidden]) td");
  const old = byId("coverage").querySelector("tbody [tabindex='0']");
  if (old) old.setAttribute("tabindex", -1);
  if (stop) stopOf(stop).setAttribute("tabindex", 0);
}
function options() {
  const sorted = (values, order) => [...new Set(values)].sort(order);
  const statuses = ["exact", "other activation", "tier fallback", "gap", "left out", "discarded", "not asked for"];
  const rows = data.shapes.flatMap((shape) => shape.rows);
  const occurring = new Set([...rows.map(statusOf), ...rows.flatMap(verdicts), ...data.deployments.flatMap(({ cells }) => cells.map(([status]) => status))]);
  const known = {
    model: [...sorted(data.deployments.map(({ model }) => model)), ...(data.shapes.some((shape) => !shape.models.length) ? [UNDECLARED] : [])],
    tp: sorted(data.deployments.map(tpOf), (a, b) => a - b),
    gpu: sorted([...data.deployments, ...data.shapes].map(({ gpu }) => gpu)),
    status: [...statuses, ...WORST_FIRST, ...VERDICTS].filter((status) => occurring.has(status)),
  };
  for (const [key, values] of Object.entries(known)) byId("filters").elements[key].append(...values.map((value) => make("option", { value }, value)));
  data.shapes.forEach((shape, number) => {
    const cells = data.deployments.filter((deployment) => deployment.shape === number).flatMap((deployment) => deployment.cells);
    shape.covered = new Set(cells.map(([status]) => status));
  });
}

/* Going to a row of this page. */
function goToHash() {
  const found = /^#row-(\d+)-(\d+)$/.exec(location.hash);
  const shape = found && data.shapes[found[1]];
  const row = shape && shape.rows[found[2]];
  if (!row) return;
  shape.panel.hidden = false;
  shape.panel.open = true;
  buildShape(shape, Number(found[1]));
  row.line.hidden = false;
  document.querySelectorAll(".here").forEach((line) => line.classList.remove("here"));
  row.line.classList.add("here");
  row.line.scrollIntoView({ block: "center" });
  row.line.focus({ preventScroll: true });
}
function tell(event) {
  const td = event.target.closest("td");
  if (td && td.words) byId("said").textContent = visible(td.words);
}

drawCoverage();
drawShapes();
options();
filter();
byId("filters").addEventListener("change", filter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("reset", () => setTimeout(filter));
byId("coverage").addEventListener("keydown", coverageKeys);
for (const kind of ["focusin", "mouseover", "click"]) byId("coverage").addEventListener(kind, tell);
const setAll = (open) => { for (const shape of data.shapes) if (!shape.panel.hidden) shape.panel.open = open; };
byId("open").addEventListener("click", () => setAll(true));
byId("close").addEventListener("click", () => setAll(false));
addEventListener("hashchange", goToHash);
addEventListener("resize", () => data.shapes.forEach((shape, number) => { if (shape.built && shape.panel.open) drawCharts(shape, number); }));
goToHash();

