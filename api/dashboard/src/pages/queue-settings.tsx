import { useState, type FormEvent } from "react";

import { ApiError, path, send } from "@/api/client";
import { useMay } from "@/api/may";
import type { Queue } from "@/api/types";
import { useAct } from "@/lib/actions";
import { bytes, count, duration } from "@/lib/format";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Notice, Panel } from "@/ui/parts";
import { toast } from "@/ui/toast";

interface Setting {
  name: string;
  label: string;
  unit: string;
  hint: string;
  usual: string;
}

/** What can be set, in reading order, with what holds where nothing is. */
const SETTINGS: readonly Setting[] = [
  { name: "aging_ms", label: "Ageing", unit: "ms", hint: "Waiting that is worth one point of priority. 0: first come, first served.", usual: "10 s" },
  { name: "max_depth", label: "Most waiting jobs", unit: "jobs", hint: "More are refused with 429. 0: no limit.", usual: "no limit" },
  { name: "succeeded_seconds", label: "Succeeded jobs are kept", unit: "s", hint: "", usual: "1 d" },
  { name: "succeeded_max", label: "Most succeeded jobs kept", unit: "jobs", hint: "", usual: "100,000" },
  { name: "succeeded_bytes", label: "Most bytes of succeeded jobs", unit: "bytes", hint: "", usual: "268 MB" },
  { name: "failed_seconds", label: "Failed jobs are kept", unit: "s", hint: "", usual: "30 d" },
  { name: "failed_max", label: "Most failed jobs kept", unit: "jobs", hint: "", usual: "100,000" },
  { name: "failed_bytes", label: "Most bytes of failed jobs", unit: "bytes", hint: "", usual: "268 MB" },
  { name: "cancelled_seconds", label: "Cancelled jobs are kept", unit: "s", hint: "", usual: "1 d" },
  { name: "cancelled_max", label: "Most cancelled jobs kept", unit: "jobs", hint: "", usual: "10,000" },
  { name: "cancelled_bytes", label: "Most bytes of cancelled jobs", unit: "bytes", hint: "", usual: "67 MB" },
  { name: "dedup_seconds", label: "Repeats are recognised", unit: "s", hint: "For so long after a job has ended.", usual: "10 min" },
  { name: "dedup_max", label: "Most stubs kept for that", unit: "stubs", hint: "", usual: "default" },
];

function shown(setting: Setting, value: number): string {
  if (setting.unit === "ms") return duration(value);
  if (setting.unit === "s") return duration(value * 1000);
  if (setting.unit === "bytes") return bytes(value);
  return count(value);
}

export function QueueSettings({ queue }: { queue: Queue }) {
  const [open, setOpen] = useState(false);
  const may = useMay();
  const its = queue.settings as Record<string, number | null | undefined>;
  const set = SETTINGS.filter((setting) => typeof its[setting.name] === "number");
  const always = SETTINGS.slice(0, 2).filter((setting) => !set.includes(setting));
  return (
    <Panel title="Settings" note={set.length === 0 ? "all as by default" : undefined}
      actions={may("operate") ? <Button small icon="edit" onClick={() => setOpen(true)}>Change</Button> : null}>
      <dl className="facts">
        {set.map((setting) => (
          <Fact key={setting.name} label={setting.label} value={shown(setting, its[setting.name]!)} />
        ))}
        {always.map((setting) => <Fact key={setting.name} label={setting.label} value={setting.usual} faint />)}
      </dl>
      {open ? <Change queue={queue} onClose={() => setOpen(false)} /> : null}
    </Panel>
  );
}

function Fact({ label, value, faint = false }: { label: string; value: string; faint?: boolean }) {
  return (
    <>
      <dt>{label}</dt>
      <dd className={faint ? "faint" : ""}>{value}</dd>
    </>
  );
}

function Change({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const before = queue.settings as Record<string, number | null | undefined>;
  const [texts, setTexts] = useState<Record<string, string>>(() =>
    Object.fromEntries(SETTINGS.map(({ name }) => [name, before[name] == null ? "" : String(before[name])])));
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const { refresh } = useAct();

  const changes: Record<string, number | null> = {};
  for (const { name } of SETTINGS) {
    const text = texts[name]!.trim();
    const value = text === "" ? null : Number(text);
    if (value !== (before[name] ?? null)) changes[name] = value;
  }
  const wrong = Object.entries(changes).filter(([, value]) => value !== null && !Number.isInteger(value)).map(([name]) => name);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      await send("PATCH", path`/queues/${queue.name}`, changes);
      toast("good", `The settings of ${queue.name} are changed`);
      await refresh();
      onClose();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused : new ApiError(0, "", String(refused)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog open onClose={onClose} title={`Settings of ${queue.name}`} wide>
      <form className="stack" onSubmit={(event) => void save(event)}>
        <p className="muted">An empty field is the default. A change holds for what comes after it.</p>
        <div className="fields">
          {SETTINGS.map((setting) => {
            const refused = error?.problem.field === setting.name;
            return (
              <div className="field" key={setting.name}>
                <label htmlFor={`set-${setting.name}`}>{setting.label} <span className="faint">({setting.unit})</span></label>
                <input
                  id={`set-${setting.name}`} className="input num" inputMode="numeric" value={texts[setting.name]} placeholder={setting.usual}
                  aria-invalid={refused || wrong.includes(setting.name)} aria-describedby={`hint-${setting.name}`}
                  onChange={(event) => setTexts({ ...texts, [setting.name]: event.target.value })}
                />
                <span className="hint" id={`hint-${setting.name}`}>
                  {wrong.includes(setting.name) ? <span className="wrong">a whole number</span> : setting.hint}
                </span>
              </div>
            );
          })}
        </div>
        {error === null ? null : <Notice tone="bad" title="It was refused">{error.message}</Notice>}
        <div className="row">
          <Button look="primary" type="submit" busy={busy} disabled={Object.keys(changes).length === 0 || wrong.length > 0}>Save</Button>
          <Button onClick={onClose}>Keep as it is</Button>
        </div>
      </form>
    </Dialog>
  );
}
