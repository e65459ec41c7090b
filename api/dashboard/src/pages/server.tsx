import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { get } from "@/api/client";
import { useReady, useVersion } from "@/api/queries";
import type { Finding, Findings } from "@/api/types";
import { count, many } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { Code, Empty, Notice, Panel, Skeleton, Tag, Trouble, type Tone } from "@/ui/parts";

export function Server() {
  useTitle("Redis and doctor");
  const ready = useReady();
  const version = useVersion();
  return (
    <>
      <div className="page-head"><h1>Redis and doctor</h1></div>
      {!ready.data ? (ready.error ? <Trouble error={ready.error} again={() => void ready.refetch()} /> : <Panel><Skeleton /></Panel>) : null}
      {ready.data?.status === "not_ready" ? (
        <Notice tone="bad" title="Jobs cannot be taken now">
          <ul className="plain-list">{ready.data.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
        </Notice>
      ) : null}
      {ready.data?.status === "ready" ? (
        <>
          <Notice tone="good" title="Jobs can be taken">The server answers, takes writes, has room, and is set up so that it keeps jobs.</Notice>
          {ready.data.warnings.map((warning) => <Notice key={warning} tone="warn" title="A setting is worth a look">{warning}</Notice>)}
          <Panel title="Facts">
            <dl className="facts">
              <dt>Server</dt><dd>{ready.data.server}</dd>
              <dt>API</dt><dd>taskq {version.data ?? "…"}</dd>
            </dl>
          </Panel>
        </>
      ) : null}
      <Doctor />
    </>
  );
}

/** Looks for what is out of place. It changes nothing, and is asked only when somebody wants it. */
function Doctor() {
  const look = useInfiniteQuery({
    queryKey: ["doctor"],
    queryFn: ({ pageParam, signal }) => get<Findings>("/doctor", { cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    staleTime: Number.POSITIVE_INFINITY, refetchOnWindowFocus: false, enabled: false, retry: false,
  });
  const pages = look.data?.pages ?? [];
  const found = pages.flatMap((page) => page.findings);
  const looked = pages.reduce((sum, page) => sum + page.looked_at, 0);
  const fixable = found.some((finding) => finding.fix !== "");
  return (
    <Panel
      title="Doctor" note={look.data ? `${count(looked)} keys looked at` : "every job stands where its state says?"} bare
      actions={<Button small icon="search" busy={look.isFetching && !look.isFetchingNextPage} onClick={() => void look.refetch()}>{look.data ? "Look again" : "Look"}</Button>}
    >
      {look.error ? <div className="panel-body"><Trouble error={look.error} /></div> : null}
      {!look.data && !look.error ? <Empty icon="search" title="Nobody has looked yet" small><p>It checks the server&apos;s settings and walks through every queue, some seconds at a time. It changes nothing.</p></Empty> : null}
      {look.data && found.length === 0 ? <Empty icon="good" title={look.hasNextPage ? "Nothing found so far" : "All is well"} small /> : null}
      {found.length > 0 ? <ul className="finding-list">{found.map((finding, i) => <Row key={i} finding={finding} />)}</ul> : null}
      {look.hasNextPage ? <div className="list-foot"><Button small busy={look.isFetchingNextPage} onClick={() => void look.fetchNextPage()}>Look further</Button></div> : null}
      {fixable ? (
        <div className="panel-body">
          <p className="muted">{many(found.filter((finding) => finding.fix !== "").length, "finding")} can be put right, on the machine of an operator:</p>
          <Code text="taskq doctor --fix" label="Command" />
        </div>
      ) : null}
    </Panel>
  );
}

const TONES: Record<Finding["severity"], Tone> = { error: "bad", warning: "warn", info: "plain" };

function Row({ finding }: { finding: Finding }) {
  return (
    <li className="finding-row">
      <Tag tone={TONES[finding.severity] ?? "plain"}>{finding.severity}</Tag>
      <div>
        <p><strong className="break">{finding.message}</strong></p>
        <p className="faint break">
          {finding.queue ? <Link to={to.queue(finding.queue)} className="link">{finding.queue}</Link> : "the server"} · <code>{finding.subject}</code>
        </p>
        {finding.advice ? <p className="muted break">{finding.advice}</p> : null}
      </div>
    </li>
  );
}
