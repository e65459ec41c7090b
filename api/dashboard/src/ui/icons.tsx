/** Line drawings of 16 by 16. A state has a shape of its own, so that nobody needs its colour. */
import type { ReactNode } from "react";

import type { State } from "@/api/types";

const DRAWINGS = {
  overview: <><path d="M2.5 8.5 5 6l2.5 3L11 4.5l2.5 3" /><path d="M2.5 13h11" /></>,
  jobs: <><path d="M5.5 4h8M5.5 8h8M5.5 12h8" /><path d="M2.5 4h.01M2.5 8h.01M2.5 12h.01" /></>,
  queue: <><rect x="2.5" y="2.5" width="11" height="3" rx="1" /><rect x="2.5" y="6.75" width="11" height="3" rx="1" /><path d="M4 12.5h8" /></>,
  errors: <><path d="M8 2.5 14 13H2L8 2.5Z" /><path d="M8 6.5v3M8 11.2v.01" /></>,
  workers: <><rect x="3.5" y="3.5" width="9" height="9" rx="1.5" /><path d="M6.5 6.5h3v3h-3zM6 1.5v2M10 1.5v2M6 12.5v2M10 12.5v2M1.5 6h2M1.5 10h2M12.5 6h2M12.5 10h2" /></>,
  types: <><path d="m5.5 4.5-3 3.5 3 3.5M10.5 4.5l3 3.5-3 3.5M9 3 7 13" /></>,
  server: <><rect x="2.5" y="2.5" width="11" height="4.5" rx="1" /><rect x="2.5" y="9" width="11" height="4.5" rx="1" /><path d="M5 4.75h.01M5 11.25h.01" /></>,
  keys: <><circle cx="5.5" cy="10.5" r="3" /><path d="m7.7 8.3 5.3-5.3M11 5l1.8 1.8" /></>,
  audit: <><path d="M4 2.5h6l2.5 2.5v8.5H4z" /><path d="M6.5 7h4M6.5 9.5h4" /></>,
  bulk: <><rect x="2.5" y="5" width="8.5" height="8.5" rx="1.5" /><path d="M5 2.5h7A1.5 1.5 0 0 1 13.5 4v7" /><path d="m5 9.2 1.4 1.4L8.8 8" /></>,
  search: <><circle cx="7" cy="7" r="4.2" /><path d="m10.2 10.2 3.3 3.3" /></>,
  sun: <><circle cx="8" cy="8" r="2.8" /><path d="M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9" /></>,
  moon: <path d="M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6Z" />,
  screen: <><rect x="2" y="3" width="12" height="8" rx="1.2" /><path d="M6 13.5h4" /></>,
  menu: <path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />,
  close: <path d="m4 4 8 8M12 4l-8 8" />,
  check: <path d="m3 8.5 3.2 3.2L13 5" />,
  copy: <><rect x="5.5" y="5.5" width="8" height="8" rx="1.5" /><path d="M10.5 3.5v-.2c0-.5-.4-.8-.8-.8H3.3c-.4 0-.8.3-.8.8v6.4c0 .4.3.8.8.8h.2" /></>,
  down: <path d="m4.5 6.5 3.5 3.5 3.5-3.5" />,
  right: <path d="m6.5 4.5 3.5 3.5-3.5 3.5" />,
  left: <path d="M9.5 4.5 6 8l3.5 3.5" />,
  more: <path d="M3.5 8h.01M8 8h.01M12.5 8h.01" strokeWidth="2.2" />,
  pause: <path d="M5.5 3.5v9M10.5 3.5v9" strokeWidth="2" />,
  play: <path d="M5 3.5v9l7.5-4.5L5 3.5Z" />,
  stop: <rect x="4" y="4" width="8" height="8" rx="1" />,
  edit: <><path d="m10.5 3 2.5 2.5-7.5 7.5-3 .5.5-3L10.5 3Z" /></>,
  trash: <path d="M2.5 4.5h11M6 4.5V3h4v1.5M4 4.5l.6 9h6.8l.6-9" />,
  retry: <><path d="M13 8a5 5 0 1 1-1.5-3.6L13 5.8" /><path d="M13 2.8v3h-3" /></>,
  plus: <path d="M8 3v10M3 8h10" />,
  warn: <><path d="M8 2.5 14 13H2L8 2.5Z" /><path d="M8 6.5v3M8 11.2v.01" /></>,
  info: <><circle cx="8" cy="8" r="5.8" /><path d="M8 7.5v3.2M8 5.2v.01" /></>,
  good: <><circle cx="8" cy="8" r="5.8" /><path d="m5.4 8.2 1.8 1.8 3.4-3.8" /></>,
  bad: <><path d="M5.6 2.2h4.8l3.4 3.4v4.8l-3.4 3.4H5.6l-3.4-3.4V5.6l3.4-3.4Z" /><path d="m6 6 4 4M10 6l-4 4" /></>,
  globe: <><circle cx="8" cy="8" r="5.8" /><path d="M2.2 8h11.6M8 2.2c3.4 3.6 3.4 8 0 11.6M8 2.2C4.6 5.8 4.6 10.2 8 13.8" /></>,
  filter: <path d="M2.5 4h11M4.5 8h7M6.5 12h3" />,
  bookmark: <path d="M4.5 2.5h7v11L8 10.8l-3.5 2.7v-11Z" />,
  terminal: <><rect x="1.8" y="2.8" width="12.4" height="10.4" rx="1.5" /><path d="m4.5 6 2 2-2 2M8.5 10.2h3" /></>,
  link: <path d="M6.5 3.5H4A1.5 1.5 0 0 0 2.5 5v7A1.5 1.5 0 0 0 4 13.5h7a1.5 1.5 0 0 0 1.5-1.5V9.5M9 2.5h4.5V7M13.2 2.8 7.5 8.5" />,
  // The states: each is another shape.
  queued: <circle cx="8" cy="8" r="5.2" strokeDasharray="2.6 2.2" />,
  scheduled: <><circle cx="8" cy="8" r="5.6" /><path d="M8 4.8V8l2.2 1.6" /></>,
  running: <><circle cx="8" cy="8" r="5.6" /><path d="M6.6 5.6v4.8L10.6 8 6.6 5.6Z" fill="currentColor" /></>,
  retrying: <><path d="M13 8a5 5 0 1 1-1.5-3.6L13 5.8" /><path d="M13 2.8v3h-3" /></>,
  blocked: <><rect x="3.5" y="7" width="9" height="6" rx="1.2" /><path d="M5.5 7V5.3a2.5 2.5 0 0 1 5 0V7" /></>,
  succeeded: <><circle cx="8" cy="8" r="5.8" fill="currentColor" stroke="none" /><path d="m5.4 8.2 1.8 1.8 3.4-3.8" stroke="var(--surface)" strokeWidth="1.7" /></>,
  failed: <><path d="M5.6 2.2h4.8l3.4 3.4v4.8l-3.4 3.4H5.6l-3.4-3.4V5.6l3.4-3.4Z" fill="currentColor" stroke="none" /><path d="m6 6 4 4M10 6l-4 4" stroke="var(--surface)" strokeWidth="1.7" /></>,
  cancelled: <><circle cx="8" cy="8" r="5.6" /><path d="m4.2 11.8 7.6-7.6" /></>,
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof DRAWINGS;

export function Icon({ name, className = "" }: { name: IconName; className?: string }) {
  return (
    <svg
      className={`icon ${className}`} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.5"
      strokeLinecap="round" strokeLinejoin="round" aria-hidden="true"
    >
      {DRAWINGS[name]}
    </svg>
  );
}

export function StateIcon({ state }: { state: State }) {
  return <Icon name={state in DRAWINGS ? state : "info"} className={`s-${state}`} />;
}

/** A state as shape, colour and word. */
export function StateBadge({ state, pill = false }: { state: State; pill?: boolean }) {
  return (
    <span className={`state s-${state} ${pill ? "pill" : ""}`}>
      <Icon name={state in DRAWINGS ? state : "info"} />
      {state}
    </span>
  );
}

export function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#4f46c8" />
      <g fill="none" stroke="#fff" strokeWidth="3" strokeLinecap="round">
        <path d="M8 10h10" /><path d="M8 16h13" opacity=".75" /><path d="M8 22h7" opacity=".5" />
      </g>
      <path d="m20 21.5 2.6 2.6L27 18.5" fill="none" stroke="#7df0b2" strokeWidth="3" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}
