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
export type Server = Schemas["Server"];
export type Self = Schemas["Self"];
export type Scope = Self["scopes"][number];
export type LogLine = Schemas["LogLine"];

/** An event of a job's history: what is known besides the first two depends on the event. */
export type Event = Schemas["Event"];

/** A job with its payload, result and error as text. */
export interface Job extends Omit<Schemas["Job"], "payload" | "result" | "payload_raw" | "result_raw" | "error"> {
  payload: string | null;
  result: string | null;
  /** The key may not see payload and result: the answer has neither. */
  hidden: boolean;
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

export interface JobType extends Omit<Schemas["JobType"], "payload_schema"> {
  payload_schema: JsonSchema | null;
}

export type ErrorGroup = Schemas["ErrorGroup"];
export type ErrorJobs = Schemas["ErrorJobs"];
export type Bulk = Schemas["Bulk"];
export type BulkFilter = Schemas["BulkFilter"];
export type BulkPreview = Schemas["BulkPreview"];
export type Position = Schemas["Position"];
export type Finding = Schemas["Finding"];
export type Findings = Schemas["Findings"];

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

export type Key = Schemas["Key"];
export type AuditEntry = Schemas["AuditEntry"];
