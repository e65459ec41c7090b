import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import { ApiError, get, path } from "@/api/client";
import { useMay } from "@/api/may";
import { PAGE, useJob, usePoll } from "@/api/queries";
import type { ErrorJobs } from "@/api/types";
import { count, many } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button, ButtonLink } from "@/ui/button";
import { Ago, At, Code, Empty, Panel, Skeleton, Trouble } from "@/ui/parts";

import { BulkDialog, type Wanted } from "./bulk-dialog";
import { JobTable } from "./job-table";
import { Selection } from "./selection";

/** One kind of failure: what it says, whom it met, and putting its jobs back in line. */
export function ErrorPage() {
  const { fingerprint = "" } = useParams();
  const [params] = useSearchParams();
  const queue = params.get("queue") ?? undefined;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [bulk, setBulk] = useState<Wanted | null>(null);
  const found = useInfiniteQuery({
    queryKey: ["jobs", "error", fingerprint, queue ?? ""],
    queryFn: ({ pageParam, signal }) => get<ErrorJobs>(path`/errors/${fingerprint}`, { queue, limit: PAGE, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    refetchInterval: usePoll(10_000).refetchInterval,
  });
  const pages = found.data?.pages ?? [];
  const groups = pages[0]?.errors ?? [];
  const group = groups[0];
  useTitle(group?.signature ?? "Error");
  const operate = useMay()("operate");
  const rows = useMemo(() => [...new Map(pages.flatMap((page) => page.jobs).map((job) => [job.id, job])).values()], [pages]);
  if (!found.data) {
    if (found.error instanceof ApiError && found.error.status === 404) return <Gone />;
    return found.error ? <Trouble error={found.error} again={() => void found.refetch()} /> : <Panel><Skeleton lines={8} /></Panel>;
  }
  const failed = rows.filter((row) => row.state === "failed").length;
  return (
    <>
      <div className="page-head">
        <span className="crumb"><Link to={to.errors}>Errors</Link></span>
        <h1 className="break error-title">{group?.signature ?? (fingerprint === "unknown" ? "Failures of no known kind" : fingerprint)}</h1>
        <div className="actions">
          {(operate ? groups : []).map((its) => (
            <Button key={its.queue} look="primary" icon="retry" disabled={failed === 0 && !found.hasNextPage}
              onClick={() => setBulk({ action: "retry", filter: { queue: its.queue, fingerprint } })}>
              Retry all{groups.length > 1 ? ` in ${its.queue}` : ""}
            </Button>
          ))}
        </div>
      </div>
      {groups.map((its) => (
        <div className="tiles" key={its.queue}>
          <Fact name={`Runs that failed so in ${its.queue}`} value={count(its.count)} />
          <Fact name="Jobs that gave up" value={count(its.failed)} />
          <Fact name="First seen" value={<At at={its.first_seen} />} note={<Ago at={its.first_seen} />} />
          <Fact name="Last seen" value={<At at={its.last_seen} />} note={<Ago at={its.last_seen} />} />
        </div>
      ))}
      {group ? <Sample id={group.sample} /> : null}
      <Panel title="Jobs whose last failure is of this kind" note={`${count(rows.length)}${found.hasNextPage ? " so far" : ""}`} bare>
        {rows.length === 0 ? (
          <Empty title={found.hasNextPage ? "None was met so far" : "None is left"} small><p>They were put back in line, succeeded since, or are no longer kept.</p></Empty>
        ) : (
          <JobTable rows={rows} chosen={chosen} onChoose={setChosen} onAway={() => undefined} dimmed={false}
            onEnd={() => { if (found.hasNextPage && !found.isFetchingNextPage) void found.fetchNextPage(); }} />
        )}
        {found.hasNextPage ? <div className="list-foot"><Button small busy={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>Look further</Button></div> : null}
      </Panel>
      <Selection rows={rows} chosen={chosen} onDone={() => setChosen(new Set())} />
      <BulkDialog wanted={bulk} onClose={() => setBulk(null)} says={many(group?.failed ?? failed, "job gave up so", "jobs gave up so")} />
    </>
  );
}

function Gone() {
  return (
    <Empty icon="good" title="This kind of failure is no longer kept">
      <p>A kind is kept for 30 days from its last failure.</p>
      <ButtonLink to={to.errors}>All errors</ButtonLink>
    </Empty>
  );
}

function Fact({ name, value, note }: { name: string; value: React.ReactNode; note?: React.ReactNode }) {
  return (
    <div className="tile">
      <span className="tile-name">{name}</span>
      <span className="tile-value small">{value}</span>
      {note ? <span className="tile-note">{note}</span> : null}
    </div>
  );
}

function Sample({ id }: { id: string }) {
  const job = useJob(id);
  if (!job.data?.error) return null;
  const { type, message, traceback } = job.data.error;
  return (
    <Panel title="The latest" note={<Link to={to.job(id)} className="link mono">{id}</Link>}>
      <div className="stack">
        <p className="error-line break"><strong>{type ?? "Error"}</strong>{message ? <>: {message}</> : null}</p>
        {traceback ? <Code text={traceback} label="Traceback" /> : null}
      </div>
    </Panel>
  );
}
