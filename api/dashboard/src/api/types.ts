/** The API's values, named as its document names them. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type State = Schemas["JobRow"]["state"];
export type JobRow = Schemas["JobRow"];
export type JobList = Schemas["JobList"];
export type Queue = Schemas["Queue"];
export type Line = Schemas["Line"];
export type Worker = Schemas["Worker"];
export type Ready = Schemas["Ready"];
export type LogLine = Schemas["LogLine"];

/** An event of a job's history: what is known besides the first two depends on the event. */
export type Event = Schemas["Event"];

/** A job with its payload, result and error as text. */
export interface Job extends Omit<Schemas["Job"], "payload" | "result" | "payload_raw" | "result_raw" | "error"> {
  payload: string | null;
  result: string | null;
  error: Failure | null;
  /** The error's JSON as it stands. */
  errorText: string | null;
}

/** What a failed run left. Any worker may write it, so nothing in it is certain. */
export interface Failure {
  type: string | null;
  message: string | null;
  traceback: string | null;
}

export const STATES: readonly State[] = [
  "running", "queued", "retrying", "scheduled", "blocked", "failed", "succeeded", "cancelled",
];

export const WAITING: readonly State[] = ["queued", "retrying", "scheduled", "blocked"];

export const isOver = (state: State): boolean =>
  state === "failed" || state === "succeeded" || state === "cancelled";

/** What a worker publishes about a job type. */
export interface Published {
  schema?: JsonSchema;
  queue?: string;
  description?: string;
  max_attempts?: number | null;
  timeout?: number | null;
}

export interface JobType {
  job_type: string;
  published: Published;
}

export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean | JsonSchema;
  enum?: unknown[];
  anyOf?: JsonSchema[];
  items?: JsonSchema;
  default?: unknown;
  format?: string;
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  minimum?: number;
  maximum?: number;
}
