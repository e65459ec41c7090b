/**
 * JSON as text. Payloads and results are shown and edited as they are stored, never parsed into values
 * and written back: a value would lose integers above 2^53, the order of keys such as "10", and more.
 */
import { createScanner, format, parseTree, type Node, type ParseError } from "jsonc-parser";

/** The scanner's words: its own enum cannot be imported where modules are compiled one by one. */
const Kind = {
  OpenBrace: 1, CloseBrace: 2, OpenBracket: 3, CloseBracket: 4, Comma: 5, Null: 7, True: 8, False: 9,
  String: 10, Number: 11, LineBreak: 14, Trivia: 15, End: 17,
} as const;

/** The text of each member of a JSON object, by name, exactly as it stands. */
export function rawMembers(text: string): Map<string, string> {
  const out = new Map<string, string>();
  const scanner = createScanner(text, true);
  if (scanner.scan() !== Kind.OpenBrace) return out;
  let token = scanner.scan();
  while (token === Kind.String) {
    const name = scanner.getTokenValue();
    scanner.scan(); // the colon
    token = scanner.scan();
    const start = scanner.getTokenOffset();
    let depth = 0;
    for (; token !== Kind.End; token = scanner.scan()) {
      if (token === Kind.OpenBrace || token === Kind.OpenBracket) depth += 1;
      if (token === Kind.CloseBrace || token === Kind.CloseBracket) depth -= 1;
      if (depth === 0) break;
    }
    out.set(name, text.slice(start, scanner.getTokenOffset() + scanner.getTokenLength()));
    if (scanner.scan() !== Kind.Comma) break;
    token = scanner.scan();
  }
  return out;
}

/** An object with some members kept as text. The others are ordinary values. */
export function parseAround<T>(text: string, kept: readonly string[]): { value: T; raw: Map<string, string> } {
  const raw = rawMembers(text);
  const rest = [...raw].filter(([name]) => !kept.includes(name));
  const value = JSON.parse(`{${rest.map(([name, its]) => `${JSON.stringify(name)}:${its}`).join(",")}}`) as T;
  return { value, raw };
}

/** An object of members whose texts are given; what is undefined is left out. */
export function objectText(members: Iterable<readonly [string, string | undefined]>): string {
  const parts: string[] = [];
  for (const [name, text] of members) {
    if (text !== undefined) parts.push(`${JSON.stringify(name)}:${text}`);
  }
  return `{${parts.join(",")}}`;
}

/** The same JSON over several lines; every token stays as it is. Text that is no JSON comes back unchanged. */
export function pretty(text: string): string {
  if (text.length > PRETTY_MAX || problemOf(text) !== null) return text;
  const edits = format(text, undefined, { tabSize: 2, insertSpaces: true, eol: "\n" });
  let out = "";
  let at = 0;
  for (const edit of edits.toSorted((a, b) => a.offset - b.offset)) {
    out += text.slice(at, edit.offset) + edit.content;
    at = edit.offset + edit.length;
  }
  return out + text.slice(at);
}

export const PRETTY_MAX = 300_000;

/** What keeps a text from being JSON, in words; null where it is JSON. */
export function problemOf(text: string): string | null {
  if (text.trim() === "") return "it is empty";
  try {
    JSON.parse(text); // for its judgement only: the value is thrown away
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : "it is not JSON";
  }
}

/** The nodes of a JSON text; undefined where it is no JSON. */
export function tree(text: string): Node | undefined {
  const errors: ParseError[] = [];
  const root = parseTree(text, errors, { disallowComments: true });
  return errors.length > 0 ? undefined : root;
}

/** The texts of the members of a JSON object, through a tree; null for what is no object. */
export function membersOf(text: string): Map<string, string> | null {
  const root = tree(text);
  return root?.type === "object" ? rawMembers(text.slice(root.offset, root.offset + root.length)) : null;
}

export type TokenKind = "key" | "string" | "number" | "word" | "mark" | "space";

/** The tokens of a JSON text, for colouring. Their texts together are the text. */
export function tokens(text: string): { kind: TokenKind; text: string }[] {
  const out: { kind: TokenKind; text: string }[] = [];
  const scanner = createScanner(text, false);
  for (let token = scanner.scan(); token !== Kind.End; token = scanner.scan()) {
    const its = text.slice(scanner.getTokenOffset(), scanner.getTokenOffset() + scanner.getTokenLength());
    out.push({ kind: KINDS.get(token) ?? "mark", text: its });
  }
  for (let i = 0; i < out.length; i += 1) {
    const token = out[i]!;
    const next = out[i + 1]?.kind === "space" ? out[i + 2] : out[i + 1];
    if (token.kind === "string" && next?.text === ":") token.kind = "key";
  }
  return out;
}

const KINDS = new Map<number, TokenKind>([
  [Kind.String, "string"],
  [Kind.Number, "number"],
  [Kind.True, "word"],
  [Kind.False, "word"],
  [Kind.Null, "word"],
  [Kind.Trivia, "space"],
  [Kind.LineBreak, "space"],
]);
