import { Dialog } from "@/ui/dialog";

import { KEYS } from "./shortcuts";

export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog open={open} onClose={onClose} title="Keyboard">
      <dl className="facts keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys} className="facts-row">
            <dt>{keys.split(" ").map((part, i) => (part === "or" || part === "·" ? <span key={i}> {part} </span> : <kbd key={i}>{part}</kbd>))}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
