// SPDX-License-Identifier: Apache-2.0
/*
 * Colours of source text: comments, strings, numbers and keywords of the languages that profiles name. A line is split into
 * pieces that are the line again when they are joined; nothing is interpreted, so unusual text costs a colour at most.
 */

export type Piece = ["" | "comment" | "string" | "number" | "keyword", string];

interface Language {
  keywords: Set<string>;
  /** What begins a comment to the end of the line. */
  line: string[];
  /** Comments and strings that go over several lines: begin, end, kind. */
  long: [string, string, "comment" | "string"][];
  /** A quote begins one character at most: else it is a lifetime. */
  quoteIsChar?: boolean;
}

const words = (text: string): Set<string> => new Set(text.split(" "));
const C_LONG: Language["long"] = [["/*", "*/", "comment"]];
const BASIC = "break case catch class const continue default do else false finally for if new null return static switch this throw true try while void";
const C: Language = { line: ["//"], long: C_LONG, keywords: words(`${BASIC} auto bool char delete double enum extern float goto inline int long namespace nullptr private protected public register short signed sizeof struct template typedef typename union unsigned using virtual volatile constexpr #include #define #if #ifdef #ifndef #else #endif`) };
const LANGUAGES: [string, Language][] = [
  ["c h cc cpp cxx hpp hh m", C],
  ["java kt scala cs", { line: ["//"], long: C_LONG, keywords: words(`${BASIC} abstract boolean byte char double enum extends final float implements import instanceof int interface long override package private protected public short synchronized throws transient val var fun when`) }],
  ["js mjs cjs ts tsx jsx", { line: ["//"], long: [...C_LONG, ["`", "`", "string"]], keywords: words(`${BASIC} async await delete export extends from function import in instanceof interface let of super type typeof undefined var yield`) }],
  ["go", { line: ["//"], long: [...C_LONG, ["`", "`", "string"]], keywords: words("break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var") }],
  ["rs", { line: ["//"], long: C_LONG, quoteIsChar: true, keywords: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while") }],
  ["py", { line: ["#"], long: [['"""', '"""', "string"], ["'''", "'''", "string"]], keywords: words("and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield") }],
  ["rb", { line: ["#"], long: [], keywords: words("alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield") }],
  ["pl pm", { line: ["#"], long: [], keywords: words("and else elsif for foreach if last local my next no not or our package redo return sub undef unless until use while") }],
  ["php", { line: ["//", "#"], long: C_LONG, keywords: words(`${BASIC} abstract and array as echo elseif extends final fn foreach function global implements interface match namespace or private protected public require trait use var yield`) }],
];

export function languageOf(file: string): Language | null {
  const ending = /\.([a-z]+)$/i.exec(file)?.[1]?.toLowerCase() ?? "";
  return LANGUAGES.find(([endings]) => endings.split(" ").includes(ending))?.[1] ?? null;
}

const TOKEN = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|#?[A-Za-z_$][\w$]*|\d[\w.]*|\s+|./suy;

const CHAR = /'(?:[^'\\]|\\u\{\w*\}|\\.)'/uy;

/** Splits the lines of a file. null: a line that is not known. */
export function colour(lines: (string | null)[], language: Language | null): Piece[][] {
  let open: Language["long"][number] | null = null;
  return lines.map((line) => {
    const out: Piece[] = [];
    const put = (kind: Piece[0], text: string): void => {
      const last = out[out.length - 1];
      if (last && last[0] === kind)
        last[1] += text;
      else if (text !== "")
        out.push([kind, text]);
    };
    if (!language || line === null) {
      put("", line ?? "");
      return out;
    }
    let at = 0;
    while (at < line.length) {
      if (open) {
        const end: number = line.indexOf(open[1], at);
        const to = end < 0 ? line.length : end + open[1].length;
        put(open[2], line.slice(at, to));
        if (end >= 0)
          open = null;
        at = to;
        continue;
      }
      const begun = language.long.find(([begin]) => line.startsWith(begin, at));
      if (begun) {
        put(begun[2], begun[0]);
        at += begun[0].length;
        open = begun;
        continue;
      }
      if (language.line.some((c) => line.startsWith(c, at)) && !(line[at] === "#" && language.keywords.has("#if"))) {
        put("comment", line.slice(at));
        break;
      }
      const re = language.quoteIsChar && line[at] === "'" ? CHAR : TOKEN;
      re.lastIndex = at;
      const token = re.exec(line)?.[0] ?? line[at]!;
      const first = token[0]!;
      put(token.length > 1 && (first === '"' || first === "'") ? "string" : /\d/.test(first) ? "number" : language.keywords.has(token) ? "keyword" : "", token);
      at += token.length;
    }
    return out;
  });
}
