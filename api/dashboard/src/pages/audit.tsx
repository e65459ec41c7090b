import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { get } from "@/api/client";
import { usePoll } from "@/api/queries";
import type { AuditEntry } from "@/api/types";
import { JOB_ID } from "@/lib/search";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { At, Empty, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

export function Audit() {
  useTitle("Audit trail");
  const poll = usePoll(10_000);
  const trail = useInfiniteQuery({
    queryKey: ["audit"],
    queryFn: ({ pageParam, signal }) => get<{ entries: AuditEntry[]; next_cursor: string | null }>("/audit", { limit: 100, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : poll.refetchInterval(query)),
  });
  const entries = (trail.data?.pages ?? []).flatMap((page) => page.entries);
  return (
    <>
      <div className="page-head"><h1>Audit trail</h1><span className="muted">what people did, newest first</span></div>
      {trail.error && !trail.data ? <Trouble error={trail.error} again={() => void trail.refetch()} /> : null}
      {trail.isPending ? <Panel><Skeleton lines={8} /></Panel> : null}
      {trail.data ? (
        <Panel bare>
          {entries.length === 0 ? (
            <Empty icon="audit" title="Nobody has done anything yet"><p>What is done to jobs, queues and keys, here, over REST and on the command line, is noted here.</p></Empty>
          ) : (
            <div className="table-box">
              <table className="table">
                <thead><tr><th>When</th><th>Who</th><th>What</th><th>To</th><th>How</th><th>Outcome</th></tr></thead>
                <tbody>
                  {entries.map((entry) => (
                    <tr key={entry.id}>
                      <td className="muted"><At at={entry.at} /></td>
                      <td><strong className="nowrap">{entry.name || entry.who}</strong>{entry.name ? <div className="faint"><code>{entry.who}</code></div> : null}</td>
                      <td className="nowrap">{entry.what}</td>
                      <td><Target entry={entry} /></td>
                      <td><code className="faint break">{parameters(entry)}</code></td>
                      <td><Tag tone={entry.outcome === "ok" ? "good" : "warn"} icon={entry.outcome === "ok" ? "good" : "warn"}>{entry.outcome}</Tag></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {trail.hasNextPage ? <div className="list-foot"><Button small busy={trail.isFetchingNextPage} onClick={() => void trail.fetchNextPage()}>Earlier</Button></div> : null}
        </Panel>
      ) : null}
    </>
  );
}

function Target({ entry }: { entry: AuditEntry }) {
  const text = <code className="break">{entry.target || "–"}</code>;
  if (entry.what.startsWith("job.") && JOB_ID.test(entry.target)) return <Link to={to.job(entry.target)} className="link">{text}</Link>;
  if (entry.what.startsWith("queue.") && entry.target) return <Link to={to.queue(entry.target)} className="link">{text}</Link>;
  return text;
}

function parameters(entry: AuditEntry): string {
  const its = Object.entries(entry.parameters ?? {}).filter(([, value]) => value !== null && value !== "");
  return its.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
}
