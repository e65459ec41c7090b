import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { get } from "@/api/client";
import { useReady, useServer, useVersion } from "@/api/queries";
import type { Finding, Findings, Server as Facts } from "@/api/types";
import { bytes, count, duration, many, percent } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { Code, Empty, Meter, Notice, Panel, Skeleton, Tag, Trouble, type Tone } from "@/ui/parts";

export function Server() {
  useTitle("Redis and doctor");
  const ready = useReady();
  const version = useVersion();
  const server = useServer();
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
        </>
      ) : null}
      {server.error && !server.data ? <Trouble error={server.error} again={() => void server.refetch()} /> : null}
      {server.data ? (
        <div className="grid two">
          <Memory its={server.data} />
          <Durability its={server.data} />
        </div>
      ) : null}
      <Panel title="Server">
        <dl className="facts">
          <dt>Server</dt><dd>{server.data ? <>{server.data.flavour} {server.data.version}{server.data.uptime === null ? null : <span className="faint">, up for {duration(server.data.uptime * 1000)}</span>}</> : "…"}</dd>
          <dt>Connections</dt><dd className="num">{known(server.data?.clients, count)}</dd>
          <dt>Replicas</dt><dd className="num">{known(server.data?.replicas, count)}</dd>
          <dt>API</dt><dd>taskq {version.data ?? "…"}</dd>
        </dl>
      </Panel>
      <Doctor />
    </>
  );
}

/** What the server would not tell is said to be so, not guessed. */
function known<T>(value: T | null | undefined, shown: (value: T) => ReactNode): ReactNode {
  return value === null || value === undefined ? <span className="faint">not told</span> : shown(value);
}

function Memory({ its }: { its: Facts }) {
  const limit = its.memory_max ?? 0;
  const share = limit > 0 && its.memory_used !== null ? its.memory_used / limit : null;
  return (
    <Panel title="Memory" note={share === null ? undefined : `${percent(share)} of what it may use`}>
      <div className="stack">
        {share === null ? null : <Meter share={share} label="Memory used" state={share > 0.9 ? "failed" : "running"} />}
        <dl className="facts">
          <dt>Used</dt><dd className="num">{known(its.memory_used, bytes)}</dd>
          <dt>At most so far</dt><dd className="num">{known(its.memory_peak, bytes)}</dd>
          <dt>Limit</dt><dd className="num">{known(its.memory_max, (max) => (max === 0 ? "none" : bytes(max)))}</dd>
          <dt>When it is full</dt><dd>{known(its.maxmemory_policy, (policy) => policy === "noeviction" ? "new jobs are refused, none is lost" : <Tag tone="bad">{policy}: jobs are lost</Tag>)}</dd>
        </dl>
      </div>
    </Panel>
  );
}

const FSYNC: Record<string, string> = {
  always: "before each answer: nothing that was answered is lost",
  everysec: "each second: a crash of the machine loses about the last second",
  no: "when the operating system likes",
};

function Durability({ its }: { its: Facts }) {
  return (
    <Panel title="Durability">
      <dl className="facts">
        <dt>Append-only file</dt><dd>{known(its.append_only, (on) => on ? <Tag tone="good" icon="good">on</Tag> : <Tag tone="warn">off: a restart loses jobs</Tag>)}</dd>
        <dt>Reaches the disk</dt><dd>{its.append_only === false ? <span className="faint">–</span> : known(its.append_fsync, (how) => <>{FSYNC[how] ?? how}</>)}</dd>
        <dt>Last write</dt><dd>{its.append_only === false ? <span className="faint">–</span> : known(its.append_only_ok, (ok) => ok ? "went well" : <Tag tone="bad">failed: look at the disk</Tag>)}</dd>
        <dt>Size</dt><dd className="num">{its.append_only === false ? <span className="faint">–</span> : known(its.append_only_size, bytes)}</dd>
        <dt>Role</dt><dd>{known(its.role, (role) => (role === "master" ? "primary" : role))}</dd>
      </dl>
    </Panel>
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
