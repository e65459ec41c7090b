import { base } from "@/api/client";
import { ButtonLink } from "@/ui/button";
import { to } from "@/lib/to";
import { Icon } from "@/ui/icons";
import { Code, Panel } from "@/ui/parts";

/** What there is to see before anything was ever submitted. */
export function FirstJob({ workers }: { workers: number }) {
  const curl = [
    `curl -X POST ${new URL("jobs", base).href} \\`,
    `  -H "Content-Type: application/json" \\`,
    `  -d '{"job_type":"print","payload":{"message":"Hello"}}'`,
  ].join("\n");
  return (
    <Panel>
      <div className="first">
        <Icon name="jobs" />
        <h2>No job yet: here is the first one</h2>
        <p className="muted">Paste this into a terminal. The job appears here at once.</p>
        <Code text={curl} label="Command that submits a job" />
        <p className="muted">
          {workers === 0
            ? "No worker is running: the job waits until one is. Start one with "
            : "A worker that runs `print` takes it. Or choose from "}
          {workers === 0 ? <code>taskq worker</code> : "the types that workers know:"}
        </p>
        {workers === 0 ? null : <ButtonLink to={to.types} icon="types">Submit by a form</ButtonLink>}
      </div>
    </Panel>
  );
}
