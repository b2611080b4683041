// The weights of one word over the places of a picture, or over the steps of a recording, of one head or the mean.

export function sharesOf({ words }, view, bytes, word, head) { // for each place its share of the largest weight
  const size = view.rows * view.columns, sums = new Float64Array(size), { heads, rows, columns } = view;
  for (let h = 0; h < heads; h++) {
    if (head !== "mean" && Number(head) !== h + 1) continue;
    const from = (h * words.length + word) * size, largest = view.largest[h][word];
    for (let place = 0; place < size; place++) sums[place] += bytes[from + place] * largest;
  }
  const most = Math.max(...sums) || 1;
  return { shares: sums.map((sum) => sum / most), most: most / 255 / (head === "mean" ? heads : 1), rows, columns };
}
