import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useId, useState, type FormEvent } from "react";

import { ApiError, ask } from "@/api/client";
import { apiKey, keepKey } from "@/lib/key";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Notice } from "@/ui/parts";

/** Takes an API key, tries it, and keeps it for this tab or for this browser. */
export function KeyDialog() {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const [remember, setRemember] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const client = useQueryClient();
  const id = useId();

  useEffect(() => {
    const show = () => setOpen(true);
    document.addEventListener("taskq:key", show);
    return () => document.removeEventListener("taskq:key", show);
  }, []);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const before = apiKey.get();
    setBusy(true);
    setError(null);
    keepKey(text.trim(), remember);
    try {
      await ask("GET", "/job-types");
    } catch (refused) {
      // A key without the scope to read is a key none the less.
      if (!(refused instanceof ApiError && refused.status === 403)) {
        keepKey(before);
        setError(refused instanceof ApiError ? refused.message : String(refused));
        setBusy(false);
        return;
      }
    }
    setBusy(false);
    setText("");
    setOpen(false);
    await client.resetQueries();
  };

  return (
    <Dialog open={open} onClose={() => setOpen(false)} title="API key">
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <p className="muted">
          One of the keys in <code>TASKQ_API_KEYS</code>, or one that an administrator has made. It is sent in a
          header with each request, and never stands in an address.
        </p>
        <div className="field">
          <label htmlFor={id}>Key</label>
          <input
            id={id} className="input mono" type="password" value={text} autoComplete="off" spellCheck={false}
            onChange={(event) => setText(event.target.value)} aria-invalid={error !== null} required
          />
        </div>
        <label className="check">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.target.checked)} />
          <span>Remember it in this browser. Otherwise it is forgotten with this tab.</span>
        </label>
        {error === null ? null : <Notice tone="bad" title="The key was not taken">{error}</Notice>}
        <div className="row">
          <Button look="primary" type="submit" busy={busy} disabled={text.trim() === ""}>Use this key</Button>
        </div>
      </form>
    </Dialog>
  );
}
