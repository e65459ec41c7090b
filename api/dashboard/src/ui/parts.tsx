/** Small pieces that every page uses. */
import { useState, type ReactNode } from "react";

import { ApiError } from "@/api/client";
import { clock, duration, exactly, relative } from "@/lib/format";
import { useNow } from "@/lib/now";
import { zone } from "@/lib/settings";
import { useStore } from "@/lib/store";

import { Button, IconButton } from "./button";
import { Icon, type IconName } from "./icons";
import { toast } from "./toast";

export type Tone = "good" | "warn" | "bad" | "plain" | "accent";

const TONE_ICON: Record<Tone, IconName> = {
  good: "good", warn: "warn", bad: "bad", plain: "info", accent: "info",
};

export function Notice({ tone, title, children, icon }: { tone: Tone; title: ReactNode; children?: ReactNode; icon?: IconName }) {
  return (
    <div className={`notice t-${tone}`} role={tone === "bad" ? "alert" : undefined}>
      <Icon name={icon ?? TONE_ICON[tone]} />
      <div className="notice-title">{title}</div>
      {children ? <div className="notice-body">{children}</div> : null}
    </div>
  );
}

export function Tag({ tone = "plain", icon, children }: { tone?: Tone; icon?: IconName; children: ReactNode }) {
  return (
    <span className={`tag t-${tone}`}>
      {icon ? <Icon name={icon} /> : null}
      {children}
    </span>
  );
}

export function Panel({ title, note, actions, children, bare = false, id }: {
  title?: ReactNode; note?: ReactNode; actions?: ReactNode; children: ReactNode; bare?: boolean; id?: string;
}) {
  return (
    <section className="panel" id={id} aria-label={typeof title === "string" ? title : undefined}>
      {title ? (
        <div className="panel-head">
          <h2>{title}</h2>
          {note ? <span className="note">{note}</span> : null}
          {actions ? <div className="actions">{actions}</div> : null}
        </div>
      ) : null}
      {bare ? children : <div className="panel-body">{children}</div>}
    </section>
  );
}

export function Empty({ icon, title, children, small = false }: { icon?: IconName; title: string; children?: ReactNode; small?: boolean }) {
  return (
    <div className={`empty ${small ? "small" : ""}`}>
      {icon ? <Icon name={icon} /> : null}
      <h3>{title}</h3>
      {children}
    </div>
  );
}

/** Says what went wrong and what to do about it. */
export function Trouble({ error, again }: { error: unknown; again?: () => void }) {
  const its = error instanceof ApiError ? error : null;
  return (
    <Notice tone="bad" title={its === null ? "Something went wrong in this page" : titleOf(its)}>
      {its === null ? String(error) : its.message}
      {again ? <p><Button small icon="retry" onClick={again}>Try again</Button></p> : null}
    </Notice>
  );
}

function titleOf(error: ApiError): string {
  if (error.status === 0) return "The API does not answer";
  if (error.status === 401) return "A key is needed";
  if (error.status === 403) return "This key may not do that";
  if (error.status === 404) return "It is not there";
  if (error.status === 503) return "Redis cannot be used now";
  return error.problem.title ?? "The API refused";
}

export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div className="stack tight" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, i) => <div key={i} className="skeleton" data-width={i % 3} />)}
    </div>
  );
}

/** A time of the API: how long ago or how far ahead, exactly on a tooltip. */
export function Ago({ at, none = "–" }: { at: string | null | undefined; none?: string }) {
  const now = useNow();
  const its = useStore(zone);
  if (!at) return <span className="faint">{none}</span>;
  const date = new Date(at);
  return <time dateTime={at} title={exactly(date, its)} className="nowrap">{relative(date.getTime(), now)}</time>;
}

/** A time of the API in the chosen zone. */
export function At({ at, ms = false, none = "–" }: { at: string | null | undefined; ms?: boolean; none?: string }) {
  const its = useStore(zone);
  if (!at) return <span className="faint">{none}</span>;
  const date = new Date(at);
  return <time dateTime={at} title={exactly(date, its)} className="nowrap num">{clock(date, its, new Date(), ms)}</time>;
}

/** How long something has lasted, or lasts still where it has no end. */
export function Lasted({ from, to }: { from: string | null | undefined; to?: string | null }) {
  return to || !from ? <>{from && to ? duration(Date.parse(to) - Date.parse(from)) : "–"}</> : <Since from={from} />;
}

function Since({ from }: { from: string }) {
  const now = useNow();
  return <>{duration(Math.max(0, Math.floor((now - Date.parse(from)) / 1000)) * 1000)}</>;
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast("good", "Copied");
  } catch {
    toast("warn", "This browser does not allow copying here: select the text instead");
  }
}

export function CopyButton({ text, label = "Copy", small = true, className = "" }: { text: string; label?: string; small?: boolean; className?: string }) {
  const [done, setDone] = useState(false);
  return (
    <IconButton
      label={label} icon={done ? "check" : "copy"} small={small} className={className}
      onClick={() => {
        void copyText(text);
        setDone(true);
        setTimeout(() => setDone(false), 1500);
      }}
    />
  );
}

/** Text as it is, to be read and copied. */
export function Code({ text, wrapped = false, label }: { text: string; wrapped?: boolean; label: string }) {
  return (
    <div className={`code ${wrapped ? "wrapped" : ""}`}>
      {/* A region that scrolls has to be reached by the keyboard. */}
      <pre tabIndex={0} aria-label={label} role="region"><code>{text}</code></pre>
      <CopyButton text={text} className="copy" />
    </div>
  );
}

export function Meter({ share, label, state }: { share: number; label: string; state?: string }) {
  const width = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0));
  return (
    <div
      className={`meter ${state ? `s-${state}` : ""}`} role="meter" aria-label={label}
      aria-valuenow={Math.round(width * 100)} aria-valuemin={0} aria-valuemax={100}
    >
      <span style={{ width: `${width * 100}%` }} />
    </div>
  );
}

export function Segments<T extends string>({ value, onChange, options, label }: {
  value: T; onChange: (value: T) => void; options: readonly (readonly [T, string])[]; label: string;
}) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map(([its, text]) => (
        <button key={its} type="button" className="segment" aria-pressed={its === value} onClick={() => onChange(its)}>
          {text}
        </button>
      ))}
    </div>
  );
}
