import { useEffect } from "react";
import { useNavigate } from "react-router";

import { live } from "@/lib/settings";
import { to } from "@/lib/to";

const PAGES: Record<string, string> = {
  o: to.overview, j: to.jobs(), e: to.errors, w: to.workers, t: to.types, r: to.server,
};

export const KEYS: readonly (readonly [string, string])[] = [
  ["Ctrl K or /", "go to a job, queue or page"],
  ["g o · g j · g e · g w · g t · g r", "overview, jobs, errors, workers, job types, Redis"],
  ["p", "pause what renews itself, or go on"],
  ["j · k", "next and previous job of a list"],
  ["Enter", "open the job"],
  ["x", "select the job"],
  ["?", "this list"],
];

/** Whether a key goes to something that is being typed into, or to a dialog. */
export function isTyping(event: KeyboardEvent): boolean {
  const at = event.target;
  if (!(at instanceof HTMLElement)) return false;
  return at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) || at.closest("[role=dialog],[role=menu]") !== null;
}

export function useShortcuts({ palette, help }: { palette: () => void; help: () => void }): void {
  const navigate = useNavigate();
  useEffect(() => {
    let going = 0;
    const press = (event: KeyboardEvent) => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        palette();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const page = PAGES[event.key];
      if (Date.now() - going < 1200 && page !== undefined) {
        event.preventDefault();
        event.stopImmediatePropagation(); // `j` is also a list's
        going = 0;
        void navigate(page);
        return;
      }
      going = event.key === "g" ? Date.now() : 0;
      if (event.key === "/") {
        event.preventDefault();
        palette();
      }
      if (event.key === "p") live.set(!live.get());
      if (event.key === "?") help();
    };
    window.addEventListener("keydown", press, true);
    return () => window.removeEventListener("keydown", press, true);
  }, [navigate, palette, help]);
}
