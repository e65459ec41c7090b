/** The jobs explorer's search: qualifiers such as `queue:mail state:failed type:send_email`, or a job's id. */
import { STATES, type State } from "@/api/types";

export interface Search {
  queue?: string;
  state?: State;
  job_type?: string;
}

/** Qualifiers as they are typed, and the parameter of the API that each stands for. */
export const QUALIFIERS = { queue: "queue", state: "state", type: "job_type" } as const;
type Qualifier = keyof typeof QUALIFIERS;

export const JOB_ID = /^[A-Za-z0-9][A-Za-z0-9._-]*:[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}$/;

export type Parsed = { id: string } | { search: Search; wrong: string | null };

export function parseSearch(text: string): Parsed {
  const words = text.trim().split(/\s+/).filter(Boolean);
  if (words.length === 1 && JOB_ID.test(words[0]!) && !isQualified(words[0]!)) return { id: words[0]! };
  const search: Record<string, string> = {};
  let wrong: string | null = null;
  for (const word of words) {
    const at = word.indexOf(":");
    const name = word.slice(0, at).toLowerCase();
    const value = word.slice(at + 1);
    if (at < 0 || !(name in QUALIFIERS)) {
      wrong = `“${word}” is no qualifier: there are queue:, state: and type:, or the whole id of a job`;
    } else if (name === "state" && !(STATES as readonly string[]).includes(value)) {
      wrong = `there is no state “${value}”: ${STATES.join(", ")}`;
    } else if (value !== "") {
      search[QUALIFIERS[name as Qualifier]] = value;
    }
  }
  return { search: search as Search, wrong };
}

function isQualified(word: string): boolean {
  return word.slice(0, word.indexOf(":")) in QUALIFIERS;
}

/** The text that stands for a search. */
export function searchText(search: Search): string {
  return (Object.keys(QUALIFIERS) as Qualifier[])
    .filter((name) => search[QUALIFIERS[name]])
    .map((name) => `${name}:${search[QUALIFIERS[name]]}`)
    .join(" ");
}

export interface Known {
  queues: readonly string[];
  types: readonly string[];
}

/** What may complete the word at the end of a text: whole texts. */
export function completions(text: string, known: Known): string[] {
  const at = text.search(/\S*$/);
  const before = text.slice(0, at);
  const word = text.slice(at);
  const colon = word.indexOf(":");
  if (colon < 0) {
    const used = new Set(before.split(/\s+/).map((its) => its.slice(0, its.indexOf(":"))));
    return Object.keys(QUALIFIERS)
      .filter((name) => name.startsWith(word.toLowerCase()) && !used.has(name))
      .map((name) => `${before}${name}:`);
  }
  const name = word.slice(0, colon);
  const start = word.slice(colon + 1).toLowerCase();
  const all: Record<string, readonly string[]> = { queue: known.queues, state: STATES, type: known.types };
  const its = (all[name] ?? []).filter((value) => value.toLowerCase().includes(start) && value !== word.slice(colon + 1));
  return its.slice(0, 10).map((value) => `${before}${name}:${value}`);
}

export function searchOf(params: URLSearchParams): Search {
  const state = params.get("state");
  return {
    queue: params.get("queue") || undefined,
    state: (STATES as readonly (string | null)[]).includes(state) ? (state as State) : undefined,
    job_type: params.get("job_type") || undefined,
  };
}
