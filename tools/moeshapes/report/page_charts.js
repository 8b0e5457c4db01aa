/* Charts. */
function linked(shape, index, label, ...children) {
  return draw("a", { href: hrefOf(shape, index), tabindex: -1, "aria-label": label }, draw("title", {}, label), ...children);
}
function chartFrame(width, height, title, about) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `${title}. ${about}` });
  svg.addEventListener("keydown", chartKeys);
  return svg;
}
function seriesOf(shape, number) {
  const points = (pick) => shape.rows.map((row, index) => [row.t, pick(row), index]).filter(([, us]) => us > 0);
  const measured = (which) => points((row) => { const found = against(row, "baseline") || against(row, "replaced"); return found ? found[2][which] : 0; });
  return [
    { id: "recorded", words: "recorded", points: points((row) => row.u), number },
    { id: "baseline", words: "baseline, measured", points: measured(0), number },
    { id: "tuned", words: "tuned, measured", points: measured(1), number },
  ];
}
function markOf(id, x, y) {
  if (id === "baseline") return draw("rect", { class: `mark ${id}`, x: x - 4, y: y - 4, width: 8, height: 8 });
  /* A ring: what was recorded is mostly what was measured, and stands behind it. */
  return draw("circle", { class: `mark ${id}`, cx: x, cy: y, r: id === "recorded" ? 7 : 4.5 });
}
function rangeOf(values, margin, least) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const more = Math.max(margin, (least - (high - low)) / 2);
  return [low - more, high + more];
}
function timesChart(shape, number, width) {
  const [height, left, right, top, bottom] = [310, 48, 12, 26, 46];
  const series = seriesOf(shape, number);
  const roof = data.buckets.map((bucket, i) => [bucket, shape.roof[i]]).filter(([, us]) => us > 0);
  const all = [...series.flatMap((each) => each.points), ...roof];
  if (!all.length) return null;
  /* At least the buckets beside a lone one, so that the roofline is a line, and two labels a side. */
  const [firstX, lastX] = rangeOf(shape.rows.map((row) => Math.log2(row.t)), 0.3, 2.2);
  const inside = all.filter(([token]) => Math.log2(token) >= firstX && Math.log2(token) <= lastX);
  const [firstY, lastY] = rangeOf(inside.map(([, us]) => Math.log10(us)), 0.1, 0.7);
  const x = (token) => left + ((Math.log2(token) - firstX) / (lastX - firstX)) * (width - left - right);
  const y = (us) => height - bottom - ((Math.log10(us) - firstY) / (lastY - firstY)) * (height - top - bottom);
  const svg = chartFrame(width, height, "Microseconds against tokens, both logarithmic", summaryOf(shape, series));
  const every = Math.ceil(((lastX - firstX) * 34) / (width - left - right));
  data.buckets.filter((bucket) => Math.log2(bucket) >= firstX && Math.log2(bucket) <= lastX).forEach((bucket, i) => {
    if (i % every === 0) svg.append(draw("text", { x: x(bucket), y: height - 28, "text-anchor": "middle", "aria-hidden": "true" }, short(bucket)));
  });
  svg.append(draw("text", { x: left - 6, y: 15, "text-anchor": "end", "aria-hidden": "true" }, "µs"));
  svg.append(draw("text", { x: (left + width - right) / 2, y: height - 9, "text-anchor": "middle", "aria-hidden": "true" }, "tokens"));
  for (let power = Math.floor(firstY); power <= lastY; power++) for (const digit of [1, 2, 5]) {
    const us = digit * 10 ** power;
    if (Math.log10(us) < firstY || Math.log10(us) > lastY) continue;
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(us), y2: y(us) }));
    svg.append(draw("text", { x: left - 6, y: y(us) + 4, "text-anchor": "end", "aria-hidden": "true" }, us >= 1 ? us : Number(us.toPrecision(1))));
  }
  const path = (points) => points.map(([token, us], i) => `${i ? "L" : "M"}${x(token).toFixed(1)} ${y(us).toFixed(1)}`).join("");
  svg.append(draw("path", { class: "line roof", d: path(roof.filter((point) => inside.includes(point))) }));
  for (const each of series) {
    svg.append(draw("path", { class: `line ${each.id}`, d: path(each.points) }));
    for (const [token, us, index] of each.points) {
      svg.append(linked(number, index, `${token} tokens, ${each.words}: ${us} µs, ${placeOf(shape.rows[index])}`, markOf(each.id, x(token), y(us))));
    }
  }
  const keys = [...series.filter((each) => each.points.length), ...(roof.length ? [{ id: "roof", words: "roofline" }] : [])];
  return make("figure", {}, finished(svg), make("figcaption", {}, "µs a call: ", ...legendOf(keys)));
}
function legendOf(entries) {
  return entries.map(({ id, words }) => {
    const mark = id === "roof" ? draw("path", { class: "line roof", d: "M0 8h16" }) : markOf(id, 8, 8);
    return make("span", { class: "key" }, draw("svg", { viewBox: "0 0 16 16", class: "key", "aria-hidden": "true" }, mark), words);
  });
}
function summaryOf(shape, series) {
  const told = series.filter((each) => each.points.length).map(({ words, points }) => `${words}: ${points[0][1]} at ${points[0][0]} to ${points.at(-1)[1]} at ${points.at(-1)[0]}`);
  return `${told.join("; ")}. The table below has every value`;
}
function finished(svg) {
  const first = svg.querySelector("a");
  if (first) first.setAttribute("tabindex", 0);
  return svg;
}
function changesChart(shape, number, width) {
  const found = shape.rows.flatMap((row, index) => (timed(row) ? timed(row).c.map((each) => ({ row, index, each })) : []));
  if (!found.length) return null;
  const [step, left, right, top] = [22, 108, 16, 28];
  const height = top + found.length * step + 26;
  const ends = found.flatMap(({ each }) => [...each[3], ...each[4].flat()]);
  const [low, high] = [Math.min(0, ...ends) - 1, Math.max(0, ...ends) + 1];
  const x = (change) => left + ((change - low) / (high - low)) * (width - left - right);
  const svg = chartFrame(width, height, "Change of time in percent, with 95 % intervals", "Below 0 the row is faster. The table below has every value");
  const ticks = niceTicks(low, high, (width - left - right) / 60);
  for (const tick of ticks) {
    svg.append(draw("line", { class: tick === 0 ? "zero" : "grid", x1: x(tick), x2: x(tick), y1: top - 6, y2: height - 22 }));
    svg.append(draw("text", { x: x(tick), y: height - 8, "text-anchor": "middle", "aria-hidden": "true" }, signed(tick).replace(".0", "")));
  }
  svg.append(draw("text", { x: left - 100, y: 14, "aria-hidden": "true" }, "tokens, against"));
  found.forEach(({ row, index, each }, i) => {
    const [other, verdict, , change, passes] = each;
    const y = top + i * step + step / 2;
    svg.append(draw("text", { x: left - 8, y: y + 4, "text-anchor": "end", "aria-hidden": "true" }, `${short(row.t)} ${other}`));
    const bars = passes.map(([centre, from, to], n) => draw("path", { class: `pass ${verdict}`, d: `M${x(from)} ${y - 5 + n * 10}H${x(to)}M${x(centre)} ${y - 8 + n * 10}v6` }));
    const hull = draw("path", { class: `line ${verdict}`, d: `M${x(change[1])} ${y}H${x(change[2])}` });
    const label = `${row.t} tokens against ${LABELS[other]}: ${changeText(change)}, ${verdict}, ${placeOf(row)}`;
    svg.append(linked(number, index, label, ...bars, hull, draw("circle", { class: `mark ${verdict}`, cx: x(change[0]), cy: y, r: 4.5 })));
  });
  const caption = "Change of time against the baseline, and against the row it replaces: mean and 95 % interval, beside each pass.";
  return make("figure", {}, finished(svg), make("figcaption", {}, caption));
}
function niceTicks(low, high, most) {
  const step = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => (high - low) / each <= most) || (high - low) / 2;
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return ticks;
}
