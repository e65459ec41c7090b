import { useId, useState, type ReactNode } from "react";

import { ApiError } from "@/api/client";

import { Button } from "./button";
import { Dialog } from "./dialog";
import { Notice } from "./parts";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  action: string;
  danger?: boolean;
  /** What has to be typed before the action can be taken. */
  typed?: string;
  run: () => Promise<unknown>;
}

/** Asks before something is done; what would be hard to undo has to be typed. Shows why it was refused. */
export function Confirm({ open, onClose, title, children, action, danger = false, typed, run }: Props) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const id = useId();

  const close = () => {
    setText("");
    setError(null);
    onClose();
  };
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      await run();
      close();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused.message : String(refused));
    } finally {
      setBusy(false);
    }
  };
  const ready = typed === undefined || text === typed;

  return (
    <Dialog
      open={open} onClose={close} title={title}
      foot={
        <>
          <Button onClick={close}>Keep as it is</Button>
          <Button look={danger ? "danger primary" : "primary"} busy={busy} disabled={!ready} onClick={act}>
            {action}
          </Button>
        </>
      }
    >
      <div className="stack tight muted">{children}</div>
      {typed === undefined ? null : (
        <div className="field">
          <label htmlFor={id}>Type <code>{typed}</code> to go on</label>
          <input
            id={id} className="input mono" value={text} autoComplete="off" spellCheck={false}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => event.key === "Enter" && ready && !busy && void act()}
          />
        </div>
      )}
      {error === null ? null : <Notice tone="bad" title="It was refused">{error}</Notice>}
    </Dialog>
  );
}
