import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { get, path, send } from "@/api/client";
import { usePoll } from "@/api/queries";
import type { Key } from "@/api/types";
import { useAct } from "@/lib/actions";
import { useNow } from "@/lib/now";
import { useTitle } from "@/lib/title";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { Ago, At, Empty, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

import { NewKeyDialog } from "./new-key-dialog";

export function Keys() {
  useTitle("API keys");
  const [making, setMaking] = useState(false);
  const client = useQueryClient();
  const keys = useQuery({
    queryKey: ["keys"],
    queryFn: ({ signal }) => get<{ keys: Key[] }>("/keys", {}, signal).then((its) => its.keys),
    refetchInterval: usePoll(30_000).refetchInterval,
  });
  return (
    <>
      <div className="page-head">
        <h1>API keys</h1>
        <span className="muted">their secrets are kept nowhere</span>
        <div className="actions"><Button look="primary" icon="plus" disabled={!keys.data} onClick={() => setMaking(true)}>New key</Button></div>
      </div>
      {keys.error && !keys.data ? <Trouble error={keys.error} again={() => void keys.refetch()} /> : null}
      {keys.isPending ? <Panel><Skeleton lines={5} /></Panel> : null}
      {keys.data ? <Panel bare><KeyTable keys={keys.data} /></Panel> : null}
      {making ? <NewKeyDialog first={keys.data?.length === 0} onClose={() => { setMaking(false); void client.invalidateQueries({ queryKey: ["keys"] }); }} /> : null}
    </>
  );
}

function KeyTable({ keys }: { keys: readonly Key[] }) {
  if (keys.length === 0) {
    return (
      <Empty icon="keys" title="No key is stored">
        <p>Those of <code>TASKQ_API_KEYS</code> are not among them. Where there is none at all, whoever reaches the port may do everything.</p>
      </Empty>
    );
  }
  return (
    <div className="table-box">
      <table className="table">
        <thead><tr><th>Name</th><th>May</th><th>Only</th><th>Rate</th><th className="right">Last used</th><th className="right">Ends</th><th><span className="hidden-text">Actions</span></th></tr></thead>
        <tbody>{keys.map((key) => <Row key={key.id} its={key} />)}</tbody>
      </table>
    </div>
  );
}

function Row({ its }: { its: Key }) {
  const [asking, setAsking] = useState(false);
  const { attempt } = useAct();
  const over = useNow() > (its.expires_at ? Date.parse(its.expires_at) : Number.POSITIVE_INFINITY);
  const bounds = [...(its.queues ?? []).map((name) => `queue ${name}`), ...(its.job_types ?? [])];
  return (
    <tr>
      <td><div className="row"><strong className="break">{its.name}</strong>{over ? <Tag tone="warn">expired</Tag> : null}</div><code className="faint">{its.id}</code></td>
      <td><span className="words">{its.scopes.map((scope) => <Tag key={scope} tone={scope === "admin" ? "warn" : "plain"}>{scope}</Tag>)}</span></td>
      <td>{bounds.length === 0 ? <span className="faint">everything</span> : <span className="words">{bounds.map((bound) => <Tag key={bound}>{bound}</Tag>)}</span>}</td>
      <td className="muted nowrap">{its.rate ?? <span className="faint">no limit</span>}</td>
      <td className="right muted"><Ago at={its.used_at} none="never" /></td>
      <td className="right muted"><At at={its.expires_at} none="never" /></td>
      <td className="right">
        <Button small look="danger" onClick={() => setAsking(true)}>Revoke</Button>
        <Confirm open={asking} onClose={() => setAsking(false)} title={`Revoke ${its.name}?`} action="Revoke it" danger typed={its.name}
          run={() => attempt(() => send("DELETE", path`/keys/${its.id}`), `${its.name} is revoked`)}>
          <p>Whoever uses it is refused within five seconds. It cannot be brought back.</p>
        </Confirm>
      </td>
    </tr>
  );
}
