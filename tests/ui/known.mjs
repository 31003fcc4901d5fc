// SPDX-License-Identifier: Apache-2.0
/* Profiles whose every number is known, and where their boxes are on the screen. */

export const HOSTILE = "<img src=x onerror=alert(1)>";
export const HOSTILE2 = "</script><script>alert(2)</script>";

/** 100 samples; siblings are sorted by name. */
export const KNOWN = [
  "app;main;load;parse;parse;parse_num 10",
  "app;main;load;read_file;vfs_read_[k] 20",
  "app;main;render;blend_[i] 10",
  "app;main;render;draw_box 40",
  "app;main;render;draw_box;memcpy 10",
  `web;loop;${HOSTILE};${HOSTILE2} 3`,
  "web;loop;script_[j] 6",
  "web;[truncated: stack memory not readable];helper 1",
];

/** Row and middle (as a share of the width) of frames of KNOWN. */
export const AT = {
  all: [0, 0.5], app: [1, 0.45], web: [1, 0.95], main: [2, 0.45], load: [3, 0.15], render: [3, 0.6],
  parse: [4, 0.05], parse2: [5, 0.05], parse_num: [6, 0.05], read_file: [4, 0.2], vfs_read: [5, 0.2], blend: [4, 0.35],
  draw_box: [4, 0.65], memcpy: [5, 0.45], hostile: [3, 0.925], hostile2: [4, 0.925], script: [3, 0.97],
  truncated: [2, 0.905],
};

/** 400 frames of one sample each beside one of 600: too narrow to draw. */
export const NARROW = [
  ...Array.from({ length: 400 }, (_, i) => `p;main;tiny_${String(i).padStart(3, "0")};leaf_${i % 7} 1`),
  "p;main;wide 600",
];

/** By share: grew 10 → 30 %, shrank 60 → 20 %, gone 20 %, new 40 %, steady 10 %; 1000 samples each. */
export const BEFORE = ["p;gone 200", "p;grew 100", "p;shrank 600", "p;steady 100"];
export const AFTER = ["p;grew 300", "p;new 400", "p;shrank 200", "p;steady 100"];

/* C: nine tenths of it are one multiplication in a loop, inlined. */
export const CHURN = `static inline uint64_t blend(uint64_t h, uint64_t i)
{
	return (h ^ i) * 0x9e3779b97f4a7c15u % 1000003;
}
__attribute__((noipa)) uint64_t churn(uint64_t n)
{
	uint64_t h = n;
	for (uint64_t i = 1; i < n; i++)
		h = blend(h, i);
	return h;
}
`;
