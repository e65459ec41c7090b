import { useId, useState, type FormEvent } from "react";
import { Link } from "react-router";

import { ApiError } from "@/api/client";
import { submitJob, type Submission } from "@/api/jobs";
import { useMay } from "@/api/may";
import type { Job, JsonSchema } from "@/api/types";
import { useAct } from "@/lib/actions";
import { randomId } from "@/lib/id";
import { problemOf } from "@/lib/raw";
import { compose, decompose, fieldsOf, wrongWith, type Field } from "@/lib/schema-form";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { StateBadge } from "@/ui/icons";
import { Notice, Panel, Segments } from "@/ui/parts";

import { SchemaField } from "./schema-field";
import { EMPTY, optionsOf, SubmitOptions, type OptionTexts } from "./submit-options";

/** A form drawn from the schema that workers publish. */
export function SubmitForm({ name, schema, queue }: { name: string; schema?: JsonSchema; queue?: string }) {
  const fields = fieldsOf(schema);
  const [way, setWay] = useState<"form" | "json">(fields === null ? "json" : "form");
  const [texts, setTexts] = useState<Record<string, string | undefined>>({});
  const [json, setJson] = useState("{}");
  const [options, setOptions] = useState<OptionTexts>(EMPTY);
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [stored, setStored] = useState<Job | null>(null);
  const [key, setKey] = useState(randomId);
  const { refresh } = useAct();
  const id = useId();

  const payload = way === "form" && fields !== null ? compose(fields, texts) : json;
  const wrong = way === "form" && fields !== null ? fields.some((field) => wrongWith(field, texts[field.name]) !== null) : problemOf(json) !== null;
  const change = (what: () => void) => {
    what();
    setError(null);
    setKey(randomId()); // another job is meant
  };
  const turn = (next: "form" | "json") => {
    if (next === "json") setJson(payload);
    else if (fields !== null) {
      const its = decompose(fields, json);
      if (its === null) return setError(new ApiError(0, "", "This payload has what the form cannot show: go on as JSON"));
      setTexts(its);
    }
    setError(null);
    setWay(next);
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    const parsed = optionsOf(options);
    if (wrong || parsed === null) return;
    setBusy(true);
    setError(null);
    try {
      const wanted: Submission = { job_type: name, payload, queue, ...parsed };
      setStored(await submitJob(wanted, key));
      setKey(randomId());
      await refresh();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused : new ApiError(0, "", String(refused)));
    } finally {
      setBusy(false);
    }
  };

  if (!useMay()("submit")) {
    return <Panel title="Submit one"><Notice tone="plain" title="This key may not submit jobs">It takes the scope <code>submit</code>.</Notice></Panel>;
  }
  return (
    <Panel
      title="Submit one"
      actions={fields === null ? null : <Segments label="How to fill it in" value={way} onChange={turn} options={[["form", "Form"], ["json", "JSON"]]} />}
    >
      <form className="stack" onSubmit={(event) => void submit(event)} noValidate>
        {way === "form" && fields !== null ? (
          <div className="stack">
            {fields.map((field) => (
              <SchemaField key={field.name} field={field} text={texts[field.name]} wrong={problemAt(field, texts, tried, error)}
                onChange={(text) => change(() => setTexts({ ...texts, [field.name]: text }))} />
            ))}
          </div>
        ) : (
          <div className="field">
            <label htmlFor={`${id}-json`}>Payload</label>
            <textarea id={`${id}-json`} className="input" rows={10} value={json} spellCheck={false} aria-invalid={wrong} aria-describedby={`${id}-hint`}
              onChange={(event) => change(() => setJson(event.target.value))} />
            <span className="hint" id={`${id}-hint`}>{wrong ? <span className="wrong">Not JSON: {problemOf(json)}</span> : "JSON, sent as it stands here."}</span>
          </div>
        )}
        <SubmitOptions texts={options} tried={tried} onChange={(next) => change(() => setOptions(next))} />
        {error === null ? null : <Notice tone="bad" title="It was not stored">{error.message}</Notice>}
        {stored === null ? null : (
          <Notice tone="good" title={<>Stored: <Link className="link break" to={to.job(stored.id)}>{stored.id}</Link></>}>
            <StateBadge state={stored.state} /> when it was stored. Its page follows what becomes of it.
          </Notice>
        )}
        <div className="row"><Button look="primary" type="submit" busy={busy}>Submit</Button></div>
      </form>
    </Panel>
  );
}

function problemAt(field: Field, texts: Record<string, string | undefined>, tried: boolean, error: ApiError | null): string | null {
  const at = error?.problem.field;
  if (typeof at === "string" && (at === field.name || at === `payload.${field.name}`)) return error!.message;
  const wrong = wrongWith(field, texts[field.name]);
  // Nobody is told of what they have not come to yet.
  return tried || (texts[field.name] ?? "") !== "" ? wrong : null;
}
