/** The one place that speaks HTTP: public REST routes of the same origin, and nothing else. */
import { apiKey, keyWanted } from "@/lib/key";
import type { components } from "./schema";

export type Problem = Partial<components["schemas"]["Problem"]> & Record<string, unknown>;

/** Where the API is: one up from the folder of this script, whatever prefix a proxy adds. */
const script = import.meta.url;
export const base = import.meta.env.DEV || import.meta.env.MODE === "test"
  ? `${location.origin}/`
  : new URL("..", script).href;

/** The path of `base`, without its last slash. */
export const basePath = new URL(base).pathname.replace(/\/$/, "");

/** The API refused, or could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem: Problem = {},
    /** Seconds after which to come back, where the API says so. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

export interface Ask {
  query?: Record<string, string | number | boolean | null | undefined>;
  /** JSON text: it is sent as it is. */
  body?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export function address(path: string, query: Ask["query"] = {}): string {
  const url = new URL(path.replace(/^\//, ""), base);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** A path whose parts are names that anybody may have chosen. */
export function path(parts: TemplateStringsArray, ...names: string[]): string {
  return parts.reduce((out, part, i) => out + part + (i < names.length ? encodeURIComponent(names[i]!) : ""), "");
}

export function authorized(headers: Record<string, string> = {}): Record<string, string> {
  const key = apiKey.get();
  return key === null ? headers : { ...headers, Authorization: `Bearer ${key}` };
}

/** Asks and answers the text. Raises `ApiError` for anything but success. */
export async function ask(method: string, where: string, what: Ask = {}): Promise<string> {
  const shown = apiKey.get();
  const headers = authorized({ Accept: "application/json", ...what.headers });
  if (what.body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(address(where, what.query), {
      method, headers, body: what.body ?? null, signal: what.signal ?? null,
      credentials: "same-origin", cache: "no-store", redirect: "error",
    });
    text = await answer.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The API does not answer. Is `taskq api` running?");
  }
  clockSkew(answer.headers.get("date"));
  if (answer.ok) return text;
  throw refusal(answer, text, shown);
}

function refusal(answer: Response, text: string, shown: string | null): ApiError {
  let problem: Problem = {};
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object") problem = value as Problem;
  } catch {
    // A proxy may answer with a page of its own.
  }
  // Only where nobody has given another key in the meantime.
  if (answer.status === 401 && apiKey.get() === shown) keyWanted.set(true);
  const after = Number(answer.headers.get("retry-after") ?? Number.NaN);
  const detail = problem.detail ?? problem.title ?? `The API answered ${answer.status} ${answer.statusText}`;
  return new ApiError(
    answer.status, problem.code ?? "http_error", detail, problem, Number.isFinite(after) ? after : null,
  );
}

export async function get<T>(where: string, query?: Ask["query"], signal?: AbortSignal): Promise<T> {
  return JSON.parse(await ask("GET", where, { query, signal })) as T;
}

export async function send<T>(method: string, where: string, value?: unknown, headers?: Ask["headers"]): Promise<T> {
  const body = value === undefined ? {} : { body: JSON.stringify(value) };
  const text = await ask(method, where, { ...body, headers });
  return (text === "" ? null : JSON.parse(text)) as T;
}

let skew = 0;

/** Notes how far the server's clock is from this browser's; small differences are the network's. */
function clockSkew(date: string | null): void {
  const at = date === null ? Number.NaN : Date.parse(date);
  if (Number.isNaN(at)) return;
  const away = at - Date.now();
  skew = Math.abs(away) > 3000 ? away : 0;
}

/** The server's time, as well as it is known. */
export const serverNow = (): number => Date.now() + skew;
