/** Short messages about what was done. They are read aloud, and go by themselves. */
import { store, useStore } from "@/lib/store";

import { IconButton } from "./button";
import { Icon } from "./icons";
import type { Tone } from "./parts";

interface Message {
  id: number;
  tone: Tone;
  text: string;
}

const messages = store<readonly Message[]>([]);
let next = 0;

const SECONDS: Record<Tone, number> = { good: 4, plain: 5, accent: 5, warn: 8, bad: 12 };

function drop(id: number): void {
  messages.set(messages.get().filter((message) => message.id !== id));
}

export function toast(tone: Tone, text: string): void {
  const id = (next += 1);
  messages.set([...messages.get().slice(-3), { id, tone, text }]);
  setTimeout(() => drop(id), SECONDS[tone] * 1000);
}

export function Toasts() {
  const shown = useStore(messages);
  return (
    <ol className="toasts" aria-live="polite" aria-label="Messages">
      {shown.map((message) => (
        <li key={message.id} className={`toast t-${message.tone}`}>
          <Icon name={message.tone === "good" ? "good" : message.tone === "bad" ? "bad" : "info"} />
          <span className="toast-text">{message.text}</span>
          <IconButton label="Dismiss" icon="close" small onClick={() => drop(message.id)} />
        </li>
      ))}
    </ol>
  );
}
