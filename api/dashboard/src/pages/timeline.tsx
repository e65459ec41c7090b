import { Link } from "react-router";

import type { Event, Job } from "@/api/types";
import { duration } from "@/lib/format";
import { to } from "@/lib/to";
import { Icon, type IconName } from "@/ui/icons";
import { At } from "@/ui/parts";

const LOOKS: Record<string, readonly [IconName, string]> = {
  created: ["plus", ""], due: ["scheduled", "s-scheduled"], started: ["running", "s-running"], failed: ["bad", "s-failed"],
  crashed: ["warn", "s-failed"], lost: ["warn", "s-retrying"], released: ["left", ""], snoozed: ["scheduled", "s-scheduled"],
  edited: ["edit", ""], "cancel asked": ["stop", "s-retrying"], retried: ["retry", "s-retrying"], expires: ["scheduled", ""],
  succeeded: ["succeeded", "s-succeeded"], cancelled: ["cancelled", "s-cancelled"], expired: ["bad", "s-failed"],
};

/** What became of the job, oldest first: each run with its worker and what it left. */
export function Timeline({ job }: { job: Job }) {
  return (
    <ol className="timeline">
      {job.history.map((event, i) => {
        const [icon, look] = LOOKS[event.event] ?? ["info", ""];
        return (
          <li key={i} className={look}>
            <Icon name={icon} />
            <div className="timeline-what">
              <span className="row apart wrap">
                <strong>{words(event)}</strong>
                <span className="faint num"><At at={event.at} ms none="at no known time" /></span>
              </span>
              <Details event={event} />
            </div>
          </li>
        );
      })}
    </ol>
  );
}

function words(event: Event): string {
  if (event.event === "started" && event.attempt) return `started, run ${event.attempt}`;
  if (event.event === "failed" && event.failures) return `failed, ${event.failures}×`;
  if (event.event === "due") return "due to run";
  return event.event;
}

function Details({ event }: { event: Event }) {
  const error = event.error as { type?: unknown; message?: unknown } | string | null | undefined;
  const parts: string[] = [];
  if (event.reason) parts.push(event.reason);
  if (event.retry_in_ms != null) parts.push(`tries again after ${duration(event.retry_in_ms)}`);
  if (event.delay_ms != null) parts.push(`put off by ${duration(event.delay_ms)}`);
  if (event.priority != null) parts.push(`priority ${event.priority}`);
  if (event.message != null) parts.push(event.message);
  return (
    <>
      {error ? <p className="timeline-error break">{errorLine(error)}</p> : null}
      {event.worker || parts.length > 0 ? (
        <p className="faint break">
          {event.worker ? <Link to={to.workers} className="mono">{event.worker}</Link> : null}
          {event.worker && parts.length > 0 ? " · " : ""}
          {parts.join(" · ")}
        </p>
      ) : null}
    </>
  );
}

function errorLine(error: { type?: unknown; message?: unknown } | string): string {
  if (typeof error === "string") return error;
  const text = (value: unknown) => (typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value));
  return [text(error.type), text(error.message)].filter(Boolean).join(": ") || JSON.stringify(error);
}
