import { Link } from "react-router";

import type { ErrorGroup } from "@/api/types";
import { count, many } from "@/lib/format";
import { to } from "@/lib/to";
import { Ago, Empty } from "@/ui/parts";

/** Failures by kind. */
export function ErrorTable({ errors, short = false }: { errors: readonly ErrorGroup[]; short?: boolean }) {
  if (errors.length === 0) {
    return <Empty icon="good" title="Nothing has failed" small={short}><p>Failures are grouped here as they happen: by type, exception and place.</p></Empty>;
  }
  return (
    <ul className="error-list">
      {errors.map((error) => (
        <li key={error.queue + error.fingerprint}>
          <Link to={to.error(error.fingerprint, error.queue)} className="error-row">
            <span className="error-what">
              <span className="error-signature clip" title={error.signature}>{error.signature}</span>
              <span className="faint clip">{error.job_type} in {error.queue}</span>
            </span>
            <span className="error-count num"><strong>{count(error.count)}</strong> <span className="faint">{error.failed > 0 ? `${many(error.failed, "job")} gave up` : "all tried again"}</span></span>
            <span className="error-when num"><span>last <Ago at={error.last_seen} /></span><span className="faint">first <Ago at={error.first_seen} /></span></span>
          </Link>
        </li>
      ))}
    </ul>
  );
}
