/** A JSON Schema as fields of a form, and the fields' texts as JSON text. No value is ever parsed. */
import type { JsonSchema } from "@/api/types";

import { membersOf, problemOf } from "./raw";

export type Kind = "text" | "integer" | "number" | "boolean" | "choice" | "json";

export interface Field {
  name: string;
  kind: Kind;
  label: string;
  hint: string;
  required: boolean;
  /** Whether null may be given. */
  nullable: boolean;
  /** JSON texts, for a choice. */
  choices: readonly string[];
  /** JSON text of the default, where the schema says one. */
  usual: string | null;
}

/** The fields that a schema asks for; null where a form cannot show them and only JSON will do. */
export function fieldsOf(schema: JsonSchema | undefined): Field[] | null {
  const properties = schema?.properties;
  if (properties === undefined || typeof properties !== "object" || Object.keys(properties).length === 0) return null;
  const required = new Set(schema?.required ?? []);
  return Object.entries(properties).map(([name, given]) => {
    const { schema: its, nullable } = plain(given, schema?.$defs ?? {});
    return {
      name,
      kind: kindOf(its),
      label: name,
      hint: String(its.description ?? hintOf(its)),
      required: required.has(name),
      nullable,
      choices: (its.enum ?? []).map((value) => JSON.stringify(value)),
      usual: given.default === undefined ? null : JSON.stringify(given.default),
    };
  });
}

function plain(schema: JsonSchema, defs: Record<string, JsonSchema>): { schema: JsonSchema; nullable: boolean } {
  const named = schema.$ref?.startsWith("#/$defs/") ? defs[schema.$ref.slice("#/$defs/".length)] : undefined;
  if (named !== undefined) return { schema: { ...named, ...(schema.description ? { description: schema.description } : {}) }, nullable: false };
  const ways = schema.anyOf ?? [];
  const others = ways.filter((way) => way.type !== "null");
  if (ways.length > 0 && others.length === 1) {
    return { schema: { ...schema, anyOf: undefined, ...plain(others[0]!, defs).schema }, nullable: others.length < ways.length };
  }
  return { schema, nullable: false };
}

function kindOf(schema: JsonSchema): Kind {
  if (schema.enum !== undefined) return "choice";
  if (schema.type === "string") return "text";
  if (schema.type === "integer") return "integer";
  if (schema.type === "number") return "number";
  if (schema.type === "boolean") return "boolean";
  return "json";
}

function hintOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return "one of these";
  if (schema.type === "array") return "a JSON array";
  if (schema.type === "object") return "a JSON object";
  const type = typeof schema.type === "string" ? schema.type : "any JSON";
  return schema.format ? `${type}, ${schema.format}` : type;
}

const INTEGER = /^-?(0|[1-9]\d*)$/;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** What is wrong with a field's text; null where nothing is. An optional field may be empty. */
export function wrongWith(field: Field, text: string | undefined): string | null {
  const its = text ?? "";
  // An empty text is a text: only one that nobody has touched is left out.
  if (field.kind === "text") return text === undefined && field.required ? "is needed" : null;
  if (its.trim() === "") return field.required ? "is needed" : null;
  if (field.kind === "integer") return INTEGER.test(its.trim()) ? null : "must be a whole number";
  if (field.kind === "number") return NUMBER.test(its.trim()) ? null : "must be a number";
  if (field.kind === "json") {
    const problem = problemOf(its);
    return problem === null ? null : `must be JSON: ${problem}`;
  }
  return null;
}

/** The payload that the fields' texts make. */
export function compose(fields: readonly Field[], texts: Readonly<Record<string, string | undefined>>): string {
  const members: string[] = [];
  for (const field of fields) {
    const text = texts[field.name];
    if (text === undefined || (field.kind !== "text" && text.trim() === "")) continue;
    members.push(`  ${JSON.stringify(field.name)}: ${field.kind === "text" ? JSON.stringify(text) : text.trim()}`);
  }
  return members.length === 0 ? "{}" : `{\n${members.join(",\n")}\n}`;
}

/** The fields' texts that make a payload; null where the form cannot show all of it. */
export function decompose(fields: readonly Field[], payload: string): Record<string, string> | null {
  const members = membersOf(payload);
  if (members === null) return null;
  const out: Record<string, string> = {};
  for (const [name, text] of members) {
    const field = fields.find((its) => its.name === name);
    if (field === undefined) return null;
    if (field.kind === "text") {
      if (!text.startsWith('"')) return null;
      out[name] = JSON.parse(text) as string;
    } else if (field.kind === "choice" && !field.choices.includes(text)) {
      return null;
    } else {
      out[name] = text;
    }
  }
  return out;
}
