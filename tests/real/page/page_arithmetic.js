// How often the panels' arithmetic is wrong, in random cases: differences of texts, and areas of a treemap.
async () => {
  const { compare } = await import("/page/panels/diff.js");
  const { squarify } = await import("/page/charts/treemap.js");
  let seed = 7;
  const random = (below) => ((seed = (seed * 48271) % 2147483647) / 2147483647) * below;
  const lines = () => Array.from({ length: Math.floor(random(12)) }, () => "abcd"[Math.floor(random(4))]);

  /** How many lines two texts have in common, in order: the longest such row, by the book. */
  function common(a, b) {
    const best = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill(0));
    for (let i = a.length - 1; i >= 0; i--)
      for (let j = b.length - 1; j >= 0; j--)
        best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    return best[0][0];
  }

  let diffs = 0;
  for (let round = 0; round < 3000; round++) {
    const [a, b] = [lines(), lines()];
    const edits = compare(a.join("\n"), b.join("\n"));
    const side = (sign) => edits.filter((edit) => edit.sign !== sign).map((edit) => edit.text);
    const same = edits.filter((edit) => edit.sign === " ").length;
    if (side("+").join() !== a.join() || side("-").join() !== b.join() || same !== common(a, b)) diffs++;
  }

  let areas = 0;
  for (let round = 0; round < 500; round++) {
    const items = Array.from({ length: 1 + Math.floor(random(30)) }, () => ({ value: random(100) }));
    const all = items.reduce((sum, item) => sum + item.value, 0);
    const inside = ({ x, y, w, h }) => x > -1e-6 && y > -1e-6 && x + w < 300.001 && y + h < 200.001;
    for (const { item, box } of squarify(items, { x: 0, y: 0, w: 300, h: 200 }))
      if (!inside(box) || Math.abs(box.w * box.h - (60000 * item.value) / all) > 1e-3) areas++;
  }
  return { diffs, areas };
};
