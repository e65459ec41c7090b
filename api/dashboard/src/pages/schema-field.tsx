import { useId } from "react";

import type { Field } from "@/lib/schema-form";

interface Props {
  field: Field;
  text: string | undefined;
  wrong: string | null;
  onChange: (text: string | undefined) => void;
}

/** One field of a payload. What is left empty is not sent. */
export function SchemaField({ field, text, wrong, onChange }: Props) {
  const id = useId();
  const described = { "aria-invalid": wrong !== null, "aria-describedby": `${id}-hint` };
  const value = text ?? "";
  const change = (next: string) => onChange(next === "" && !field.required ? undefined : next);
  return (
    <div className="field">
      <label htmlFor={id}><code>{field.label}</code>{field.required ? <span className="faint"> needed</span> : null}</label>
      {field.kind === "choice" || field.kind === "boolean" ? (
        <select id={id} className="input" value={value} onChange={(event) => change(event.target.value)} {...described}>
          <option value="">{field.usual === null ? (field.required ? "Choose one" : "not given") : `not given (${field.usual})`}</option>
          {(field.kind === "boolean" ? ["true", "false"] : field.choices).map((choice) => (
            <option key={choice} value={choice}>{choice.startsWith('"') ? (JSON.parse(choice) as string) : choice}</option>
          ))}
          {field.nullable ? <option value="null">null</option> : null}
        </select>
      ) : field.kind === "json" ? (
        <textarea id={id} className="input" rows={4} value={value} spellCheck={false} placeholder={field.usual ?? ""} onChange={(event) => change(event.target.value)} {...described} />
      ) : (
        <input id={id} className={`input ${field.kind === "text" ? "" : "num"}`} inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : undefined}
          value={value} placeholder={field.usual ?? ""} autoComplete="off" spellCheck={false} onChange={(event) => change(event.target.value)} {...described} />
      )}
      <span className="hint" id={`${id}-hint`}>{wrong === null ? field.hint : <span className="wrong">{wrong}</span>}</span>
    </div>
  );
}
