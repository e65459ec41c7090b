/** JSON as it is stored: coloured, over several lines, with every token as it stands. */
import { useMemo, useState } from "react";

import { bytes } from "@/lib/format";
import { pretty, tokens } from "@/lib/raw";

import { Button } from "./button";
import { CopyButton } from "./parts";

const COLOURED = 60_000;
const SHOWN = 200_000;

export function Json({ text, label }: { text: string; label: string }) {
  const [all, setAll] = useState(false);
  const lines = useMemo(() => pretty(text), [text]);
  const shown = all ? lines : lines.slice(0, SHOWN);
  const parts = useMemo(() => (shown.length > COLOURED ? null : tokens(shown)), [shown]);
  return (
    <div className="stack tight">
      <div className="code wrapped">
        <pre tabIndex={0} role="region" aria-label={label}>
          <code>
            {parts === null
              ? shown
              : parts.map((part, i) =>
                  part.kind === "space" ? part.text : <span key={i} className={`j-${part.kind}`}>{part.text}</span>)}
          </code>
        </pre>
        <CopyButton text={text} className="copy" label="Copy as it is stored" />
      </div>
      {shown.length < lines.length ? (
        <p className="faint">
          The first {bytes(SHOWN)} of {bytes(lines.length)}.{" "}
          <Button small look="quiet" onClick={() => setAll(true)}>Show all</Button>
        </p>
      ) : null}
    </div>
  );
}
