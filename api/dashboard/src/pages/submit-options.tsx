import type { Submission } from "@/api/jobs";

export interface OptionTexts {
  priority: string;
  delay: string;
  max_attempts: string;
  unique_key: string;
  keep_payload: boolean;
}

export const EMPTY: OptionTexts = { priority: "", delay: "", max_attempts: "", unique_key: "", keep_payload: false };

const FIELDS = [
  ["priority", "Priority", "0", "-100 to 100, higher is sooner", /^-?\d{1,3}$/],
  ["delay", "Delay (s)", "0", "seconds until it may run", /^\d+(\.\d+)?$/],
  ["max_attempts", "Attempts", "the task's own", "runs before it is failed", /^[1-9]\d*$/],
  ["unique_key", "Unique key", "none", "no second job with it while this one lives", /^.{1,200}$/],
] as const;

const fits = (texts: OptionTexts, name: (typeof FIELDS)[number][0], form: RegExp): boolean =>
  texts[name].trim() === "" || form.test(texts[name].trim());

/** The options that are given; null where one does not fit. */
export function optionsOf(texts: OptionTexts): Partial<Submission> | null {
  if (FIELDS.some(([name, , , , form]) => !fits(texts, name, form))) return null;
  const number = (text: string) => (text.trim() === "" ? undefined : Number(text));
  return {
    priority: number(texts.priority), delay: number(texts.delay), max_attempts: number(texts.max_attempts),
    unique_key: texts.unique_key.trim() || undefined, keep_payload: texts.keep_payload || undefined,
  };
}

export function SubmitOptions({ texts, tried, onChange }: { texts: OptionTexts; tried: boolean; onChange: (texts: OptionTexts) => void }) {
  return (
    <details className="options">
      <summary>Options</summary>
      <div className="stack">
        <div className="fields">
          {FIELDS.map(([name, label, usual, hint, form]) => {
            const wrong = !fits(texts, name, form) && (tried || texts[name] !== "");
            return (
              <div className="field" key={name}>
                <label htmlFor={`option-${name}`}>{label}</label>
                <input id={`option-${name}`} className="input num" value={texts[name]} placeholder={usual} autoComplete="off" aria-invalid={wrong} aria-describedby={`option-${name}-hint`}
                  onChange={(event) => onChange({ ...texts, [name]: event.target.value })} />
                <span className="hint" id={`option-${name}-hint`}>{wrong ? <span className="wrong">{hint}</span> : hint}</span>
              </div>
            );
          })}
        </div>
        <label className="check">
          <input type="checkbox" checked={texts.keep_payload} onChange={(event) => onChange({ ...texts, keep_payload: event.target.checked })} />
          <span>Keep the payload after success, so that it can be submitted again.</span>
        </label>
      </div>
    </details>
  );
}
