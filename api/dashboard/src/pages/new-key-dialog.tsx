import { useId, useState, type FormEvent } from "react";

import { ApiError, send } from "@/api/client";
import { keepKey } from "@/lib/key";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Code, Notice } from "@/ui/parts";

const SCOPES: readonly (readonly [string, string])[] = [
  ["submit", "submit jobs"],
  ["read", "look at jobs, queues and workers"],
  ["payload", "see payloads, results and errors"],
  ["work", "take jobs and report on them"],
  ["operate", "cancel, retry, pause, purge, set"],
  ["admin", "make and revoke keys, read the audit trail"],
];

const DAYS: readonly (readonly [string, string])[] = [["7", "in a week"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"], ["", "never"]];

const words = (text: string): string[] | undefined => {
  const found = text.split(/[\s,]+/).filter(Boolean);
  return found.length === 0 ? undefined : found;
};

/** Makes a key, and shows its secret this once. */
export function NewKeyDialog({ first, onClose }: { first: boolean; onClose: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly string[]>(["read"]);
  const [days, setDays] = useState("90");
  const [queues, setQueues] = useState("");
  const [types, setTypes] = useState("");
  const [rate, setRate] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [token, setToken] = useState<string | null>(null);
  const id = useId();
  const wouldLockOut = first && !scopes.includes("admin");

  const make = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await send<{ token: string }>("POST", "/keys", {
        name: name.trim(), scopes: SCOPES.map(([scope]) => scope).filter((scope) => scopes.includes(scope)),
        expires: days === "" ? null : Number(days) * 86_400, queues: words(queues), job_types: words(types), rate: rate.trim() || undefined,
      });
      setToken(made.token);
    } catch (refused) {
      setError(refused instanceof ApiError ? refused.message : String(refused));
    } finally {
      setBusy(false);
    }
  };
  if (token !== null) {
    return (
      <Dialog open onClose={onClose} title="The key is made" foot={
        <>
          {first ? <Button look="primary" onClick={() => { keepKey(token); onClose(); }}>Use it in this tab</Button> : null}
          <Button look={first ? undefined : "primary"} onClick={onClose}>Done</Button>
        </>
      }>
        <Notice tone="warn" title="Copy it now: it cannot be shown again" />
        <Code text={token} label="Key" wrapped />
      </Dialog>
    );
  }
  return (
    <Dialog open onClose={onClose} title="New API key">
      <form className="stack" onSubmit={(event) => void make(event)}>
        <div className="field">
          <label htmlFor={`${id}-name`}>Name</label>
          <input id={`${id}-name`} className="input" value={name} maxLength={200} required autoComplete="off" onChange={(event) => setName(event.target.value)} />
          <span className="hint">Who or what will use it.</span>
        </div>
        <fieldset className="choices">
          <legend>It may</legend>
          {SCOPES.map(([scope, what]) => (
            <label className="check" key={scope}>
              <input type="checkbox" checked={scopes.includes(scope)}
                onChange={(event) => setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((its) => its !== scope))} />
              <span><code>{scope}</code> <span className="faint">{what}</span></span>
            </label>
          ))}
        </fieldset>
        <div className="fields">
          <div className="field">
            <label htmlFor={`${id}-days`}>It ends</label>
            <select id={`${id}-days`} className="input" value={days} onChange={(event) => setDays(event.target.value)}>
              {DAYS.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
            </select>
          </div>
          <div className="field">
            <label htmlFor={`${id}-rate`}>Requests at most</label>
            <input id={`${id}-rate`} className="input" value={rate} placeholder="no limit" autoComplete="off" onChange={(event) => setRate(event.target.value)} />
            <span className="hint">such as 100/s or 600/m</span>
          </div>
          <div className="field">
            <label htmlFor={`${id}-queues`}>Only queues</label>
            <input id={`${id}-queues`} className="input" value={queues} placeholder="all" autoComplete="off" onChange={(event) => setQueues(event.target.value)} />
          </div>
          <div className="field">
            <label htmlFor={`${id}-types`}>Only job types</label>
            <input id={`${id}-types`} className="input" value={types} placeholder="all" autoComplete="off" onChange={(event) => setTypes(event.target.value)} />
          </div>
        </div>
        {wouldLockOut ? <Notice tone="warn" title="This would be the first key">From then on the API asks for one. Without <code>admin</code> nobody could make another here.</Notice> : null}
        {error === null ? null : <Notice tone="bad" title="It was not made">{error}</Notice>}
        <div className="row">
          <Button look="primary" type="submit" busy={busy} disabled={name.trim() === "" || scopes.length === 0}>Make the key</Button>
          <Button onClick={onClose}>Leave it</Button>
        </div>
      </form>
    </Dialog>
  );
}
